package orchestrator

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// erasing is a world whose task a.lines is deleted, and whose documents are erased when the test says so.
func erasing(t *testing.T, s repository.Spec) (w *world, stop, erase func()) {
	t.Helper()
	w = setup(t, embedded.Interval)
	began, end := make(chan struct{}, 1), make(chan struct{})
	w.erase = func(ctx context.Context) {
		began <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
	stop = w.orchestrate(w.Apart("one"))
	w.repository("a", s)
	w.comes(task.Machine, "a.lines", task.Pending)
	w.applied(task.Machine, "default.a.lines", "run", nil)
	w.comes(task.Machine, "a.lines", task.Succeeded)
	w.applied(task.Machine, "default.a.lines", "delete", nil)
	<-began
	return w, stop, func() { close(end) }
}

// A task that is being deleted is not the one that its repository asks for: it is made once that is gone.
func TestATaskThatIsBeingDeletedIsMadeAnew(t *testing.T) {
	t.Parallel()
	w, _, erase := erasing(t, repository.Spec{Analyses: []string{"lines"}})
	w.applied(repository.Machine, "default.a", "configure", repository.ConfigureBody{Spec: repository.Spec{Analyses: []string{"lines", "other"}}})
	w.comes(task.Machine, "a.other", task.Pending)
	erase()
	w.comes(task.Machine, "a.lines", task.Pending)
}

// The same while another clone is asked for: that is asked for once, however long the deletion takes.
func TestOneCloneIsAskedForWhileATaskIsDeleted(t *testing.T) {
	t.Parallel()
	w, stop, erase := erasing(t, repository.Spec{URL: "/srv/a", Analyses: []string{"lines"}})
	stop()
	w.applied(repository.Machine, "default.a", "clone", nil)
	e, _ := w.Entity(repository.Machine, "default.a")
	done := make(chan struct{})
	w.follows(w.Apart("two"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		o.Deps, o.clock = o.WithDefaults(), time.Now
		l := o.begin(ctx)
		l.ledger = &ledger{slots: map[string]*slot{}}
		r := &repo{generation: e.Generation, data: e.Data.(*repository.Data)}
		l.repos["default.a"] = r
		prepare := func() {
			l.prepare("default.a", r)
			l.answered(<-l.answers)
		}
		prepare()
		require.Equal(t, task.Queued, w.state(task.Machine, "a.clone"))
		w.applied(task.Machine, "default.a.clone", "cancel", nil)
		prepare()
		require.Equal(t, task.Canceled, w.state(task.Machine, "a.clone"))
		require.Zero(t, r.applied)
		erase()
		w.comes(task.Machine, "a.lines", task.Deleted)
		w.Eventually("it is made", func() bool { prepare(); return r.applied == e.Generation })
		require.Equal(t, task.Pending, w.state(task.Machine, "a.lines"))
		require.Equal(t, task.Canceled, w.state(task.Machine, "a.clone"))
	})
	<-done
}

// The state of a repository follows its tasks also while those that it asks for cannot be made.
func TestCountsAreToldWhileATaskCannotBeMade(t *testing.T) {
	t.Parallel()
	w, _, erase := erasing(t, repository.Spec{Analyses: []string{"lines"}})
	defer erase()
	began, end := make(chan struct{}), make(chan struct{})
	w.does(func(context.Context, machines.Task, task.Run) machines.Result {
		began <- struct{}{}
		<-end
		return machines.Result{Data: task.Result{}}
	})
	w.applied(repository.Machine, "default.a", "configure", repository.ConfigureBody{Spec: repository.Spec{Analyses: []string{"lines", "other"}}})
	w.comes(task.Machine, "a.other", task.Pending)
	w.applied(task.Machine, "default.a.other", "run", nil)
	<-began
	w.comes(repository.Machine, "a", repository.Analyzing)
	close(end)
	w.comes(repository.Machine, "a", repository.Completed)
}

// What asks for a clone is settled by the end of that clone: no count of the one before makes it look done, also where the index is behind.
func TestACloneIsUnderWayUntilItHasEnded(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	release := make(chan struct{})
	var held atomic.Bool
	w.does(func(ctx context.Context, _ machines.Task, _ task.Run) machines.Result {
		if held.Load() {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return machines.Result{Data: task.Result{}}
	})
	w.orchestrate(w.Apart("one"))
	w.repository("a", repository.Spec{URL: "/srv/a"})
	w.comes(repository.Machine, "a", repository.Ready)
	held.Store(true)
	for i, ask := range []func() machines.Answer{
		func() machines.Answer { return w.applied(repository.Machine, "default.a", "clone", nil) },
		func() machines.Answer {
			return w.applied(repository.Machine, "default.a", "configure", repository.ConfigureBody{Spec: repository.Spec{URL: "/srv/a", Ref: "v1"}})
		},
	} {
		require.Equal(t, repository.Pending, ask().State, i)
		w.comes(repository.Machine, "a", repository.Cloning)
		release <- struct{}{}
		w.comes(repository.Machine, "a", repository.Ready)
	}
	var states []string
	for _, m := range w.Stream(streams.EventStream, w.Names.EventsOf("repository", "*.*")) {
		var e machines.Event
		require.NoError(t, json.Unmarshal(m.Data, &e))
		if len(states) == 0 || states[len(states)-1] != e.To {
			states = append(states, e.To)
		}
	}
	again := []string{repository.Pending, repository.Cloning, repository.Ready}
	require.Equal(t, slices.Concat(again, again), states[slices.Index(states, repository.Ready)+1:])
}
