package engine

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

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestWriteByHandRestartsThePartition(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	e, _ := w.Entity(consumertest.Things, "default.a")
	e.Data.(*consumertest.Thing).Sum = 100
	raw, err := json.Marshal(&e)
	require.NoError(t, err)
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Put(w.Ctx, "default.a", raw)
	require.NoError(t, err)

	a := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, machines.Applied, a.Outcome)
	require.EqualValues(t, 3, a.Version)
	require.Equal(t, 101, w.Sum("a"))
	w.CheckStory("a")
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
			w := setup(t, embedded.Interval, consumertest.Things)
			bucket, err := w.JS.KeyValue(w.Ctx, "things")
			require.NoError(t, err)
			_, err = bucket.Put(w.Ctx, "default.a", []byte(value))
			require.NoError(t, err)
			w.start()
			a := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
			require.Equal(t, machines.CodeParked, a.Refusal.Code)
			var letters []publish.DeadLetter // it is published beside the answer
			w.Eventually("a dead letter", func() bool {
				var err error
				letters, err = w.DeadLetters().List(w.Ctx, 0, 10)
				return err == nil && len(letters) == 1
			})
			require.Equal(t, "default.a", letters[0].Key)
			got, err := bucket.Get(w.Ctx, "default.a")
			require.NoError(t, err)
			require.Equal(t, value, string(got.Value()), "the value is left alone")
			for i := range 40 { // some of them share its partition
				require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing(fmt.Sprintf("ok-%d", i), "create", "")).Outcome)
			}
		})
	}
}

func TestPoisonGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).speculating().start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	a := w.Ask(consumertest.ToThing("a", "poison", ""))
	require.Equal(t, machines.Dead, a.Outcome)
	require.EqualValues(t, 1, a.Version)
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":2}`)).Outcome)
	w.CheckStory("a")
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, letters[0].Reason, "poison")
	require.Positive(t, panics.Counts()["machine"])
	require.True(t, strings.HasSuffix(letters[0].Subject, ".thing.default.a.poison"))

	require.NoError(t, w.DeadLetters().Redrive(w.Ctx, letters[0].Seq)) // it is poison still
	w.Eventually("it comes back", func() bool {
		again, err := w.DeadLetters().List(w.Ctx, letters[0].Seq, 10)
		return err == nil && len(again) == 1
	})
	require.ErrorIs(t, w.DeadLetters().Redrive(w.Ctx, letters[0].Seq), publish.ErrNoLetter)
}

func TestStrangeSubjectsAreBuriedAndOthersGoOn(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	for _, subject := range []string{"instar.cmd.thing.default.UPPER.create", "instar.cmd.ghost.default.a.create", "instar.cmd.thing.default.p.a.create", "instar.cmd.thing.default.-a.add"} {
		ack, err := w.JS.Publish(w.Ctx, subject, nil)
		require.NoError(t, err)
		require.NotZero(t, ack.Sequence)
	}
	w.Eventually("four letters", func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 4
	})
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "create", "")).Outcome)
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	for _, body := range []string{`{"n":`, `{"n":"x"}`, `{"n":1,"m":2}`, `[1]`, `{"n":-1}`, `{"n":1} {"n":2}`, strings.Repeat("[", 20000), `{"n":1, "x":"` + strings.Repeat("y", consumers.MaxBody) + `"}`} {
		a := w.Ask(consumertest.ToThing("a", "add", body))
		require.Equal(t, machines.Refused, a.Outcome, "%.40s", body)
		require.Equal(t, machines.CodeValidation, a.Refusal.Code, "%.40s", body)
	}
	require.Equal(t, machines.CodeNotFound, w.Ask(consumertest.ToThing("a", "explode", "")).Refusal.Code)
	require.Equal(t, machines.CodeNotFound, w.Ask(consumertest.ToThing("ghost", "add", `{"n":1}`)).Refusal.Code)
	require.Equal(t, 0, w.Sum("a"))
}

func TestExpectedRevision(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	created := w.Ask(consumertest.ToThing("a", "create", ""))
	cmd := consumertest.ToThing("a", "add", `{"n":1}`)
	cmd.Expect = fmt.Sprint(created.Revision)
	require.Equal(t, machines.Applied, w.Ask(cmd).Outcome)
	require.Equal(t, machines.CodePrecondition, w.Ask(cmd).Refusal.Code)
	cmd.Expect = "soon"
	require.Equal(t, machines.CodeValidation, w.Ask(cmd).Refusal.Code)
}

