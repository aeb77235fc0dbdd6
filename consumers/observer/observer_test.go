package observer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

type lamp struct {
	Seen int `json:"seen"`
}

type seenBody struct {
	What string `json:"what"`
}

// lampMachine has a state that is polled, one that is polled and transitional, and one that is not looked at.
var lampMachine = machines.Define(machines.Definition[lamp]{
	Name: "lamp", Plural: "lamps", Doc: "For tests of the observer.",
	States: []machines.State[lamp]{
		{Name: "off"},
		{Name: "lit", Poll: &machines.Poll{Every: time.Hour}},
		{Name: "warming", Poll: &machines.Poll{Every: time.Minute}, Timeout: &machines.Timeout[lamp]{Input: "late", After: func(*lamp) time.Duration { return time.Hour }}},
		{Name: "gone", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "create", Birth: true},
		{Name: "light"},
		{Name: "warm"},
		{Name: "remove"},
		{Name: "seen", Report: true, Body: seenBody{}},
		{Name: "heat"},
		{Name: "heated", Report: true},
		{Name: "not-heated", Report: true, Body: machines.Failure{}},
		{Name: "late", Report: true},
	},
	Effects: []machines.Effect[lamp]{{Name: "heating", Done: "heated", Failed: "not-heated"}},
	Events:  []machines.EventType{{Name: "lamp.changed", Class: machines.ClassState}},
	Edges: []machines.Edge[lamp]{
		{From: []string{machines.None}, On: "create", To: "off", Emit: []string{"lamp.changed"}},
		{From: []string{"off"}, On: "light", To: "lit", Emit: []string{"lamp.changed"}},
		{From: []string{"off"}, On: "warm", To: "warming", Emit: []string{"lamp.changed"}},
		{From: []string{"off"}, On: "heat", To: "warming", Emit: []string{"lamp.changed"}, Effects: []string{"heating"}},
		{From: []string{"warming"}, On: "heated", To: machines.Same, Emit: []string{"lamp.changed"}},
		{From: []string{"warming"}, On: "not-heated", To: "off", Emit: []string{"lamp.changed"}},
		{From: []string{"lit", "warming"}, On: "seen", To: machines.Same, Emit: []string{"lamp.changed"}, Do: func(t *machines.Tx[lamp]) { t.Data.Seen++ }},
		{From: []string{"warming"}, On: "late", To: "off", Emit: []string{"lamp.changed"}},
		{From: []string{"off", "lit", "warming"}, On: "remove", To: "gone", Emit: []string{"lamp.changed"}},
	},
})

// looker looks as it is told, and remembers how.
type looker struct {
	mu     sync.Mutex
	looks  map[string][]bool // by id: polled or not
	under  map[string]int
	twice  bool
	see    map[string]func(ctx context.Context) (machines.Finding, error) // by id
	notify chan func(string)
	fails  chan error // of Watch
}

func newLooker() *looker {
	return &looker{looks: map[string][]bool{}, under: map[string]int{}, see: map[string]func(context.Context) (machines.Finding, error){}, notify: make(chan func(string), 8), fails: make(chan error)}
}

func (k *looker) Look(ctx context.Context, e *machines.Entity, polled bool) (machines.Finding, error) {
	k.mu.Lock()
	k.looks[e.ID] = append(k.looks[e.ID], polled)
	k.under[e.ID]++
	k.twice = k.twice || k.under[e.ID] > 1
	see := k.see[e.ID]
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.under[e.ID]--
		k.mu.Unlock()
	}()
	if see == nil {
		return machines.Finding{}, nil
	}
	return see(ctx)
}

func (k *looker) Watch(ctx context.Context, notify func(string)) error {
	k.notify <- notify
	select {
	case <-ctx.Done():
		return nil
	case err := <-k.fails:
		return err
	}
}

// doubled reports whether it ever looked at one entity twice at once.
func (k *looker) doubled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.twice
}

func (k *looker) of(id string) []bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.looks[id])
}

