package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// What queued tasks wait for gets in where a queue and a repository have as many as they may: it could never run otherwise, and neither could they.
func TestNoCapKeepsOutWhatOthersWaitFor(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{URL: "/srv/a", Cap: 2})
	w.applied(queue.Machine, "default.all", "configure", queue.ConfigureBody{Settings: queue.Settings{Cap: 2}})
	for _, id := range []string{"clone", "first", "other"} {
		w.applied(task.Machine, "default.a."+id, "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	}
	w.task("a.one", task.Spec{RunAfter: []string{"first"}})
	w.task("a.two", task.Spec{})
	done := make(chan struct{})
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		for _, ix := range []*index.Index{o.Repositories, o.Queues} {
			<-ix.Ready()
		}
		b := &Board{Tasks: o.Tasks, Queues: o.Queues, Repositories: o.Repositories}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = b.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		full := func(id string) bool { return b.Obstacle("default.a."+id, &task.Brief{Type: "noop"}).Full != "" }
		w.Eventually("it is full", func() bool { return full("other") })
		require.False(t, full("clone"), "both wait for it")
		require.False(t, full("first"), "one waits for it")
		require.True(t, full("other"))
	})
	<-done
}

// All tasks run after the clone, so it runs after none of them.
func TestTheCloneRunsAfterNothing(t *testing.T) {
	t.Parallel()
	b := &Board{}
	require.Contains(t, b.Unfit("default.a.clone", []string{"one"}, nil), "the task clone runs after none")
}

// Of very many tasks behind one, none is looked at while that only says how far it is, and each as often as something has changed for it.
func TestTasksBehindOneAreLeftAloneUntilItEnds(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	const many = 20
	w.repository("a", repository.Spec{URL: "/srv/a"})
	w.task("a.clone", task.Spec{})
	for i := range many {
		w.task(fmt.Sprint("a.t", i), task.Spec{})
	}
	done := make(chan struct{})
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		<-o.Repositories.Ready()
		<-o.Tasks.Ready()
		o.Deps, o.clock = o.WithDefaults(), time.Now
		l := o.begin(ctx)
		l.ledger = &ledger{slots: map[string]*slot{}}
		at := func(id string, states ...string) index.Item {
			item, err := o.Tasks.WaitFor(ctx, "default.a."+id, func(i index.Item) bool { return slices.Contains(states, i.State) })
			require.NoError(t, err)
			return item
		}
		repo, _ := o.Repositories.Get("default.a")
		l.repository(repo, false)
		l.repos["default.a"].cloned = repo.Generation
		l.task(at("clone", task.Queued), false)
		for i := range many {
			l.task(at(fmt.Sprint("t", i), task.Queued), false)
		}
		l.settles = 0
		clone := at("clone", task.Queued)
		clone.Version++ // it says how far it is
		l.task(clone, false)
		l.resettle()
		require.Zero(t, l.settles)

		w.applied(task.Machine, "default.a.clone", "cancel", nil)
		l.task(at("clone", task.Canceled), false)
		require.Equal(t, many, l.settles, "each is told that it ends")
		for i := range many {
			l.task(at(fmt.Sprint("t", i), task.Canceled), false)
		}
		require.Equal(t, 2*many, l.settles, "each has ended")
		l.resettle()
		require.Equal(t, 2*many, l.settles, "nothing is to be told")
		w.applied(task.Machine, "default.a.clone", "run", nil)
		l.task(at("clone", task.Queued), false)
		require.Equal(t, 3*many, l.settles, "each is queued again")
		for i := range many {
			at(fmt.Sprint("t", i), task.Queued)
		}
	})
	<-done
}

// The time before which a task is not to start is that of when it comes back, too.
func TestATaskThatComesBackKeepsItsTime(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.applied(task.Machine, "default.a.first", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: task.Order{Delay: "1h"}})
	at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	w.applied(task.Machine, "default.a.second", "create", task.CreateBody{Spec: task.Spec{Type: "noop", RunAfter: []string{"first"}}, Run: true, Order: task.Order{NotBefore: at}})
	w.applied(task.Machine, "default.a.first", "cancel", nil)
	w.comes(task.Machine, "a.second", task.Canceled)
	w.applied(task.Machine, "default.a.first", "run", nil)
	w.Eventually("it comes back", func() bool { return w.state(task.Machine, "a.second") != task.Canceled })
	e, _ := w.Entity(task.Machine, "default.a.second")
	require.Equal(t, at.String(), e.Data.(*task.Data).NotBefore.UTC().String())
}

