package commands

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// An answer that is there is given, also where the time to wait for it is over.
func TestAnAnswerThatIsThereIsGiven(t *testing.T) {
	t.Parallel()
	for range 100 { // a select with two ways takes either
		c := &Sent{begun: time.Now().Add(-time.Minute), within: time.Second, stored: make(chan struct{}), ended: make(chan struct{}), answer: &nats.Msg{}}
		close(c.ended)
		m, err := c.wait(0)
		require.NoError(t, err)
		require.Same(t, c.answer, m)
	}
}
