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
			p.hear(&nats.Msg{Subject: "instar.worker.q", Data: raw})
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

// Who may speak of one queue says nothing of another one.
func TestAWorkerSpeaksOfTheQueueOfItsSubject(t *testing.T) {
	t.Parallel()
	p := presence{heard: map[[2]string]Worker{}}
	for _, subject := range []string{"instar.worker.a", "instar.worker.b", "elsewhere.worker.a"} {
		p.hear(&nats.Msg{Subject: subject, Data: []byte(`{"id":"` + subject + `","queue":"a"}`)})
	}
	heard := p.queues()
	require.Len(t, heard, 1)
	require.Len(t, heard["a"], 1)
	require.Equal(t, "instar.worker.a", heard["a"][0].ID)
}
