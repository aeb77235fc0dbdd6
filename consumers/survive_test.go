package consumers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func toThing(id, name, body string) streams.Command {
	return streams.Command{Machine: "thing", Key: "default." + id, Name: name, Actor: "test", Body: []byte(body)}
}

func (w *world) sum(id string) int {
	e, _ := w.entity(thingMachine, "default."+id)
	if e.Data == nil {
		return -1
	}
	return e.Data.(*thing).Sum
}

// checkStory requires that the events of a thing are one run of versions without gap or repetition.
func (w *world) checkStory(id string) {
	w.t.Helper()
	e, _ := w.entity(thingMachine, "default."+id)
	w.eventually("all events of "+id, func() bool {
		evs := w.events("thing", "default."+id)
		return len(evs) > 0 && strings.HasPrefix(evs[len(evs)-1], fmt.Sprint(e.Version)+" ")
	})
	version := uint64(0)
	for _, ev := range w.events("thing", "default."+id) {
		var v uint64
		var name string
		_, err := fmt.Sscan(ev, &v, &name)
		require.NoError(w.t, err)
		if strings.HasPrefix(name, "command.") {
			continue
		}
		require.Equal(w.t, version+1, v, "events of %s: %v", id, w.events("thing", "default."+id))
		version = v
	}
}

func TestWriteByHandRestartsThePartition(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "add", `{"n":1}`))
	e, _ := w.entity(thingMachine, "default.a")
	e.Data.(*thing).Sum = 100
	raw, err := json.Marshal(&e)
	require.NoError(t, err)
	bucket, err := w.JS.KeyValue(w.ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Put(w.ctx, "default.a", raw)
	require.NoError(t, err)

	a := w.ask(toThing("a", "add", `{"n":1}`))
	require.Equal(t, machines.Applied, a.Outcome)
	require.EqualValues(t, 3, a.Version)
	require.Equal(t, 101, w.sum("a"))
	w.checkStory("a")
}

