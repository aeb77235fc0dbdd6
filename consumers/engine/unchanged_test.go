package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// Any number of commands that change nothing are answered, one after another and many at once, in both ways of ending
// commands, and none of them costs a write of the value.
func TestCommandsThatChangeNothingAreAnswered(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, consumertest.Things).start()
			w.Ask(consumertest.ToThing("a", "create", ""))
			_, before := w.Entity(consumertest.Things, "default.a")
			stale, err := json.Marshal(machines.Report{Attempt: "another", Data: []byte(`{"how":"x"}`)})
			require.NoError(t, err)
			for range 3 * maxRecent {
				require.Equal(t, machines.CodeStale, w.Ask(consumertest.ToThing("a", "done", string(stale))).Refusal.Code)
				require.Equal(t, machines.Unchanged, w.Ask(consumertest.ToThing("a", "idle", "")).Outcome)
			}
			w.manyAtOnce(10_000, 64, func(int) string { return "idle" })
			_, after := w.Entity(consumertest.Things, "default.a")
			require.Equal(t, before, after, "nothing durable is written to say that nothing changed")
		})
	}
}

// Any sequence of commands is answered: applied, unchanged, refused and dead ones mixed at random.
func TestAnySequenceIsAnswered(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	names := []string{"create", "add", "idle", "idle", "idle", "close", "explode", "late", "poison"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	order := make([]string, 3000)
	for i := range order {
		order[i] = names[r.IntN(len(names))]
	}
	w.manyAtOnce(len(order), 32, func(i int) string { return order[i] })
}

// manyAtOnce has senders ask n commands of one entity, and requires an answer to each.
func (w *world) manyAtOnce(n, senders int, name func(i int) string) {
	w.T.Helper()
	next := make(chan int)
	errs := make(chan error, n)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for i := range next {
				cmd := consumertest.ToThing("a", name(i), "")
				if cmd.Name == "add" {
					cmd.Body = []byte(`{"n":1}`)
				}
				if _, err := w.TryAsk(cmd); err != nil {
					errs <- fmt.Errorf("command %d, %s: %w", i, cmd.Name, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(w.T, err)
	}
}

// Who is refused is told the revision of then, whatever else its batch does: nothing is committed for a refusal, so another owner decides about it again, in another batch.
func TestARefusalHasTheRevisionOfThen(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	// ask stores commands while no engine runs, which then takes them in one batch.
	ask := func(names ...string) []machines.Answer {
		answers := make([]machines.Answer, len(names))
		var all sync.WaitGroup
		for i, name := range names {
			body := ""
			if name == "add" {
				body = `{"n":1}`
			}
			cmd := consumertest.ToThing("a", name, body)
			cmd.ID = fmt.Sprintf("%s-%d-%d", name, len(names), i)
			stored := make(chan struct{})
			all.Go(func() {
				m, err := w.Commands.AskMsg(w.Ctx, cmd, func(publish.Result) { close(stored) })
				if err == nil {
					err = json.Unmarshal(m.Data, &answers[i])
				}
				if err != nil {
					t.Error(err)
				}
			})
			<-stored
		}
		w.start()
		all.Wait()
		w.Stop()
		return answers
	}
	got := ask("add", "create", "add")
	require.Equal(t, []string{machines.Refused, machines.Applied, machines.Applied}, []string{got[0].Outcome, got[1].Outcome, got[2].Outcome})
	require.Zero(t, got[0].Revision, "there was nothing")
	before := got[2].Revision
	got = ask("create", "add", "create", "idle")
	require.Equal(t, before, got[0].Revision, "it is refused for what was there before")
	require.Greater(t, got[1].Revision, before)
	require.Equal(t, got[1].Revision, got[2].Revision, "it is refused for what is there then")
	require.Equal(t, got[1].Revision, got[3].Revision)
	again := ask("create", "create") // other keys
	require.Equal(t, got[1].Revision, again[0].Revision)
}

// hang is what the guard of the machine below waits for.
var hang = make(chan struct{})

var hangMachine = machines.Define(machines.Definition[consumertest.Thing]{
	Name: "hanger", Plural: "hangers", Doc: "Its guard does not come back.",
	States: []machines.State[consumertest.Thing]{{Name: "open", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}},
	Events: []machines.EventType{{Name: "hanger.created", Class: machines.ClassState}},
	Edges: []machines.Edge[consumertest.Thing]{{
		From: []string{machines.None}, On: "create", To: "open", Emit: []string{"hanger.created"},
		If: &machines.Guard[consumertest.Thing]{Name: "never", Holds: func(*machines.Tx[consumertest.Thing]) bool { <-hang; return true }},
	}},
})

// A partition that makes no progress is seen, and the engine gives up instead of keeping its node alive.
func TestAStalledPartitionEndsTheEngine(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, hangMachine)
	e := &Engine{Deps: w.Deps, StallAfter: 300 * time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(w.Ctx) }()
	w.Eventually("all partitions", func() bool { return e.Live() == streams.Partitions })
	_, err := w.Commands.Send(w.Ctx, publish.Command{Machine: "hanger", Key: "default.a", Name: "create"})
	require.NoError(t, err)
	w.Eventually("it is seen", func() bool { return e.Stalled() == 1 || len(ended) == 1 })
	require.ErrorIs(t, <-ended, ErrStalled)
	close(hang)
}

// What bounds a commit counts from one to the next, also where nothing is written.
func TestABoundDoesNotOutliveItsCommit(t *testing.T) {
	t.Parallel()
	s := &cachedEntity{m: consumertest.Things}
	for range 2 * MaxOutbox / 192 {
		s.remember(machines.Outcome{ID: streams.MadeUpID("x"), Command: "idle"})
		s.committed()
		require.Less(t, s.size, MaxOutbox)
		require.Zero(t, s.newOutcomes)
	}
}
