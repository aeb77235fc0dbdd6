package engine

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
)

// An account that is full takes nothing for a while: commands that were accepted before wait, however often they are tried,
// and are applied when there is room again. None of them is to blame.
func TestAFullAccountCostsNoCommand(t *testing.T) {
	t.Parallel()
	w, n := attached(t, "jetstream: { max_file: 3MB }", consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Stop()
	for range 3 {
		w.bare("a", "add", `{"n":1}`)
	}
	var err error
	for size := 100_000; size > 10; size /= 10 {
		for err = nil; err == nil; {
			_, err = w.JS.PublishMsg(w.Ctx, &nats.Msg{Subject: "instar.evt.filler.x.y.z", Data: make([]byte, size)})
		}
		require.ErrorContains(t, err, "resource limits exceeded for account")
	}
	w.start()
	partition := fmt.Sprintf("restarted p%02d", streams.Partition("thing", "default.a"))
	w.Eventually("more tries than any command has", func() bool { return n.Count(partition) > consumers.MaxTries+1 })
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, events.Purge(w.Ctx))
	w.Eventually("all are applied", func() bool { return w.Sum("a") == 3 })
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, letters)
}
