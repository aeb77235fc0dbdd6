package orchestrator

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestTasksRunWithinTheLimits(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.does(func(ctx context.Context, _ machines.Task, _ task.Run) machines.Result {
		wait.For(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		return machines.Result{Data: task.Result{Summary: "done"}}
	})
	w.applied(queue.Machine, "default.cluster", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: 3}})
	w.applied(queue.Machine, "default.type-heavy", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: 1}})
	w.repository("a", repository.Spec{})
	w.repository("b", repository.Spec{Concurrency: 2})
	w.repository("c", repository.Spec{})
	w.orchestrate(w.Apart("one"))
	for i := range 12 {
		for _, repo := range []string{"a", "b", "c"} {
			w.task(fmt.Sprintf("%s.t%d", repo, i), task.Spec{Type: []string{"heavy", "light"}[i%2], Priority: 1 + i%9})
		}
	}
	for _, repo := range []string{"a", "b", "c"} {
		w.comes(repository.Machine, repo, repository.Completed)
	}
	w.check(3, map[string]int{"default.b": 2}, map[string]int{"heavy": 1})
}

func TestARepositoryIsClonedAnalysedAndDeleted(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	var clones atomic.Int32
	w.does(func(_ context.Context, _ machines.Task, r task.Run) machines.Result {
		require.Equal(t, "/srv/a", r.Repository.URL)
		if r.Type == "clone" && clones.Add(1) == 2 {
			return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: "no such repository"}}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/a", Analyses: []string{"languages", "sloc"}})
	w.comes(repository.Machine, "a", repository.Ready)
	w.comes(task.Machine, "a.languages", task.Pending)
	for _, id := range []string{"languages", "sloc"} {
		w.applied(task.Machine, "default.a."+id, "run", nil)
	}
	w.comes(repository.Machine, "a", repository.Completed)
	w.applied(repository.Machine, "default.a", "clone", nil)
	w.comes(repository.Machine, "a", repository.Error)
	e, _ := w.Entity(repository.Machine, "default.a")
	require.Equal(t, "the task clone has failed: no such repository", e.LastError.Message)
	w.applied(task.Machine, "default.a.clone", "retry", nil)
	w.comes(repository.Machine, "a", repository.Completed)
	w.applied(repository.Machine, "default.a", "delete", nil)
	w.comes(repository.Machine, "a", repository.Deleted)
	for _, id := range []string{"clone", "languages", "sloc"} {
		require.Equal(t, task.Deleted, w.state(task.Machine, "a."+id))
	}
}

func TestOrderOfDependenciesDelaysAndBatches(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.does(func(_ context.Context, t machines.Task, _ task.Run) machines.Result {
		if t.ID == "fails" {
			return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: "no"}}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{Concurrency: 4})
	w.task("a.last", task.Spec{RunAfter: []string{"middle"}})
	w.task("a.middle", task.Spec{RunAfter: []string{"first"}})
	delayed := time.Now()
	w.applied(task.Machine, "default.a.delayed", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: task.Order{Delay: "1s"}})
	w.task("a.first", task.Spec{})
	w.comes(task.Machine, "a.last", task.Succeeded)
	w.comes(task.Machine, "a.delayed", task.Succeeded)
	require.GreaterOrEqual(t, time.Since(delayed), time.Second)
	var order []string
	for _, e := range w.log() {
		if e.typ == task.EventStarted && e.key != "default.a.delayed" { // which a slow machine starts among them
			order = append(order, e.key)
		}
	}
	require.Equal(t, []string{"default.a.first", "default.a.middle", "default.a.last"}, order)

	w.repository("b", repository.Spec{})
	in := task.Order{Batch: "b1", StopBatch: true}
	w.applied(repository.Machine, "default.b", "pause", repository.PauseBody{Reason: "quota"})
	for i, id := range []string{"ok", "fails", "never", "neither"} {
		w.applied(task.Machine, "default.b."+id, "create", task.CreateBody{Spec: task.Spec{Type: "noop", SortOrder: i}, Run: true, Order: in})
	}
	w.task("b.other", task.Spec{Priority: 9})
	w.whys("b.ok", `its repository is paused.*: quota`)
	w.applied(queue.Machine, "default.all", "pause", queue.PauseBody{Reason: "the disk"})
	w.applied(repository.Machine, "default.b", "resume", nil)
	w.whys("b.ok", `queue default.all is paused.*: the disk`)
	w.applied(queue.Machine, "default.all", "resume", nil)
	w.comes(task.Machine, "b.never", task.Canceled)
	w.comes(task.Machine, "b.neither", task.Canceled)
	w.comes(task.Machine, "b.other", task.Succeeded)
	require.Equal(t, task.Succeeded, w.state(task.Machine, "b.ok"))
	w.comes(repository.Machine, "b", repository.Error)
}

