package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// What a power loss or a restore may take of the streams, in any combination: whatever it is, the entity takes commands, its
// effect is performed, its deadline comes, no event has the id of another one, and what cannot be had again is told.
func TestStreamsThatLostEverything(t *testing.T) {
	t.Parallel()
	all := []string{streams.CommandStream, streams.EffectStream, streams.EventStream, "KV_things"}
	for mask := 1; mask < 1<<len(all); mask++ {
		var lose []string
		for i, name := range all {
			if mask&(1<<i) != 0 {
				lose = append(lose, name)
			}
		}
		t.Run(strings.Join(lose, "+"), func(t *testing.T) {
			t.Parallel()
			w, n := noted(t, consumertest.Things)
			w.start()
			w.Ask(consumertest.ToThing("a", "create", ""))
			w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
			w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`)) // nobody performs it yet
			w.Eventually("its effect", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 1 })
			w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 3 })
			w.Stop()
			before := w.Stream(streams.EventStream, "instar.evt.>")
			w.Empty(lose...)
			w.start()
			valueLost, eventsLost := mask&8 != 0, mask&4 != 0
			a := w.Ask(consumertest.ToThing("a", "idle", ""))
			if !valueLost {
				require.Equal(t, machines.Unchanged, a.Outcome)
				w.withWorkers()
				w.Reaches("a", "open")
				require.Equal(t, 1, w.Sum("a"))
			} else {
				require.Equal(t, machines.CodeNotFound, a.Refusal.Code)
				require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "create", "")).Outcome)
				require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":5}`)).Outcome)
				require.Equal(t, 5, w.Sum("a"))
			}
			require.Equal(t, valueLost != eventsLost, n.Count("reconciled") > 0, "told exactly where something cannot be had again: %v", n.List)
			ids := map[string]bool{}
			if !eventsLost {
				require.GreaterOrEqual(t, len(w.Stream(streams.EventStream, "instar.evt.>")), len(before))
			}
			w.Eventually("a last event that fits", func() bool {
				e, _ := w.Entity(consumertest.Things, "default.a")
				evs := w.Events("thing", "default.a")
				return strings.HasPrefix(evs[len(evs)-1], fmt.Sprint(e.Version)+" ")
			})
			for _, m := range w.Stream(streams.EventStream, "instar.evt.thing.default.a.>") {
				require.False(t, ids[m.Header.Get("ce-id")], "event %s twice", m.Header.Get("ce-id"))
				ids[m.Header.Get("ce-id")] = true
			}
			require.Zero(t, n.Count("restarted p"), "%v", n.List)
		})
	}
}

// An operator removes events. The stream remembers their ids for half a minute more, and takes none of them again; the entity goes on at once.
func TestEventsThatWereRemovedByHandAreNotMissed(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Told("thing", "default.a", "1 thing.created", "2 thing.added")
	w.Stop()
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, events.Purge(w.Ctx))
	w.start()
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":2}`)).Outcome)
	w.Eventually("its events", func() bool {
		all := w.Events("thing", "default.a")
		return len(all) > 0 && strings.HasSuffix(all[len(all)-1], " thing.added")
	})
	require.Zero(t, n.Count("restarted p"), "%v", n.List)
}

// Deadlines that the stream has lost come all the same.
func TestALostScheduleIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
	w.Eventually("its schedule", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 1 })
	w.Stop()
	w.Empty(streams.CommandStream)
	w.start()
	w.Ask(consumertest.ToThing("a", "idle", ""))
	w.Reaches("a", "broken")
}

// The bucket falls back to an older value, as a damaged block or a power loss makes it: the entity goes on with it, says so,
// and gives no version out twice.
func TestAnOlderValueIsTold(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	older, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	for range 3 {
		w.Ask(consumertest.ToThing("a", "add", `{"n":10}`))
	}
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 5 })
	w.Stop()
	_, err = bucket.Put(w.Ctx, "default.a", older.Value())
	require.NoError(t, err)
	w.start()
	a := w.Ask(consumertest.ToThing("a", "add", `{"n":100}`))
	require.Equal(t, machines.Applied, a.Outcome)
	require.EqualValues(t, 7, a.Version)
	require.Equal(t, 101, w.Sum("a"))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 7 })
	require.Equal(t, []string{"6 entity.reconciled", "7 thing.added"}, w.Events("thing", "default.a")[5:])
	told := w.Stream(streams.EventStream, w.Names.Event("thing", "default.a", machines.EventReconciled))
	require.Len(t, told, 1)
	var ev machines.Event
	require.NoError(t, json.Unmarshal(told[0].Data, &ev))
	require.Equal(t, map[string]any{"problem": "value-older", "version": 2.0, "lastEvent": "thing/default.a/5/0", "lastEventVersion": 5.0}, ev.Data)
	require.Equal(t, 1, n.Count("reconciled thing value-older"))
	w.Stop()
	w.start()
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, 1, n.Count("reconciled thing value-older"), "once")
}

