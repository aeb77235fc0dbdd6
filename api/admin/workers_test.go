package admin

import (
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What is heard of workers is bounded, and those that are gone make room without anybody looking.
func TestWhatIsHeardOfWorkersIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := presence{heard: map[[2]string]Worker{}}
		hear := func(id string) {
			raw, err := json.Marshal(map[string]any{"id": id, "queue": "q", "name": "n"})
			require.NoError(t, err)
			p.hear(&nats.Msg{Data: raw})
		}
		for i := range maxWorkers + 1 {
			hear(strconv.Itoa(i))
		}
		require.Equal(t, maxWorkers, len(p.heard))
		_, listed := p.heard[[2]string{"q", strconv.Itoa(maxWorkers)}]
		require.False(t, listed)
		time.Sleep(workerLife)
		hear("0") // who is known is heard, however many there are
		time.Sleep(time.Second)
		hear("new")
		require.Equal(t, 2, len(p.heard), "the one that still speaks, and the new one")
	})
}
