package engine

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// However often a timer is armed and ended within one batch, one schedule is written, or none: they would replace each other, and
// the partition would take that for somebody else's doing.
func TestATimerIsArmedOnceInABatch(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w, n := setup(t, profile, consumertest.Things), consumertest.NewNotes()
			w.Meter = n
			written := make(chan *nats.Msg, 100)
			_, err := w.NC.ChanSubscribe(w.Names.Timer("thing", "default.a", "*"), written)
			require.NoError(t, err)
			require.NoError(t, w.NC.Flush())
			const arms = 20
			w.bare("a", "create", "")
			for range arms {
				w.bare("a", "work", `{"how":"x"}`)
				w.bare("a", "done", `{"data":{"how":"y"}}`)
			}
			w.start()
			w.Eventually("all", func() bool { return w.version("a") == 1+2*arms })
			w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
			w.Eventually("its schedule", func() bool {
				schedules, armed := w.Stream(streams.CommandStream, "instar.timer.>"), machines.Elapsed{}
				return len(schedules) == 1 && json.Unmarshal(schedules[0].Data, &armed) == nil && armed.Armed == 2+2*arms
			})
			require.Zero(t, n.Count("restarted p"))
			require.Zero(t, n.Count("conflict"))
			// The first batch of a process may hold less than was waiting.
			require.Less(t, len(written), 6)
			w.Reaches("a", "broken")
		})
	}
}

// A batch that arms a timer anew, and ends with it armed, has a schedule for it.
func TestTheLastArmOfABatchIsKept(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, consumertest.Things)
			w.bare("a", "create", "")
			w.bare("a", "work", `{"how":"x"}`)
			w.bare("a", "done", `{"data":{"how":"y"}}`)
			w.bare("a", "work", `{"how":"x"}`)
			w.start()
			w.Reaches("a", "broken")
		})
	}
	armed := func(version uint64) machines.Message {
		return machines.Message{Kind: machines.KindTimer, Name: "deadline", Version: version}
	}
	s := &cachedEntity{entity: machines.Entity{Timers: map[string]machines.Timer{"deadline": {Armed: 4}}}, outbox: []machines.Message{armed(2), armed(4)}, transient: []machines.Message{armed(4)}}
	s.dropReplacedTimers()
	require.Equal(t, []machines.Message{armed(4)}, append(s.outbox, s.transient...))
}

// Many entities end while nothing can be purged: their batch does not wait for each of them, and what stays in the stream is still
// known. Purges are one at a time in the process.
func TestEndsDoNotWaitForTheirTimers(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	p := &partition{e: &Engine{Deps: w.WithDefaults(), purging: make(chan struct{}, 1)}, found: reconcile.History{Reconnects: w.NC.Stats().Reconnects}}
	var slots []*cachedEntity
	for i := range 100 {
		slots = append(slots, &cachedEntity{m: consumertest.Things, key: fmt.Sprint("default.o", i), entity: machines.Entity{State: "closed"}, schedules: map[string]uint64{"deadline": 1}})
	}
	p.e.purging <- struct{}{} // another partition
	began := time.Now()
	p.cancelTimers(w.Ctx, slots)
	require.Less(t, time.Since(began), 3*bulkack.Within)
	for _, s := range slots {
		require.Contains(t, s.schedules, "deadline")
	}
	<-p.e.purging
	p.cancelTimers(w.Ctx, slots)
	for _, s := range slots {
		require.Empty(t, s.schedules)
	}
}

func TestTimersSurviveTheEngine(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"nobody works"}`))
	e, _ := w.Entity(consumertest.Things, "default.a")
	require.Contains(t, e.Timers, "deadline")
	w.Stop()
	require.NoError(t, w.Server.Restart())
	w.Eventually("the connection is back", w.NC.IsConnected)
	w.start()
	w.Reaches("a", "broken")
	w.CheckStory("a")
}

// A timer that fires before its time, by the clock of the stream, is not taken: it is armed again and ends the state when
// its time has come.
func TestATimerThatFiresEarlyIsArmedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"nobody works"}`))
	e, _ := w.Entity(consumertest.Things, "default.a")
	deadline := e.Timers["deadline"]
	subject := w.Names.Timer("thing", "default.a", "deadline")
	commands, err := w.JS.Stream(w.Ctx, streams.CommandStream)
	require.NoError(t, err)
	w.Eventually("the schedule", func() bool { return len(w.Stream(streams.CommandStream, subject)) == 1 })
	require.NoError(t, commands.Purge(w.Ctx, jetstream.WithPurgeSubject(subject))) // as the server does when it fires

	body, err := json.Marshal(machines.Elapsed{Timer: "deadline", Armed: deadline.Armed})
	require.NoError(t, err)
	answer := w.Ask(consumertest.ToThing("a", machines.CommandElapsed, string(body)))
	require.Equal(t, machines.Ignored, answer.Outcome)
	require.Equal(t, "working", answer.State)
	require.False(t, w.Reaches("a", "broken").UpdatedAt.Before(deadline.At))
	w.CheckStory("a")
}

