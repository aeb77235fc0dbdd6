package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// A process that stood still for longer than its key lives finds out before it writes what it has decided: others may have its partitions.
func TestNothingIsCommittedWithoutTheLease(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	over, cancel := context.WithCancel(w.Ctx)
	cancel()
	node := &cluster.Node{JS: w.JS, Appender: w.Appender, Name: "late"}
	_ = node.Run(over, nil) // it never gets as far as a key
	require.False(t, node.LeaseValid())
	it := &item{addr: streams.Address{Machine: "thing", Key: "default.a"}, machine: consumertest.Things}
	it.answer.Namespace, it.answer.ID = "default", "a"
	it.cached = new(partition).newCached(it)
	it.cached.dirty = true
	p := &partition{e: &Engine{Deps: w.WithDefaults(), Node: node}}
	require.ErrorIs(t, p.commit(w.Ctx, []*item{it}), errLeaseLost)
	require.Empty(t, w.Stream("KV_things", ">"))
}

// An owner that stood still between its commit and its events finds those in the stream that another one has published for it. It does not send them again: the stream may know their
// ids no more.
func TestWhatAnotherOwnerHasPublishedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("its event", func() bool { return len(w.Events("thing", "default.a")) == 1 })
	e, _ := w.Entity(consumertest.Things, "default.a")
	require.Len(t, e.Outbox, 1)
	s := &cachedEntity{m: consumertest.Things, key: "default.a", entity: e}
	c := &chain{Chain: publish.Chain{Filter: w.Names.EventsOf("thing", "default.a")}, cached: s, messages: e.Outbox}
	require.NoError(t, (&partition{e: w.engine}).resync(w.Ctx, c))
	require.Equal(t, 1, c.Done)
	require.Equal(t, w.Stream(streams.EventStream, ">")[0].Sequence, c.Last)
}

// An owner that knows an event which a server that was started anew has lost begins anew, too: the events of earlier batches may be lost with it, which only loading the entity shows. Where
// nothing was started anew, somebody has removed that event.
func TestAServerThatHasLostEventsIsNotWrittenOn(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("its event", func() bool { return len(w.Events("thing", "default.a")) == 1 })
	e, _ := w.Entity(consumertest.Things, "default.a")
	last := w.Stream(streams.EventStream, ">")[0].Sequence
	p := &partition{e: w.engine, found: reconcile.History{Reconnects: w.NC.Stats().Reconnects}}
	resync := func() error {
		s := &cachedEntity{m: consumertest.Things, key: "default.a", entity: e}
		return p.resync(w.Ctx, &chain{Chain: publish.Chain{Filter: w.Names.EventsOf("thing", "default.a"), Last: last + 1}, cached: s, messages: e.Outbox})
	}
	require.NoError(t, resync())
	p.found.Reconnects++
	require.ErrorContains(t, resync(), "has events up to")
}

// Somebody else takes a command from the consumer of a partition, and does nothing with it: those behind it, of the same entity, are not taken before it.
func TestWhatAnotherProcessTakesIsNotOvertaken(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	cons, err := w.JS.Consumer(w.Ctx, streams.CommandStream, fmt.Sprintf("p%02d", streams.Partition("thing", "default.a")))
	require.NoError(t, err)
	other, err := cons.Fetch(1, jetstream.FetchMaxWait(20*time.Second))
	require.NoError(t, err)
	sent := 0
	for taken := false; !taken; {
		w.bare("a", "add", `{"n":1}`)
		sent++
		select {
		case m := <-other.Messages():
			require.NotNil(t, m)
			taken = true
		default:
		}
	}
	w.bare("a", "add", `{"n":1}`)
	w.Eventually("all are applied", func() bool { return w.Sum("a") == sent+1 })
	w.CheckStory("a")
}

// Whether the dead letter of a command is stored, only what the value says of it tells: so it says so until the letter is, also where answers under keys were stored before.
func TestTheValueTellsOfADeadCommandUntilItsLetterIsStored(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"key", streams.MadeUpID("seq-7")} {
		s := &cachedEntity{m: consumertest.Things, entity: machines.Entity{Mark: 7}, recent: []machines.Outcome{{ID: id, Command: "poison", Seq: 7, Result: machines.Dead, Kept: true}}}
		it := &item{cached: s, id: id}
		it.seq = 7
		(&partition{}).takenBefore(it)
		require.NotEmpty(t, it.deadLetter)
		require.Len(t, s.outcomesToStore(), 1)
		s.markAnswersStored() // as finished does, when the letter is stored
		require.Empty(t, s.outcomesToStore())
	}
}