// Who takes over holds what was unique of the tasks that run.
func TestAUniqueKeyIsHeldOverATakeover(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	began, end := make(chan string, 10), make(chan struct{})
	w.does(func(_ context.Context, m machines.Task, _ task.Run) machines.Result {
		began <- m.ID
		<-end
		return machines.Result{Data: task.Result{}}
	})
	stop := w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{Concurrency: 4})
	w.task("a.first", task.Spec{UniqueKey: "u"})
	require.Equal(t, "first", <-began)
	stop()
	w.orchestrate(w.Apart("two"))
	w.task("a.second", task.Spec{UniqueKey: "u"})
	w.task("a.other", task.Spec{})
	require.Equal(t, "other", <-began, "which comes behind it")
	require.Equal(t, task.Queued, w.state(task.Machine, "a.second"))
	close(end)
	w.comes(task.Machine, "a.second", task.Succeeded)
}

// A task that stops its batch cancels what waits, and leaves what runs. The next batch of the same name is another one.
func TestABatchThatIsStoppedLeavesWhatRuns(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	began, end, fail := make(chan string, 10), make(chan struct{}), make(chan struct{})
	w.does(func(_ context.Context, m machines.Task, _ task.Run) machines.Result {
		began <- m.ID
		if m.ID == "fails" {
			<-fail
			return machines.Result{Failure: &machines.Failure{Code: "broken", Message: "for good"}}
		}
		<-end
		return machines.Result{Data: task.Result{Summary: "done"}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{Concurrency: 2})
	in := task.Order{Batch: "nightly", StopBatch: true}
	for i, id := range []string{"fails", "runs", "waits"} {
		w.applied(task.Machine, "default.a."+id, "create", task.CreateBody{Spec: task.Spec{Type: "noop", SortOrder: i}, Run: true, Order: in})
	}
	require.ElementsMatch(t, []string{"fails", "runs"}, []string{<-began, <-began})
	w.comes(task.Machine, "a.runs", task.Running)
	close(fail)
	w.comes(task.Machine, "a.waits", task.Canceled)
	require.Equal(t, task.Running, w.state(task.Machine, "a.runs"))

	w.applied(task.Machine, "default.a.later", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: in})
	require.Equal(t, "later", <-began)
	close(end)
	w.comes(task.Machine, "a.runs", task.Succeeded)
	w.comes(task.Machine, "a.later", task.Succeeded)
}

// What run-all still queues when one of its batch has failed is stopped as well, and a stop that was lost is sent again.
func TestABatchIsStoppedWhileItIsStillQueued(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.does(func(context.Context, machines.Task, task.Run) machines.Result {
		return machines.Result{Failure: &machines.Failure{Code: "broken", Message: "for good"}}
	})
	w.repository("a", repository.Spec{})
	in := task.Order{Batch: task.NewBatch(crand.Text()), StopBatch: true, Delay: "1h"}
	w.applied(task.Machine, "default.a.lost", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: in})
	done := make(chan struct{})
	w.follows(w.Apart("before"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		<-o.Tasks.Ready()
		o.Deps, o.clock = o.WithDefaults(), time.Now
		l := o.begin(ctx)
		l.ledger = &ledger{slots: map[string]*slot{}}
		item, err := o.Tasks.WaitFor(ctx, "default.a.lost", func(index.Item) bool { return true })
		require.NoError(t, err)
		l.task(item, false)
		l.stops["default.a/"+in.Batch] = stop{"default.a.fails", item.Since.Add(-time.Second)}
		l.restop()
		w.comes(task.Machine, "a.lost", task.Canceled)
	})
	<-done

	w.orchestrate(w.Apart("one"))
	w.applied(task.Machine, "default.a.fails", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: task.Order{Batch: in.Batch, StopBatch: true}})
	w.comes(task.Machine, "a.fails", task.Failed)
	w.applied(task.Machine, "default.a.late", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: in})
	w.comes(task.Machine, "a.late", task.Canceled)
}