// Two clients' commands for one entity arrive while the engine stands still: all are taken in one batch, in order.
func TestBatchOfOneEntityIsOneWrite(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, consumertest.Things)
			_, err := w.Commands.Send(w.Ctx, consumertest.ToThing("a", "create", ""))
			require.NoError(t, err)
			for i := range 20 {
				body := fmt.Sprintf(`{"n":%d}`, i%5-1) // every fifth is refused
				_, err := w.Commands.Send(w.Ctx, consumertest.ToThing("a", "add", body))
				require.NoError(t, err)
			}
			w.start()
			w.Eventually("all are taken", func() bool { e, _ := w.Entity(consumertest.Things, "default.a"); return e.Version == 17 })
			require.Equal(t, 4*(0+1+2+3), w.Sum("a"))
			w.CheckStory("a")
			refused := slices.DeleteFunc(w.Events("thing", "default.a"), func(s string) bool { return !strings.HasSuffix(s, "command.refused") })
			require.Len(t, refused, 4)
		})
	}
}

func TestServerRestartUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).speculating().start()
	const entities, each = 12, 25
	var all sync.WaitGroup
	for n := range entities {
		all.Go(func() {
			id := fmt.Sprintf("e-%d", n)
			w.Persist(consumertest.ToThing(id, "create", ""), "c")
			for i := range each {
				w.Persist(consumertest.ToThing(id, "add", `{"n":1}`), fmt.Sprint(i))
			}
		})
	}
	w.Eventually("some progress", func() bool { return w.SumSafely("e-0") > 2 })
	for range 3 {
		require.NoError(t, w.Server.Restart())
	}
	all.Wait()
	for n := range entities {
		id := fmt.Sprintf("e-%d", n)
		require.Equal(t, each, w.Sum(id))
		w.CheckStory(id)
	}
}

// Two processes on one NATS: the lease lets one of them work, and the other takes over.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	owner := func(node string) (stop func()) {
		ctx, cancel := context.WithCancel(w.Ctx)
		var done sync.WaitGroup
		done.Go(func() {
			o := &cluster.Role{JS: w.JS, Node: node, Life: 2 * time.Second, Log: w.Log}
			_ = o.Run(ctx, func(ctx context.Context) error { return (&Engine{Deps: w.Deps}).Run(ctx) })
		})
		return func() { cancel(); done.Wait() }
	}
	stopOne := owner("one")
	w.Ask(consumertest.ToThing("a", "create", ""))
	stopTwo := owner("two")
	defer stopTwo()
	for range 20 {
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	}
	stopOne()
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, 21, w.Sum("a"))
	w.CheckStory("a")
}

// Without the lease, two engines take from the same consumers. They hinder each other, and lose nothing.
func TestTwoEnginesLoseNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).speculating().start()
	ctx, cancel := context.WithCancel(w.Ctx)
	w.Running.Go(func() { _ = (&Engine{Deps: w.Deps, Indexes: w.Indexes}).Run(ctx) })
	var all sync.WaitGroup
	var sent atomic.Int64
	for n := range 4 {
		all.Go(func() {
			id := fmt.Sprintf("e-%d", n)
			w.Persist(consumertest.ToThing(id, "create", ""), "c")
			for i := range 10 {
				w.Persist(consumertest.ToThing(id, "add", `{"n":1}`), fmt.Sprint(i))
				if sent.Add(1) == 20 {
					cancel()
				}
			}
		})
	}
	all.Wait()
	cancel()
	for n := range 4 {
		require.Equal(t, 10, w.Sum(fmt.Sprintf("e-%d", n)))
		w.CheckStory(fmt.Sprintf("e-%d", n))
	}
}

// The consumers are gone with the server. That is noticed by the new connection, not by missing heartbeats.
func TestCommandsGoOnSoonAfterTheServerIsBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("all partitions", func() bool { return w.engine.Live() == streams.Partitions })
	require.NoError(t, w.Server.Restart())
	w.Eventually("the connection is back", w.NC.IsConnected)
	began := time.Now()
	w.Persist(consumertest.ToThing("a", "add", `{"n":1}`), "after")
	t.Logf("the next command was taken after %s", time.Since(began))
}
