package orchestrator

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A clone that was run again and is canceled leaves the repository cloned: what waited for it runs.
func TestACloneThatIsCanceledHoldsNothingUp(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	var again atomic.Bool
	began := make(chan struct{}, 1)
	w.does(func(ctx context.Context, m machines.Task, _ task.Run) machines.Result {
		if m.ID == repository.CloneTask && again.Load() {
			began <- struct{}{}
			<-ctx.Done()
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/a", Analyses: []string{"lines"}, Concurrency: 2})
	w.comes(repository.Machine, "a", repository.Ready)
	w.comes(task.Machine, "a.lines", task.Pending)
	again.Store(true)
	w.applied(repository.Machine, "default.a", "clone", nil)
	<-began
	w.applied(task.Machine, "default.a.lines", "run", nil)
	w.comes(repository.Machine, "a", repository.Cloning)
	w.applied(task.Machine, "default.a.clone", "cancel", nil)
	w.comes(task.Machine, "a.lines", task.Succeeded)
	w.comes(repository.Machine, "a", repository.Completed)
}

// An analysis is told of the last clone of its repository, wherever that ran: what its node has fetched for an earlier one is old.
func TestAnAnalysisKnowsTheLastClone(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	clones := make(chan uint64, 4)
	analyses := make(chan uint64, 4)
	w.does(func(_ context.Context, m machines.Task, r task.Run) machines.Result {
		if m.ID == repository.CloneTask {
			clones <- r.Repository.Clone
		} else {
			analyses <- r.Repository.Clone
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/a"})
	w.task("a.lines", task.Spec{})
	first := <-clones
	require.Equal(t, first, <-analyses)
	w.comes(repository.Machine, "a", repository.Completed)
	w.applied(repository.Machine, "default.a", "clone", nil)
	second := <-clones
	require.Greater(t, second, first)
	w.comes(repository.Machine, "a", repository.Completed)
	w.applied(task.Machine, "default.a.lines", "run", task.RunBody{Again: true})
	require.Equal(t, second, <-analyses)
}

// What is cloned in the end is what the repository was told last, also when it was told while the clone ran.
func TestAURLThatChangesWhileTheCloneRuns(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	began := make(chan string, 8)
	end := make(chan struct{})
	w.does(func(ctx context.Context, m machines.Task, r task.Run) machines.Result {
		began <- r.Repository.URL
		if r.Repository.URL != "/srv/right" {
			select {
			case <-ctx.Done():
			case <-end:
			}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/wrong"})
	require.Equal(t, "/srv/wrong", <-began)
	w.applied(repository.Machine, "default.a", "configure", repository.ConfigureBody{Spec: repository.Spec{URL: "/srv/right"}})
	require.Equal(t, "/srv/right", <-began)
	close(end)
	w.comes(task.Machine, "a.clone", task.Succeeded)
	w.comes(repository.Machine, "a", repository.Ready)
	e, _ := w.Entity(task.Machine, "default.a.clone")
	require.Equal(t, "/srv/right", e.Data.(*task.Data).Source.URL)
}

// The tasks of a large repository are told to end some at a time, and none twice before it had the time to.
func TestALargeRepositoryIsDeletedInParts(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	const tasks = mostDeleted + 44
	w.repository("a", repository.Spec{})
	for i := range tasks {
		w.applied(task.Machine, fmt.Sprintf("default.a.t%d", i), "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	}
	w.Stop() // what is sent stays unanswered
	commands := func() uint64 {
		s, err := w.JS.Stream(w.Ctx, w.Names.Stream(streams.CommandStream))
		require.NoError(t, err)
		info, err := s.Info(w.Ctx)
		require.NoError(t, err)
		return info.State.LastSeq
	}
	done := make(chan struct{})
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		<-o.Tasks.Ready()
		<-o.Repositories.Ready()
		now := time.Now()
		o.clock = func() time.Time { return now }
		o.Deps = o.WithDefaults()
		l := o.begin(ctx)
		l.ledger = &ledger{slots: map[string]*slot{}}
		for _, item := range o.Tasks.List(index.Query{Limit: 4096}).Items {
			l.task(item, false)
		}
		r := &repo{state: repository.Deleting, data: &repository.Data{}}
		l.repos["default.a"] = r
		before := commands()
		for range 12 { // 24 s
			l.empty("default.a", r, now)
			now = now.Add(askAgain)
		}
		w.Eventually("they are sent", func() bool { return commands() == before+mostDeleted })
		now = now.Add(deleteAgain)
		l.empty("default.a", r, now)
		w.Eventually("as many are sent again when all were lost, those that are left before them", func() bool { return commands() == before+2*mostDeleted })
		for id := range r.sent {
			item, _ := o.Tasks.Get("default.a." + id)
			l.task(item, true)
		}
		l.empty("default.a", r, now)
		require.Equal(t, tasks-mostDeleted, len(r.sent), "those that are left")
		now = now.Add(deleteAgain)
		l.empty("default.a", r, now)
		w.Eventually("those that were lost are sent again", func() bool { return commands() == before+2*tasks })
	})
	<-done
}

// The bucket of tasks was set back, and that of slots was not.
func TestASlotOfWhatTheStoreHasLostIsGivenBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{Concurrency: 4})
	w.task("a.queued", task.Spec{})
	w.applied(task.Machine, "default.a.pending", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	d := w.Apart("before")
	require.NoError(t, makeBucket(w.Ctx, &d, d.Names.Bucket(Slots), 1))
	l, _, err := openLedger(w.Ctx, &d, 1)
	require.NoError(t, err)
	for _, id := range []string{"queued", "pending", "gone"} {
		l.add(&slot{Key: "default.a." + id, Type: "noop", Enqueue: 7, Start: 9, Version: 99})
	}
	l.add(&slot{Key: "default.b.gone", Type: "noop", Enqueue: 7, Start: 9, Version: 99})
	require.NoError(t, l.write(w.Ctx, nil))

	w.orchestrate(w.Apart("one")) // the limit is 4, and all of them are taken
	w.comes(task.Machine, "a.queued", task.Succeeded)
	w.applied(task.Machine, "default.a.pending", "run", nil)
	w.comes(task.Machine, "a.pending", task.Succeeded)
	w.Eventually("no slot is left", func() bool {
		m, err := w.Bucket(Slots).Get(w.Ctx, ledgerKey)
		return err == nil && strings.HasPrefix(string(m.Value()), `{"slots":[]`)
	})
}

// A repository whose value cannot be read is told nothing: each command to it would become a dead letter.
func TestAParkedRepositoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	end := make(chan struct{})
	began := make(chan struct{}, 8)
	w.does(func(context.Context, machines.Task, task.Run) machines.Result {
		began <- struct{}{}
		<-end
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.repository("b", repository.Spec{})
	w.task("a.one", task.Spec{})
	<-began
	w.comes(repository.Machine, "a", repository.Analyzing)
	_, err := w.Bucket(repository.Machine.Plural).Put(w.Ctx, "default.a", []byte(`{"unreadable`))
	require.NoError(t, err)
	w.Eventually("it is seen", func() bool { item, _ := w.last.Repositories.Get("default.a"); return item.Problem != "" })
	close(end)
	w.comes(task.Machine, "a.one", task.Succeeded)
	for i := range 3 {
		w.task(fmt.Sprint("b.t", i), task.Spec{})
		w.comes(task.Machine, fmt.Sprint("b.t", i), task.Succeeded)
	}
	w.comes(repository.Machine, "b", repository.Completed)
	require.Empty(t, w.Stream(w.Names.Stream(streams.DeadStream), ">"))
}

func TestWhatIsRefusedIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	now := time.Now()
	o := &Orchestrator{clock: func() time.Time { return now }}
	o.Deps = o.WithDefaults()
	l := o.begin(t.Context())
	r := &repo{data: &repository.Data{}, state: repository.Ready}
	l.repos["default.a"] = r
	asked := 0
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
		if l.look("default.a", now); now.Before(r.reports.not) {
			continue
		}
		asked++
		l.asking++
		l.answered(answer{repo: "default.a", err: &machines.Refusal{Code: machines.CodeParked}})
	}
	require.Less(t, asked, 80)
	l.repository(index.Item{Key: "default.a", State: repository.Ready, Version: 7, Value: &repository.Data{}}, false)
	require.True(t, r.reports.not.IsZero(), "what has changed is looked at at once")
}

// While as many are asked as may be, the others cost nothing.
func TestManyRepositoriesThatHaveChangedWait(t *testing.T) {
	t.Parallel()
	o := &Orchestrator{clock: time.Now}
	o.Deps = o.WithDefaults()
	l := o.begin(t.Context())
	l.asking = mostAsked
	for i := range 1000 {
		name := fmt.Sprint("default.r", i)
		l.repos[name], l.dirty[name] = &repo{data: &repository.Data{}, state: repository.Pending}, struct{}{}
	}
	require.True(t, l.tell().IsZero())
	require.Len(t, l.dirty, 1000)
	require.Empty(t, l.later)
}

// With the longest names, and a rate for each of them, what is granted has room in one stored value.
func TestTheLedgerStaysBelowTheLargestValue(t *testing.T) {
	t.Parallel()
	l := &ledger{slots: map[string]*slot{}}
	rates := map[string]schedule.Window{}
	long := strings.Repeat("x", 58)
	for n := 0; l.room() > 0 && len(l.slots) < maxSlots; {
		for range min(mostGrants, l.room(), maxSlots-len(l.slots)) {
			n++
			namespace, typ, pool := fmt.Sprintf("%s%05d", long, n), fmt.Sprintf("%s%05d", long, n), fmt.Sprintf("%s%05d", long[:27], n)
			s := &slot{Key: namespace + "." + typ + "." + typ, Type: typ, Pool: pool, Enqueue: 1 << 63, Start: 1 << 63, Version: 1 << 63, Unique: uniqueOf("n", "u")}
			l.add(s)
			for _, e := range entriesOf(namespace, typ, pool) {
				rates[e] = schedule.Window{Began: time.Unix(1<<32, 123456789), Taken: 1_000_000}
			}
		}
		b, err := l.encode(rates)
		require.NoError(t, err)
		l.size = len(b)
		require.LessOrEqual(t, l.size, maxLedger)
	}
	require.Greater(t, len(l.slots), 500)
}

// A task that fails for good, or is canceled, ends those that run after it, and what runs after those; none is left queued, and no repository analyzing. Queued again it brings all of them back.
func TestNoRepositoryIsLeftAnalyzingBehindAFailure(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	var broken atomic.Bool
	broken.Store(true)
	w.does(func(_ context.Context, m machines.Task, _ task.Run) machines.Result {
		if m.ID == "first" && broken.Load() {
			return machines.Result{Failure: &machines.Failure{Code: "broken", Message: "for good"}}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.task("a.first", task.Spec{})
	w.task("a.other", task.Spec{})
	w.task("a.second", task.Spec{RunAfter: []string{"other", "first"}})
	w.task("a.at-last", task.Spec{RunAfter: []string{"second"}})
	w.comes(task.Machine, "a.at-last", task.Failed)
	w.comes(repository.Machine, "a", repository.Error)
	e, _ := w.Entity(repository.Machine, "default.a")
	require.Equal(t, "the task first has failed: for good", e.LastError.Message)
	e, _ = w.Entity(task.Machine, "default.a.second")
	require.Contains(t, e.LastError.Message, "it runs after first, which has failed")
	require.Empty(t, e.Data.(*task.Data).History, "it has never started")

	broken.Store(false)
	w.applied(task.Machine, "default.a.first", "retry", nil)
	w.comes(task.Machine, "a.at-last", task.Succeeded)
	w.comes(repository.Machine, "a", repository.Completed)

	w.repository("b", repository.Spec{})
	w.applied(task.Machine, "default.b.first", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: task.Order{Delay: "1h"}})
	w.task("b.second", task.Spec{RunAfter: []string{"first"}})
	w.comes(repository.Machine, "b", repository.Analyzing)
	w.applied(task.Machine, "default.b.first", "cancel", nil)
	w.comes(task.Machine, "b.second", task.Canceled)
	w.comes(repository.Machine, "b", repository.Ready)
	w.applied(task.Machine, "default.b.first", "run", nil)
	w.comes(task.Machine, "b.second", task.Succeeded)
	w.comes(repository.Machine, "b", repository.Completed)
}

// A task that is deleted ends those that run after it, too; the next one of its name brings them back.
func TestWhatRunsAfterADeletedTaskEnds(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{})
	w.applied(task.Machine, "default.a.first", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}, Run: true, Order: task.Order{Delay: "1h"}})
	w.task("a.second", task.Spec{RunAfter: []string{"first"}})
	w.applied(task.Machine, "default.a.first", "delete", nil)
	w.comes(task.Machine, "a.second", task.Canceled)
	e, _ := w.Entity(task.Machine, "default.a.second")
	require.Contains(t, e.LastError.Message, "it runs after first, which was deleted")
	w.task("a.first", task.Spec{})
	w.comes(task.Machine, "a.second", task.Succeeded)
}

// A queued task that cannot be read any more is not started: its start would become a dead letter, and its slot would stay.
func TestAParkedTaskIsNotGranted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	o := &Orchestrator{clock: func() time.Time { return now }}
	o.Deps = o.WithDefaults()
	l := o.begin(t.Context())
	l.ledger = &ledger{slots: map[string]*slot{}}
	l.sched.SetEntry(clusterEntry, limitsOf(clusterEntry, nil))
	l.repository(index.Item{Key: "default.a", State: repository.Ready, Version: 1, Value: &repository.Data{}}, false)
	for _, id := range []string{"parked", "readable"} {
		l.task(index.Item{Key: "default.a." + id, State: task.Queued, Version: 1, Value: &task.Brief{Type: "noop", Enqueue: 1, Queued: now}}, false)
	}
	l.task(index.Item{Key: "default.a.parked", Version: 2, Problem: "it cannot be read"}, false)
	granted := l.sched.Next(now, 10)
	require.Len(t, granted, 1)
	require.Equal(t, "default.a.readable", granted[0].Key)
}
