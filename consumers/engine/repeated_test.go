package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
)

// A command, its repetition and a later command are taken with one write, and come again before the answer is kept: the value has the outcome of the command, which is that of its
// repetition, too.
func TestARepetitionThatComesAgain(t *testing.T) {
	t.Parallel()
	for range 10 {
		if repeatedInOneWrite(t) {
			return
		}
	}
	t.Error("the commands never came in one batch")
}

// repeatedInOneWrite reports false when the first command came in a batch of its own: then nothing goes on while its answer cannot be kept.
func repeatedInOneWrite(t *testing.T) bool {
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Stop()
	bucket, err := w.JS.Stream(w.Ctx, "KV_"+streams.IdempotencyBucket)
	require.NoError(t, err)
	full := bucket.CachedInfo().Config
	full.MaxBytes = 1 // DiscardNew: it takes nothing
	_, err = w.JS.UpdateStream(w.Ctx, full)
	require.NoError(t, err)
	inbox := w.NC.NewInbox()
	answers, err := w.NC.SubscribeSync(inbox)
	require.NoError(t, err)
	id := streams.CommandID("thing", "default.a", "once")
	w.bare("a", "add", `{"n":1000}`, streams.HeaderID, id)
	w.bare("a", "add", `{"n":1000}`, streams.HeaderLookup, id, streams.HeaderID, streams.CommandID("thing", "default.a", streams.MadeUpID("x")), streams.HeaderReply, inbox)
	w.bare("a", "add", `{"n":1}`)
	w.start()
	apart := false
	w.Eventually("all are applied", func() bool {
		apart = w.Sum("a") == 1000 && n.Count("restarted") > 2
		return apart || w.Sum("a") == 1001
	})
	if apart {
		w.Stop()
		return false
	}
	before, pending := n.Count("restarted"), 0
	w.Eventually("they came again, twice, and were answered", func() bool {
		pending, _, err = answers.Pending()
		return n.Count("restarted") > before+2 && pending > 1
	})
	w.Stop()
	first, err := answers.NextMsgWithContext(w.Ctx)
	require.NoError(t, err)
	for range pending - 1 {
		again, err := answers.NextMsgWithContext(w.Ctx)
		require.NoError(t, err)
		require.Equal(t, string(first.Data), string(again.Data))
	}
	return true
}