func TestUnreadableValueParksOneEntity(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"corrupt": `{"schema":1,`,
		"newer":   `{"schema":99,"machine":"thing","namespace":"default","id":"a","state":"open","version":1}`,
		"foreign": `{"schema":1,"machine":"other","namespace":"default","id":"a","state":"open","version":1}`,
		"strange": `{"schema":1,"machine":"thing","namespace":"default","id":"a","state":"nowhere","version":1}`,
		"moved":   `{"schema":1,"machine":"thing","namespace":"default","id":"b","state":"open","version":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, streams.Interval, thingMachine)
			bucket, err := w.JS.KeyValue(w.ctx, "things")
			require.NoError(t, err)
			_, err = bucket.Put(w.ctx, "default.a", []byte(value))
			require.NoError(t, err)
			w.start()
			a := w.ask(toThing("a", "add", `{"n":1}`))
			require.Equal(t, machines.CodeParked, a.Refusal.Code)
			var letters []streams.DeadLetter // it is published beside the answer
			w.eventually("a dead letter", func() bool {
				var err error
				letters, err = w.dead().List(w.ctx, 0, 10)
				return err == nil && len(letters) == 1
			})
			require.Equal(t, "default.a", letters[0].Key)
			got, err := bucket.Get(w.ctx, "default.a")
			require.NoError(t, err)
			require.Equal(t, value, string(got.Value()), "the value is left alone")
			for i := range 40 { // some of them share its partition
				require.Equal(t, machines.Applied, w.ask(toThing(fmt.Sprintf("ok-%d", i), "create", "")).Outcome)
			}
		})
	}
}

func TestPoisonGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).guessing().start()
	w.ask(toThing("a", "create", ""))
	a := w.ask(toThing("a", "poison", ""))
	require.Equal(t, machines.Dead, a.Outcome)
	require.EqualValues(t, 1, a.Version)
	require.Equal(t, machines.Applied, w.ask(toThing("a", "add", `{"n":2}`)).Outcome)
	w.checkStory("a")
	letters, err := w.dead().List(w.ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, letters[0].Reason, "poison")
	require.Positive(t, panics.Counts()["machine"])
	require.True(t, strings.HasSuffix(letters[0].Subject, ".thing.default.a.poison"))

	require.NoError(t, w.dead().Redrive(w.ctx, letters[0].Seq)) // it is poison still
	w.eventually("it comes back", func() bool {
		again, err := w.dead().List(w.ctx, letters[0].Seq, 10)
		return err == nil && len(again) == 1
	})
	require.ErrorIs(t, w.dead().Redrive(w.ctx, letters[0].Seq), streams.ErrNoLetter)
}

func TestStrangeSubjectsAreBuriedAndOthersGoOn(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	for _, subject := range []string{"instar.cmd.thing.default.UPPER.create", "instar.cmd.ghost.default.a.create", "instar.cmd.thing.default.p.a.create", "instar.cmd.thing.default.-a.add"} {
		ack, err := w.JS.Publish(w.ctx, subject, nil)
		require.NoError(t, err)
		require.NotZero(t, ack.Sequence)
	}
	w.eventually("four letters", func() bool {
		letters, err := w.dead().List(w.ctx, 0, 10)
		return err == nil && len(letters) == 4
	})
	require.Equal(t, machines.Applied, w.ask(toThing("a", "create", "")).Outcome)
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	for _, body := range []string{`{"n":`, `{"n":"x"}`, `{"n":1,"m":2}`, `[1]`, `{"n":-1}`, `{"n":1} {"n":2}`, strings.Repeat("[", 20000), `{"n":1, "x":"` + strings.Repeat("y", maxBody) + `"}`} {
		a := w.ask(toThing("a", "add", body))
		require.Equal(t, machines.Refused, a.Outcome, "%.40s", body)
		require.Equal(t, machines.CodeValidation, a.Refusal.Code, "%.40s", body)
	}
	require.Equal(t, machines.CodeNotFound, w.ask(toThing("a", "explode", "")).Refusal.Code)
	require.Equal(t, machines.CodeNotFound, w.ask(toThing("ghost", "add", `{"n":1}`)).Refusal.Code)
	require.Equal(t, 0, w.sum("a"))
}

func TestExpectedRevision(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	created := w.ask(toThing("a", "create", ""))
	cmd := toThing("a", "add", `{"n":1}`)
	cmd.Expect = fmt.Sprint(created.Revision)
	require.Equal(t, machines.Applied, w.ask(cmd).Outcome)
	require.Equal(t, machines.CodePrecondition, w.ask(cmd).Refusal.Code)
	cmd.Expect = "soon"
	require.Equal(t, machines.CodeValidation, w.ask(cmd).Refusal.Code)
}

// Two clients' commands for one entity arrive while the engine stands still: all are taken in one batch, in order.
func TestBatchOfOneEntityIsOneWrite(t *testing.T) {
	t.Parallel()
	for _, profile := range []streams.Profile{streams.Interval, streams.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, thingMachine)
			_, err := w.Commands.Send(w.ctx, toThing("a", "create", ""))
			require.NoError(t, err)
			for i := range 20 {
				body := fmt.Sprintf(`{"n":%d}`, i%5-1) // every fifth is refused
				_, err := w.Commands.Send(w.ctx, toThing("a", "add", body))
				require.NoError(t, err)
			}
			w.start()
			w.eventually("all are taken", func() bool { e, _ := w.entity(thingMachine, "default.a"); return e.Version == 17 })
			require.Equal(t, 4*(0+1+2+3), w.sum("a"))
			w.checkStory("a")
			refused := slices.DeleteFunc(w.events("thing", "default.a"), func(s string) bool { return !strings.HasSuffix(s, "command.refused") })
			require.Len(t, refused, 4)
		})
	}
}

func TestServerRestartUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).guessing().start()
	const entities, each = 12, 25
	var all sync.WaitGroup
	for n := range entities {
		all.Go(func() {
			id := fmt.Sprintf("e-%d", n)
			w.persist(toThing(id, "create", ""), "c")
			for i := range each {
				w.persist(toThing(id, "add", `{"n":1}`), fmt.Sprint(i))
			}
		})
	}
	w.eventually("some progress", func() bool { return w.sumSafely("e-0") > 2 })
	for range 3 {
		require.NoError(t, w.server.Restart())
	}
	all.Wait()
	for n := range entities {
		id := fmt.Sprintf("e-%d", n)
		require.Equal(t, each, w.sum(id))
		w.checkStory(id)
	}
}

func (w *world) sumSafely(id string) int {
	m, err := streams.Last(w.ctx, w.NC, "KV_things", "$KV.things.default."+id)
	if err != nil || m == nil {
		return -1
	}
	e, err := thingMachine.Decode(m.Data)
	if err != nil {
		return -1
	}
	return e.Data.(*thing).Sum
}

// persist asks again under the same id until there is an answer, as a client should.
func (w *world) persist(cmd streams.Command, id string) {
	cmd.ID = id
	for {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		raw, err := w.Commands.Ask(ctx, cmd)
		cancel()
		if err == nil {
			var a machines.Answer
			if err := json.Unmarshal(raw, &a); err != nil || a.Outcome != machines.Applied {
				w.t.Errorf("%s %s %s: %s", cmd.Key, cmd.Name, id, raw)
			}
			return
		}
		if !wait.Backoff(w.ctx, 0) {
			return
		}
	}
}

// Two processes on one NATS: the lease lets one of them work, and the other takes over.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine)
	owner := func(node string) (stop func()) {
		ctx, cancel := context.WithCancel(w.ctx)
		var done sync.WaitGroup
		done.Go(func() {
			o := &Owner{JS: w.JS, Node: node, Life: 2 * time.Second, Log: w.Log}
			_ = o.Run(ctx, func(ctx context.Context) error { return (&Engine{Deps: w.Deps}).Run(ctx) })
		})
		return func() { cancel(); done.Wait() }
	}
	stopOne := owner("one")
	w.ask(toThing("a", "create", ""))
	stopTwo := owner("two")
	defer stopTwo()
	for range 20 {
		w.ask(toThing("a", "add", `{"n":1}`))
	}
	stopOne()
	w.ask(toThing("a", "add", `{"n":1}`))
	require.Equal(t, 21, w.sum("a"))
	w.checkStory("a")
}

// Without the lease, two engines take from the same consumers. They hinder each other, and lose nothing.
func TestTwoEnginesLoseNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).guessing().start()
	ctx, cancel := context.WithCancel(w.ctx)
	w.running.Go(func() { _ = (&Engine{Deps: w.Deps, Indexes: w.indexes}).Run(ctx) })
	var all sync.WaitGroup
	var sent atomic.Int64
	for n := range 4 {
		all.Go(func() {
			id := fmt.Sprintf("e-%d", n)
			w.persist(toThing(id, "create", ""), "c")
			for i := range 10 {
				w.persist(toThing(id, "add", `{"n":1}`), fmt.Sprint(i))
				if sent.Add(1) == 20 {
					cancel()
				}
			}
		})
	}
	all.Wait()
	cancel()
	for n := range 4 {
		require.Equal(t, 10, w.sum(fmt.Sprintf("e-%d", n)))
		w.checkStory(fmt.Sprintf("e-%d", n))
	}
}

// The consumers are gone with the server. That is noticed by the new connection, not by missing heartbeats.
func TestCommandsGoOnSoonAfterTheServerIsBack(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.eventually("all partitions", func() bool { return w.engine.Live() == streams.Partitions })
	require.NoError(t, w.server.Restart())
	w.eventually("the connection is back", w.NC.IsConnected)
	began := time.Now()
	w.persist(toThing("a", "add", `{"n":1}`), "after")
	t.Logf("the next command was taken after %s", time.Since(began))
}