// A schedule of a life that is lost, in which the entity had the same version, is none of this life: it fires at another time. The other way round, who was stopped in a life that is
// lost does not replace the schedule of this one.
func TestAScheduleOfALostLifeIsReplaced(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval).start()
	w.Ask(createCommand("a"))
	subject := w.Names.Timer("service", "default.a", "deadline")
	var armed []*jetstream.RawStreamMsg
	w.Eventually("the schedule", func() bool { armed = w.Stream(streams.CommandStream, subject); return len(armed) == 1 })
	w.Stop()
	e, revision := w.Entity(service.Machine, "default.a")
	at := e.Timers["deadline"].At
	lost := &nats.Msg{Subject: subject, Data: armed[0].Data, Header: nats.Header{}}
	streams.Schedule(lost, at.Add(time.Hour), w.Names.Stored("service", "default.a", machines.CommandElapsed))
	_, err := w.JS.PublishMsg(w.Ctx, lost)
	require.NoError(t, err)
	require.NotEqual(t, armed[0].Header.Get("Nats-Schedule"), w.Stream(streams.CommandStream, subject)[0].Header.Get("Nats-Schedule"))
	w.start()
	w.Ask(publish.Command{Machine: "service", Key: "default.a", Name: machines.CommandReconcile})
	w.Eventually("the schedule of the value", func() bool {
		all := w.Stream(streams.CommandStream, subject)
		return len(all) == 1 && all[0].Header.Get("Nats-Schedule") == armed[0].Header.Get("Nats-Schedule")
	})

	p := &partition{e: &Engine{Deps: w.WithDefaults()}}
	timer := func(revision uint64, at time.Time) schedule {
		return schedule{cached: &cachedEntity{m: service.Machine, key: "default.a", revision: revision}, msg: &machines.Message{Kind: machines.KindTimer, Name: "deadline", Version: e.Timers["deadline"].Armed, At: at}}
	}
	require.NoError(t, p.replaceable(w.Ctx, timer(revision+1, at)), "it is the same, sent again")
	require.ErrorIs(t, p.replaceable(w.Ctx, timer(revision+1, at.Add(time.Hour))), publish.ErrConflict, "of a value that the bucket does not have")
	require.NoError(t, p.replaceable(w.Ctx, timer(revision, at.Add(time.Hour))))
}

// An outdated schedule that fires makes the server purge its subject, with a newer schedule if one was just stored.
func TestNewerTimerSurvivesTheFiringOfAnOlderOne(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval).start()
	w.Ask(createCommand("a"))
	commands, err := w.JS.Stream(w.Ctx, streams.CommandStream)
	require.NoError(t, err)
	subject := w.Names.Timer("service", "default.a", "deadline")
	var armed *jetstream.RawStreamMsg
	w.Eventually("the schedule", func() bool { armed, err = commands.GetLastMsgForSubject(w.Ctx, subject); return err == nil })
	require.NoError(t, commands.Purge(w.Ctx, jetstream.WithPurgeSubject(subject)))

	answer := w.Ask(publish.Command{Machine: "service", Key: "default.a", Name: machines.CommandElapsed, Body: []byte(`{"timer":"deadline","armed":0}`)})
	require.Equal(t, machines.Ignored, answer.Outcome)
	w.Eventually("the schedule again", func() bool {
		again, err := commands.GetLastMsgForSubject(w.Ctx, subject)
		return err == nil && again.Header.Get("Nats-Schedule") == armed.Header.Get("Nats-Schedule") && string(again.Data) == string(armed.Data)
	})
}

// The schedules of an entity that has ended do not lie in the stream until they fire.
func TestAnEndCancelsTheTimers(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
	w.Eventually("its schedule", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 1 })
	e, _ := w.Entity(consumertest.Things, "default.a")
	w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "done", Body: fmt.Appendf(nil, `{"attempt":%q,"data":{"how":"x"}}`, e.Effects["work"].ID)})
	w.Ask(consumertest.ToThing("a", "close", ""))
	w.Eventually("no schedule", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 0 })
	require.Less(t, time.Since(e.UpdatedAt), 2*time.Second, "before it would have fired")
}
