package orchestrator

import (
	"context"
	"slices"
	"sync"
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
)

// All tasks of a repository with a URL need its clone: what ends that ends those that wait for it, with a reason, and they come back with it.
func TestNothingWaitsForACloneThatHasEnded(t *testing.T) {
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
	w.task("a.lines", task.Spec{})
	w.comes(task.Machine, "a.lines", task.Failed)
	e, _ := w.Entity(task.Machine, "default.a.lines")
	require.Equal(t, "upstream", e.LastError.Code)
	require.Contains(t, e.LastError.Message, "it runs after clone, which has failed")
	broken.Store(false)
	w.applied(repository.Machine, "default.a", "clone", nil)
	w.comes(task.Machine, "a.lines", task.Succeeded)

	w.applied(task.Machine, "default.a.clone", "reset", nil)
	w.comes(task.Machine, "a.clone", task.Pending)
	w.applied(task.Machine, "default.a.lines", "run", task.RunBody{Again: true})
	w.Eventually("it says what it waits for", func() bool {
		r, err := Why(w.Ctx, &w.Deps, "default.a.lines")
		return err == nil && r == Reason{State: task.Queued, Why: "it runs after default.a.clone, which has not succeeded"}
	})
	w.applied(task.Machine, "default.a.clone", "delete", nil)
	w.comes(task.Machine, "a.lines", task.Canceled)
	e, _ = w.Entity(task.Machine, "default.a.lines")
	require.Contains(t, e.LastError.Message, "it runs after clone, which was deleted")
	w.applied(repository.Machine, "default.a", "clone", nil)
	w.comes(task.Machine, "a.lines", task.Succeeded)
	w.comes(repository.Machine, "a", repository.Completed)
}

// A clone may take as long as clones may, not only as long as any task; what a user says of it, or of its type, comes first.
func TestAClonesTimeIsThatOfClones(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		o.CloneFor = time.Hour
		_ = o.Run(ctx)
	})
	limit := func(key string) string {
		w.comes(task.Machine, key, task.Succeeded)
		e, _ := w.Entity(task.Machine, "default."+key)
		return e.Data.(*task.Data).Limit
	}
	w.repository("a", repository.Spec{URL: "/srv/a"})
	require.Equal(t, "1h0m0s", limit("a.clone"))
	w.task("a.lines", task.Spec{})
	require.Empty(t, limit("a.lines"))
	w.applied(queue.Machine, "default.type-clone", "configure", queue.Settings{Timeout: "2h"})
	w.repository("b", repository.Spec{URL: "/srv/b"})
	require.Equal(t, "2h", limit("b.clone"))
}

// Two nodes that schedule for a moment may see different tasks. They do not tell a repository in turns as fast as they can.
func TestStatesAreToldWithAPause(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		l.tally.Set("default.a", repository.Of{ID: "x", State: task.Queued})
		r, now := l.repos["default.a"], time.Now()
		r.data.Applied, r.told = r.generation, now
		require.Equal(w.T, now.Add(statesEvery), l.tellOne("default.a", r, now))
		require.Zero(w.T, l.asking)
		l.tellOne("default.a", r, now.Add(statesEvery))
		require.Equal(w.T, 1, l.asking)
	})
}

// Tasks that run after each other, or after themselves, are let in by no door; who publishes commands himself gets past these. They do not wait for ever.
func TestTasksInACircleAreCanceled(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.task("a.alone", task.Spec{RunAfter: []string{"alone"}})
	w.task("a.x", task.Spec{RunAfter: []string{"y"}})
	w.task("a.y", task.Spec{RunAfter: []string{"z"}})
	w.task("a.z", task.Spec{RunAfter: []string{"x"}})
	w.task("a.beside", task.Spec{})
	w.task("a.behind", task.Spec{RunAfter: []string{"beside"}})
	for _, name := range []string{"a.alone", "a.x", "a.y", "a.z"} {
		w.comes(task.Machine, name, task.Canceled)
	}
	w.comes(task.Machine, "a.behind", task.Succeeded)
	w.comes(repository.Machine, "a", repository.Ready)
}

// The entry of a type has the timeout and the attempts of tasks that have none.
func TestATaskGetsTheTimeoutAndTheAttemptsOfItsType(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	runs := make(chan task.Run, 2)
	w.does(func(_ context.Context, _ machines.Task, r task.Run) machines.Result {
		runs <- r
		return machines.Result{Data: task.Result{}}
	})
	w.applied(queue.Machine, "default.type-noop", "configure", queue.ConfigureBody{Settings: queue.Settings{Timeout: "7m", Attempts: 5}})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.task("a.bare", task.Spec{})
	r := <-runs
	require.Equal(t, []any{7 * time.Minute, 5}, []any{r.Timeout, r.Attempts})
	w.comes(task.Machine, "a.bare", task.Succeeded)
	w.task("a.own", task.Spec{Timeout: "2m", Attempts: 2})
	r = <-runs
	require.Equal(t, []any{2 * time.Minute, 2}, []any{r.Timeout, r.Attempts})
}