// A clone that fails stops its batch. What waits for it ends by that, and not as one that was canceled by somebody: it comes back with the next clone.
func TestABatchThatTheCloneStopsComesBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	var broken atomic.Bool
	broken.Store(true)
	w.does(func(_ context.Context, m machines.Task, _ task.Run) machines.Result {
		if m.ID == repository.CloneTask && broken.Load() {
			return machines.Result{Failure: &machines.Failure{Code: "broken", Message: "for good"}}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/a"})
	w.comes(task.Machine, "a.clone", task.Failed)
	w.applied(repository.Machine, "default.a", "pause", nil)
	order := task.Order{Batch: task.NewBatch(rand.Text()), StopBatch: true}
	w.applied(task.Machine, "default.a.clone", "retry", task.RunBody{Order: order})
	ids := []string{"a.lines", "a.next", "a.other", "a.another", "a.late"}
	create := func(id string, after ...string) {
		w.applied(task.Machine, "default."+id, "create", task.CreateBody{Spec: task.Spec{Type: "noop", RunAfter: after}, Run: true, Order: order})
	}
	create("a.lines")
	create("a.next", "lines")
	create("a.other")
	create("a.another", "other")
	w.applied(repository.Machine, "default.a", "resume", nil)
	w.comes(task.Machine, "a.other", task.Failed)
	create("a.late")
	for _, id := range ids {
		w.Eventually(id+" ends", func() bool { return w.state(task.Machine, id) != task.Queued })
		require.Equal(t, task.Failed, w.state(task.Machine, id), "it is not canceled")
	}
	broken.Store(false)
	w.applied(repository.Machine, "default.a", "clone", nil)
	for _, id := range ids {
		w.comes(task.Machine, id, task.Succeeded)
	}
}

// A task that is created together with its repository waits for the clone, which nobody has asked for yet: that is no clone that was deleted.
func TestATaskThatComesWithItsRepositoryWaitsForTheClone(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{URL: "/srv/a"})
	w.task("a.lines", task.Spec{})
	w.loads(w.Apart("one"), func(ctx context.Context, l *loop) {
		l.resettle()
		_, err := l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: "default.a.lines", Name: task.ReportProgress, Body: report(task.Progress{})}) // behind whatever was sent
		require.NoError(t, err)
		require.Equal(t, task.Queued, w.state(task.Machine, "a.lines"))
	})
	w.orchestrate(w.Apart("two"))
	w.comes(task.Machine, "a.lines", task.Succeeded)
	for _, e := range w.log() {
		require.NotEqual(t, task.EventCanceled, e.typ, e.key)
	}
}

// Once the clone of a generation was asked for, what becomes of it counts, although other tasks of the repository cannot be made.
func TestTheCloneCountsOnceItWasAskedFor(t *testing.T) {
	t.Parallel()
	o := &Orchestrator{clock: time.Now}
	o.Deps = o.WithDefaults()
	l := o.begin(t.Context())
	l.repos["default.a"] = &repo{generation: 2, cloned: 1, data: &repository.Data{}}
	require.True(t, l.cloning("default.a", true, time.Time{}))
	l.repos["default.a"].cloned = 2
	require.False(t, l.cloning("default.a", true, time.Time{}))
}

// Of two tasks with one unique key that come at once, one gets in, whether it was seen or not, and what is seen of it from before takes nothing away.
func TestAUniqueKeyIsGivenWithThePlace(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.applied(task.Machine, "default.a.seen", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	done := make(chan struct{})
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		for _, ix := range []*index.Index{o.Tasks, o.Repositories, o.Queues} {
			<-ix.Ready()
		}
		item, err := o.Tasks.WaitFor(ctx, "default.a.seen", func(i index.Item) bool { return i.State == task.Pending })
		require.NoError(t, err)
		b := &Board{Tasks: o.Tasks, Queues: o.Queues, Repositories: o.Repositories}
		place := func(id string) (*Place, Obstacle) {
			return b.Place("default.a."+id, &task.Brief{Type: "noop", UniqueKey: "k"})
		}
		got := make(chan *Place, 2)
		for _, id := range []string{"one", "two"} {
			go func() { p, _ := place(id); got <- p }()
		}
		first, second := <-got, <-got
		require.NotEqual(t, first == nil, second == nil)
		cmp.Or(first, second).Left(nil, nil)
		_, o2 := place("seen")
		require.Zero(t, o2)
		b.take(item, false)
		_, o2 = place("one")
		require.Equal(t, Obstacle{Holder: "default.a.seen", Asked: true}, o2)
		_, o2 = place("seen")
		require.Zero(t, o2, "its own stands not in its way")
	})
	<-done
}