func TestWhatIsCanceledIsDiscardedAndItsSlotIsFree(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	began, end := make(chan struct{}, 10), make(chan struct{})
	w.does(func(context.Context, machines.Task, task.Run) machines.Result {
		began <- struct{}{}
		<-end
		return machines.Result{Data: task.Result{Summary: "late"}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	<-began
	w.applied(task.Machine, "default.a.one", "cancel", nil)
	require.Equal(t, task.Canceled, w.state(task.Machine, "a.one"), "at once")
	w.task("a.two", task.Spec{})
	<-began // its slot is free although the worker of the first goes on
	close(end)
	w.comes(task.Machine, "a.two", task.Succeeded)
	require.Equal(t, task.Canceled, w.state(task.Machine, "a.one"), "a late result changes nothing")
	w.Eventually("the late result was told", func() bool {
		for _, e := range w.log() {
			if e.key == "default.a.one" && e.typ == task.EventDiscarded {
				return true
			}
		}
		return false
	})
}

// Orchestrators are stopped in the middle of what they do, two of them run at once, engines restart, and workers fail: no limit is exceeded, each attempt ends once, and no
// repository stays on its way.
func TestTakeoversExceedNoLimitAndLoseNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.does(func(ctx context.Context, _ machines.Task, _ task.Run) machines.Result {
		wait.For(ctx, time.Duration(rand.IntN(15))*time.Millisecond)
		switch rand.IntN(10) {
		case 0:
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "again", Retryable: true}}
		case 1:
			return machines.Result{Data: task.Result{Snooze: "10ms"}}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.applied(queue.Machine, "default.cluster", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: 5}})
	const repos, each = 8, 25
	for r := range repos {
		w.repository(fmt.Sprint("r", r), repository.Spec{})
	}
	stops := []func(){w.orchestrate(w.Apart("o0"))}
	for i := range each {
		for r := range repos {
			w.task(fmt.Sprintf("r%d.t%d", r, i), task.Spec{Attempts: 50, Backoff: "5ms"})
		}
		if i%5 == 4 { // another one takes over while the former still acts, which its lease does not prevent
			next := w.orchestrate(w.Apart(fmt.Sprint("o", i)))
			stops[len(stops)-1]()
			stops = append(stops, next)
		}
	}
	for r := range repos {
		w.comes(repository.Machine, fmt.Sprint("r", r), repository.Completed)
	}
	w.check(5, nil, nil)
}

// A pause that was answered holds for a task that is made after it, also on a node that hears of the task first.
func TestAPauseThatWasAnsweredHolds(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS)
	var gate atomic.Pointer[chan struct{}]
	w.reading = func(m *machines.Machine) {
		if shut := gate.Load(); shut != nil && m == repository.Machine {
			<-*shut
		}
	}
	w.repository("a", repository.Spec{})
	w.orchestrate(w.Deps)
	w.task("a.first", task.Spec{})
	w.comes(task.Machine, "a.first", task.Succeeded)
	shut := make(chan struct{})
	gate.Store(&shut)
	open := sync.OnceFunc(func() { gate.Store(nil); close(shut) })
	t.Cleanup(open)
	w.applied(repository.Machine, "default.a", "pause", nil)
	w.task("a.second", task.Spec{})
	w.repository("b", repository.Spec{}) // of which the node hears together with its pause, and later than of its task
	w.applied(repository.Machine, "default.b", "pause", nil)
	w.task("b.first", task.Spec{})
	started := func() bool {
		return w.state(task.Machine, "a.second") != task.Queued || w.state(task.Machine, "b.first") != task.Queued
	}
	require.Never(t, started, time.Second, 10*time.Millisecond, "its repository is paused")
	open()
	paused, _ := w.Entity(repository.Machine, "default.a")
	w.Eventually("the pause is seen", func() bool {
		item, _ := w.last.Repositories.Get("default.a")
		return item.Version >= paused.Version
	})
	require.Never(t, started, time.Second, 10*time.Millisecond, "its repository is paused")
	w.applied(repository.Machine, "default.a", "resume", nil)
	w.comes(task.Machine, "a.second", task.Succeeded)
}

// whys waits until a task waits for a reason.
func (w *world) whys(key, pattern string) {
	w.T.Helper()
	var r Reason
	defer func() { w.T.Log(r) }()
	w.Eventually(key+" waits: "+pattern, func() (is bool) {
		r, _ = Why(w.Ctx, &w.Deps, "default."+key) // nobody may schedule yet
		is, _ = regexp.MatchString("^"+pattern+"$", r.Why)
		return is
	})
}
