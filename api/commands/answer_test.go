package commands

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/publish"
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

// The sequence of a stored command is told, also where the engine's answer overtakes the acknowledgement of the stream.
func TestAnAnswerMayOvertakeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	c := &Sent{stored: make(chan struct{}), ended: make(chan struct{}), answer: &nats.Msg{}}
	close(c.ended)
	time.AfterFunc(10*time.Millisecond, func() {
		c.result = publish.Result{Seq: 7}
		close(c.stored)
	})
	seq, ok := c.Stored()
	require.True(t, ok)
	require.EqualValues(t, 7, seq)

	lost := &Sent{stored: make(chan struct{}), ended: make(chan struct{}), answer: &nats.Msg{}}
	close(lost.ended)
	seq, ok = lost.Stored()
	require.True(t, ok, "its answer tells that it was stored")
	require.Zero(t, seq)
}