// observed runs an engine, an index and an observer.
func observed(t *testing.T, k *looker, o *Observer) *world {
	t.Helper()
	w := setup(t, embedded.Interval, lampMachine).start()
	index := index.New(w.JS, "lamps", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
	w.Also(index.Run)
	o.Deps, o.Machine, o.Looker, o.Index = w.Deps, lampMachine, k, index
	w.Also(o.Run)
	return w
}

func (w *world) lamp(id string, commands ...string) {
	w.T.Helper()
	for _, c := range commands {
		a := w.Ask(publish.Command{Machine: "lamp", Key: "default." + id, Name: c})
		require.Equal(w.T, machines.Applied, a.Outcome)
	}
}

func (w *world) seen(id string) int {
	e, _ := w.Entity(lampMachine, "default."+id)
	if e.Data == nil {
		return -1
	}
	return e.Data.(*lamp).Seen
}

func TestSweepsLookAtWhatHasAPoll(t *testing.T) {
	t.Parallel()
	k := newLooker()
	k.see["quiet"] = func(context.Context) (machines.Finding, error) {
		return machines.Finding{Until: time.Now().Add(time.Hour)}, nil
	}
	w := observed(t, k, &Observer{Every: 30 * time.Millisecond})
	w.lamp("off", "create")
	w.lamp("gone", "create", "light", "remove")
	w.lamp("lit", "create", "light")
	w.lamp("quiet", "create", "light")
	gone := len(k.of("gone"))
	before := len(k.of("lit"))
	w.Eventually("five sweeps", func() bool { return len(k.of("lit")) >= before+5 })
	require.Empty(t, k.of("off"), "it has no poll")
	require.LessOrEqual(t, len(k.of("gone")), gone+1)
	require.NotContains(t, k.of("lit"), false)
	require.Len(t, k.of("quiet"), 1, "it is not worth looking again before its time")
	w.Ask(publish.Command{Machine: "lamp", Key: "default.quiet", Name: "seen", Body: []byte(`{"data":{}}`)})
	w.Eventually("a change is worth a look at any time", func() bool { return len(k.of("quiet")) == 2 })
	require.False(t, k.doubled())
}

func TestFindingsBecomeCommands(t *testing.T) {
	t.Parallel()
	k := newLooker()
	done := false
	k.see["a"] = func(context.Context) (machines.Finding, error) {
		if done { // looks at one entity never overlap
			return machines.Finding{}, nil
		}
		done = true
		return machines.Finding{Input: "seen", Data: seenBody{"light"}}, nil
	}
	k.see["unfit"] = func(context.Context) (machines.Finding, error) {
		return machines.Finding{Input: "seen", Data: make(chan int)}, nil
	}
	w := observed(t, k, &Observer{Every: 20 * time.Millisecond})
	w.lamp("unfit", "create", "light")
	w.lamp("a", "create", "light")
	w.Eventually("it is told", func() bool { return w.seen("a") == 1 })
	var actor string
	for _, m := range w.Stream(streams.EventStream, "instar.evt.lamp.default.a.>") {
		actor = string(m.Data)
	}
	require.Contains(t, actor, `"actor":"observer"`)
	n := len(k.of("a"))
	w.Eventually("more sweeps", func() bool { return len(k.of("a")) > n+3 })
	require.Equal(t, 1, w.seen("a"))
	require.Zero(t, w.seen("unfit"))
}

func TestAWatchTriggersLooks(t *testing.T) {
	t.Parallel()
	k := newLooker()
	w := observed(t, k, &Observer{Every: time.Hour})
	w.lamp("a", "create", "light")
	w.lamp("off", "create")
	notify := <-k.notify
	notify("default.a")
	notify("default.off")
	notify("default.unknown")
	w.Eventually("a look", func() bool { return slices.Contains(k.of("a"), false) })
	k.fails <- errors.New("the world is away")
	notify = <-k.notify // it is watched again
	n := len(k.of("a"))
	notify("default.a")
	w.Eventually("another look", func() bool { return len(k.of("a")) == n+1 })
	require.Empty(t, k.of("off"))
}

// Notifications during a look are followed by one more look, and looks at one entity never overlap.
func TestNeverTwoLooksAtATime(t *testing.T) {
	t.Parallel()
	k := newLooker()
	entered, leave := make(chan struct{}, 64), make(chan struct{})
	k.see["a"] = func(ctx context.Context) (machines.Finding, error) {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return machines.Finding{}, nil
	}
	w := observed(t, k, &Observer{Every: time.Hour, Concurrency: 4})
	w.lamp("a", "create", "light")
	w.lamp("b", "create", "light")
	notify := <-k.notify
	notify("default.a")
	<-entered
	for range 20 {
		notify("default.a")
	}
	n := len(k.of("b"))
	notify("default.b")
	w.Eventually("the others are looked at meanwhile", func() bool { return len(k.of("b")) > n })
	close(leave)
	<-entered
	w.Eventually("one more look", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.under["a"] == 0 && len(k.looks["a"]) >= 2 })
	require.LessOrEqual(t, len(k.of("a")), 3, "not one for each of twenty")
	require.False(t, k.doubled())
}

func TestABadLookerDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	k := newLooker()
	k.see["errs"] = func(context.Context) (machines.Finding, error) { return machines.Finding{}, errors.New("dark") }
	k.see["panics"] = func(context.Context) (machines.Finding, error) { panic("dark") }
	k.see["hangs"] = func(ctx context.Context) (machines.Finding, error) {
		<-ctx.Done()
		return machines.Finding{}, ctx.Err()
	}
	w := observed(t, k, &Observer{Every: 20 * time.Millisecond, Timeout: 200 * time.Millisecond, Concurrency: 2})
	for _, id := range []string{"errs", "panics", "hangs", "well"} {
		w.lamp(id, "create", "light")
	}
	n := len(k.of("well"))
	w.Eventually("all are looked at again and again", func() bool {
		return len(k.of("well")) > n+4 && len(k.of("hangs")) > 2 && len(k.of("errs")) > 2 && len(k.of("panics")) > 2
	})
	require.False(t, k.doubled())
	require.Positive(t, panics.Counts()["looker"])
}

func TestTransitionalStatesAreSweptWithoutCounting(t *testing.T) {
	t.Parallel()
	k := newLooker()
	w := observed(t, k, &Observer{Every: time.Hour, transitEvery: 20 * time.Millisecond}) // less than the first step of early looks, so that there is only one of them
	w.lamp("warm", "create", "warm")
	w.lamp("lit", "create", "light")
	w.Eventually("three looks", func() bool {
		return len(slices.DeleteFunc(k.of("warm"), func(polled bool) bool { return polled })) >= 3
	})
	require.NotContains(t, k.of("lit"), false)
}

func TestTheShortestPollIsThePeriod(t *testing.T) {
	t.Parallel()
	o := &Observer{Machine: lampMachine}
	require.Equal(t, []string{"lit", "warming"}, o.states())
	require.Equal(t, time.Minute, o.Every)
	o = &Observer{Machine: lampMachine, Every: 2 * time.Hour}
	o.states()
	require.Equal(t, 2*time.Hour, o.Every, "as configured")
	none := &Observer{Deps: consumers.Deps{}, Machine: consumertest.Things}
	require.NoError(t, none.Run(t.Context()), "nothing to look at")
}