// Commands without an id, sent before and after the stream counts anew, are all applied, and refusals are told.
func TestBareCommandsWhereSequencesComeAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	for range 5 {
		w.bare("a", "add", `{"n":1}`)
	}
	w.Ask(consumertest.ToThing("a", "explode", ""))
	w.Eventually("5", func() bool { return w.Sum("a") == 5 })
	w.Stop()
	w.Empty(streams.CommandStream)
	w.start()
	w.bare("a", "explode", "")
	for range 7 {
		w.bare("a", "add", `{"n":10}`)
	}
	w.Eventually("75", func() bool { return w.Sum("a") == 75 })
	w.Eventually("two refusals", func() bool {
		return strings.Count(strings.Join(w.Events("thing", "default.a"), "\n"), "command.refused") == 2
	})
}

// A process that stood still between its commit and its timers comes back and publishes an older deadline: the newer one
// stays.
func TestALateScheduleReplacesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	require.Equal(t, "working", w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`)).State) // a deadline in 2 s, and no workers
	w.Eventually("its schedule", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 1 })
	schedules := func() uint64 { return w.Stream(streams.CommandStream, "instar.timer.>")[0].Sequence }
	live := schedules()
	zombie := &partition{e: w.engine, name: "zombie"}
	s := &cachedEntity{m: consumertest.Things, key: "default.a", revision: 1}
	old := machines.Message{Kind: machines.KindTimer, Name: "deadline", Version: 1, At: time.Now().Add(time.Hour), Body: []byte(`{"timer":"deadline","armed":1}`)}
	write, err := consumers.WriteOf(w.Names, s.m, s.key, "", &old)
	require.NoError(t, err)
	require.ErrorIs(t, zombie.publishTimers(w.Ctx, []schedule{{cached: s, msg: &old, Write: write}}), publish.ErrConflict)
	require.Equal(t, live, schedules())
	w.Reaches("a", "broken")
}

// Whoever may publish commands of one entity cannot keep those of another one out by using their ids up.
func TestAForeignIDKeepsNothingOut(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	for _, id := range []string{"work-2-1-done", "k1"} {
		m := &nats.Msg{Subject: "instar.cmd.thing.other.x.create", Header: nats.Header{"Nats-Msg-Id": {"thing/default.a/" + id}}}
		_, err := w.JS.PublishMsg(w.Ctx, m)
		require.NoError(t, err)
	}
	keyed := consumertest.ToThing("a", "add", `{"n":7}`)
	keyed.ID = "k1"
	a := w.Ask(keyed)
	require.Equal(t, machines.Applied, a.Outcome)
	require.False(t, a.Replayed)
	again := w.Ask(keyed)
	require.True(t, again.Replayed)
	again.Replayed = false
	require.Equal(t, a, again)
	w.withWorkers()
	w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
	w.Reaches("a", "open")
	w.Eventually("two letters", func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 2
	})
	_, revision := w.Entity(consumertest.Things, "other.x")
	require.Zero(t, revision)
}

// What nobody sends a command to is found as well: the deadline of an entity whose schedule was lost comes by itself.
func TestWhatIsMissingIsFoundWithoutACommand(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	ix := index.New(w.JS, "things", func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{})
	w.Also(ix.Run)
	w.Indexes = &index.Map{}
	w.Indexes.Set("thing", ix)
	w.start()
	w.Ask(consumertest.ToThing("calm", "create", ""))
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"well"}`))
	w.Eventually("its schedule", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 1 })
	w.Stop()
	w.Empty(streams.CommandStream)
	e := &Engine{Deps: w.Deps, Indexes: w.Indexes, ReconcileAfter: time.Millisecond}
	w.Run(e.Run)
	w.Reaches("a", "broken")
	_, revision := w.Entity(consumertest.Things, "default.calm")
	require.EqualValues(t, 1, revision, "what lacks nothing is left alone")
}