// A limit holds from when it is changed, in both directions, and ends nothing that runs.
func TestALimitIsChangedWhileTasksRun(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	began, ends, seen := make(chan string, 8), map[string]chan struct{}{}, sync.Map{}
	ids := []string{"a.0", "a.1", "a.2", "a.3", "a.4", "a.5"}
	for _, id := range ids {
		ends[id] = make(chan struct{})
	}
	w.does(func(ctx context.Context, m machines.Task, _ task.Run) machines.Result {
		id := "a." + m.ID
		if _, again := seen.LoadOrStore(id+"/"+m.Attempt, true); !again { // a slow machine has it delivered again
			began <- id
		}
		select {
		case <-ends[id]:
		case <-ctx.Done():
		}
		return machines.Result{Data: task.Result{}}
	})
	limit := func(n int) {
		w.applied(queue.Machine, "default.cluster", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: n}})
	}
	limit(2)
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{Concurrency: 100})
	for i, id := range ids {
		w.task(id, task.Spec{SortOrder: i})
	}
	says := func(text string) {
		w.Eventually("the last task waits because "+text, func() bool {
			r, err := Why(w.Ctx, &w.Deps, "default.a.5")
			return err == nil && r.Why == text
		})
	}
	var run []string
	begin := func(n int) {
		for range n {
			w.Eventually("another task begins", func() bool {
				select {
				case id := <-began:
					run = append(run, id)
					return true
				default:
					return false
				}
			})
		}
	}
	begin(2)
	says("queue default.cluster runs 2 of 2")
	limit(4)
	begin(2)
	says("queue default.cluster runs 4 of 4")
	limit(1)
	says("queue default.cluster runs 4 of 1")
	for _, id := range run[:3] {
		close(ends[id])
	}
	says("queue default.cluster runs 1 of 1")
	require.Empty(t, began, "none was started while the limit was exceeded")
	for _, id := range ids {
		if !slices.Contains(run[:3], id) {
			close(ends[id])
		}
	}
	for _, id := range ids {
		w.comes(task.Machine, id, task.Succeeded)
	}
	w.check(4, map[string]int{"default.a": 4}, nil)
}

// What a repository was told may be lost without a trace: the sweep finds that it is not what its tasks make it.
func TestTheSweepRepairsRepositories(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		clear(l.dirty) // it was told, and that is lost
		l.tell()
		require.Zero(t, l.asking)
		l.sweep()
		for _, what := range []string{"that its tasks are made", "what they are like"} {
			l.tell()
			require.Equal(t, 1, l.asking, what)
			l.answered(<-l.answers)
		}
		require.Equal(t, repository.Analyzing, w.state(repository.Machine, "a"))
	})
}

// A holder of the ledger that was deposed writes nothing: what both have granted could exceed every limit.
func TestADeposedHolderOfTheLedgerIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	d := w.Apart("one")
	first, _, err := openLedger(w.Ctx, &d, 1)
	require.NoError(t, err)
	first.add(&slot{Key: "default.a.one", Type: "noop", Enqueue: 1, Start: 1, Version: 1})
	require.NoError(t, first.write(w.Ctx, nil))
	second, _, err := openLedger(w.Ctx, &d, 1)
	require.NoError(t, err)
	require.Contains(t, second.slots, "default.a.one")
	second.add(&slot{Key: "default.a.two", Type: "noop", Enqueue: 1, Start: 1, Version: 1})
	require.NoError(t, second.write(w.Ctx, nil))
	stored, err := w.Bucket(Slots).Get(w.Ctx, ledgerKey)
	require.NoError(t, err)

	first.add(&slot{Key: "default.a.three", Type: "noop", Enqueue: 1, Start: 1, Version: 1})
	require.ErrorContains(t, first.write(w.Ctx, nil), "cannot write the slots")
	now, err := w.Bucket(Slots).Get(w.Ctx, ledgerKey)
	require.NoError(t, err)
	require.Equal(t, string(stored.Value()), string(now.Value()))
}

// Repositories take turns by the weight that they are stored with.
func TestTheWeightOfARepositoryReachesTheScheduler(t *testing.T) {
	t.Parallel()
	now := time.Now()
	o := &Orchestrator{clock: func() time.Time { return now }}
	o.Deps = o.WithDefaults()
	l := o.begin(t.Context())
	l.ledger = &ledger{slots: map[string]*slot{}}
	for name, weight := range map[string]int{"heavy": 3, "light": 0} {
		l.repository(index.Item{Key: "default." + name, State: repository.Ready, Version: 1, Value: &repository.Data{Spec: repository.Spec{Concurrency: 100, Weight: weight}}}, false)
		for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
			l.task(index.Item{Key: "default." + name + "." + id, State: task.Queued, Version: 1, Value: &task.Brief{Type: "noop", Enqueue: 1, Queued: now}}, false)
		}
	}
	of := map[string]int{}
	for _, granted := range l.sched.Next(now, 8) {
		of[granted.Repository]++
	}
	require.Equal(t, map[string]int{"default.heavy": 6, "default.light": 2}, of)
}

func TestAPauseSaysByWhomAndWhy(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"quota", "the disk"} {
		require.Equal(t, " by ann: "+reason, pausedBy("ann", reason))
	}
	require.Empty(t, pausedBy("", ""))
}
