package engine

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// emptied takes all streams away, and says which there have to be.
func emptied(w *world) streams.Plan {
	w.T.Helper()
	plan := streams.Plan{States: []string{consumertest.Things.Plural}}
	for _, c := range plan.Configs() {
		require.NoError(w.T, w.JS.DeleteStream(w.Ctx, c.Name))
	}
	return plan
}

// restored leaves the streams as a restore of nothing does: they begin at 1000, and versions above 5000.
func restored(w *world) {
	w.T.Helper()
	plan := emptied(w)
	require.NoError(w.T, plan.Begin(w.Ctx, w.JS, 1000, "mark", nil))
	require.NoError(w.T, plan.Finish(w.Ctx, w.JS, 5000))
}

// An engine that runs on while its streams are made anew by a restore takes nothing before that has ended, and gives out nothing then that was given out.
func TestAnEngineBesideARestore(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	require.EqualValues(t, 1, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	plan := emptied(w)
	require.NoError(t, plan.Begin(w.Ctx, w.JS, 1000, "mark", nil))
	require.NoError(t, plan.Begin(w.Ctx, w.JS, 1000, "mark", nil), "it may be called again")
	require.ErrorIs(t, plan.Begin(w.Ctx, w.JS, 1000, "another", nil), streams.ErrOccupied)
	_, err := streams.Ensure(w.Ctx, w.JS, plan)
	require.ErrorIs(t, err, streams.ErrUnfinished)
	commands := plan.Names.Stream(streams.CommandStream)
	require.NoError(t, w.JS.DeleteStream(w.Ctx, commands), "as by an operator who removes what is left one by one")
	_, err = streams.Ensure(w.Ctx, w.JS, plan)
	require.ErrorIs(t, err, streams.ErrUnfinished, "of the rest")
	_, err = w.JS.Stream(w.Ctx, commands)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "nothing is made anew meanwhile")
	require.ErrorIs(t, plan.Begin(w.Ctx, w.JS, 1000, "another", nil), streams.ErrOccupied)
	require.NoError(t, plan.Begin(w.Ctx, w.JS, 1000, "mark", nil))

	answered := make(chan machines.Answer, 1)
	go func() {
		a, _ := w.TryAsk(consumertest.ToThing("b", "create", ""))
		answered <- a
	}()
	before := n.Count("restarted")
	w.Eventually("partitions that have looked again", func() bool { return n.Count("restarted") >= before+2*streams.Partitions })
	require.Empty(t, answered)
	require.Empty(t, w.Stream(streams.EventStream, "instar.evt.>"))
	require.NoError(t, plan.Finish(w.Ctx, w.JS, 5000))
	require.NoError(t, plan.Finish(w.Ctx, w.JS, 5000), "it may be called again")
	for _, c := range plan.Configs() {
		st, err := w.JS.Stream(w.Ctx, c.Name)
		require.NoError(t, err)
		require.NoError(t, streams.Unfinished(st.CachedInfo().Config.Metadata), c.Name)
	}
	require.EqualValues(t, 5001, (<-answered).Version)
	require.EqualValues(t, 5001, w.Ask(consumertest.ToThing("a", "create", "")).Version)
}

// What was never there has no version either in an installation that was restored: else the next process would take a refusal for the last event of a value that is lost, tell that, and take
// away what was answered under keys.
func TestARefusalAfterARestoreIsNoLostValue(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	restored(w)
	w.start()
	idle := consumertest.ToThing("a", "idle", "")
	idle.ID = "key"
	first := w.Ask(idle)
	require.Equal(t, machines.CodeNotFound, first.Refusal.Code)
	require.Zero(t, first.Version)
	w.Eventually("its answer is kept", func() bool { return len(w.Stream("KV_idempotency", ">")) == 1 })
	w.Stop()
	w.start()
	require.EqualValues(t, 5001, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	again := w.Ask(idle)
	require.True(t, again.Replayed)
	require.Equal(t, first.Refusal, again.Refusal)
	require.Zero(t, n.Count("reconciled thing value-lost"))
}

// A stream of events that a restore has let begin high has removed nothing below: events that a power loss has taken from it, all of them, are published again.
func TestEventsThatAreLostAfterARestore(t *testing.T) {
	t.Parallel()
	w, _ := noted(t, consumertest.Things)
	restored(w)
	w.start()
	require.EqualValues(t, 5001, w.Ask(consumertest.ToThing("a", "create", "")).Version)
	w.Stop()
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.EventStream))
	_, err = w.JS.CreateStream(w.Ctx, events.CachedInfo().Config)
	require.NoError(t, err)
	stored, revision := w.Entity(consumertest.Things, "default.a")
	stored.Mark, stored.MarkedAt = 0, time.Time{} // as a restore stores what had taken no command that is to be done yet
	value, err := stored.AppendJSON(nil)
	require.NoError(t, err)
	_, err = w.Bucket(consumertest.Things.Plural).Update(w.Ctx, "default.a", value, revision)
	require.NoError(t, err)
	w.start()
	require.EqualValues(t, 5001, w.Ask(consumertest.ToThing("b", "create", "")).Version)
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "work", "")).Outcome)
	w.Eventually("the lost event of a, and those behind it", func() bool {
		return len(w.Stream(streams.EventStream, "instar.evt.thing.default.a.thing.created")) == 1
	})
}