// Events that went because their stream may have only so many bytes are not missed: not those that the value says were stored, and
// not those of its last outbox.
func TestEventsThatWentForTheirSizeAreNotMissed(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	w.Stop()
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	c := events.CachedInfo().Config
	c.MaxBytes = 4096
	_, err = w.JS.UpdateStream(w.Ctx, c)
	require.NoError(t, err)
	w.start()
	for i := 0; len(w.Events("thing", "default.a")) > 0; i++ {
		require.Less(t, i, 100)
		w.Ask(consumertest.ToThing("b"+fmt.Sprint(i), "create", ""))
	}
	w.Stop()
	w.start()
	require.Equal(t, machines.Unchanged, w.Ask(consumertest.ToThing("a", "idle", "")).Outcome)
	require.Empty(t, w.Events("thing", "default.a"))
	require.Zero(t, n.Count("reconciled"), "%v", n.List)
	e, _ := w.Entity(consumertest.Things, "default.a")
	require.EqualValues(t, 2, e.Version)
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Outcome)
	w.Eventually("its next event", func() bool { return len(w.Events("thing", "default.a")) == 1 })
}

// A value that is gone is found without a command to its entity, as long as the event of its birth is kept, and told once. What
// has ended, or was deleted with a marker, is not missing.
func TestALostValueIsFoundWithoutACommand(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	for _, id := range []string{"lost", "calm", "closed", "deleted"} {
		w.Ask(consumertest.ToThing(id, "create", ""))
	}
	w.Ask(consumertest.ToThing("lost", "add", `{"n":1}`))
	w.Ask(consumertest.ToThing("closed", "close", ""))
	w.Eventually("their events", func() bool { return len(w.Stream(streams.EventStream, "instar.evt.thing.>")) == 6 })
	w.Stop()
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	require.NoError(t, bucket.Purge(w.Ctx, "default.deleted"))
	values, err := w.JS.Stream(w.Ctx, "KV_things")
	require.NoError(t, err)
	require.NoError(t, values.Purge(w.Ctx, jetstream.WithPurgeSubject("$KV.things.default.lost")))
	ix := index.New(w.JS, "things", func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{})
	w.Also(ix.Run)
	<-ix.Ready()
	w.Indexes = &index.Map{}
	w.Indexes.Set("thing", ix)
	e := &Engine{Deps: w.Deps, Indexes: w.Indexes, ReconcileAfter: time.Millisecond}
	w.Run(e.Run)
	w.Eventually("it is told", func() bool { return slices.Contains(w.Events("thing", "default.lost"), "2 entity.reconciled") })
	require.EqualValues(t, 1, e.Reconciled())
	lacks, err := e.lacks(w.Ctx, consumertest.Things, "default.lost", reconcile.History{})
	require.NoError(t, err)
	require.False(t, lacks, "once")
	e.passes().Missing(w.Ctx, consumertest.Things, ix)
	require.Equal(t, 1, n.Count("reconciled thing value-lost"))
	require.Equal(t, 1, n.Count("reconciled"))
	require.EqualValues(t, 3, w.Ask(consumertest.ToThing("lost", "create", "")).Version, "it can begin again")
}

// A command may find the value lost, be delivered again after the next loss of power, and find that a later value was lost, too. Each is told: the stream must not take the second event for the first.
func TestEachLossOfAValueIsTold(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Stop()
	p, ids := &partition{e: w.engine}, map[string]bool{}
	for version := range uint64(3) {
		it := &item{addr: streams.Address{Machine: "thing", Key: "default.a"}, delivery: delivery{seq: 5, time: time.Unix(1, 0)}, machine: consumertest.Things}
		it.cached = p.newCached(it)
		require.NoError(t, p.loadAbsent(w.Ctx, it, &reconcile.LastEvent{Version: version + 1}))
		require.Len(t, it.cached.transient, 1)
		ids[it.cached.transient[0].ID("thing", "default.a")] = true
	}
	require.Len(t, ids, 3)
}
