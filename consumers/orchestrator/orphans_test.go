package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/orchestrator/lost"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
)

// A task that is stored without a repository does not wait for ever, does not start unasked in a later repository of the name, also not by its schedule, and is not taken for one of that.
func TestATaskWithoutARepositoryIsDeleted(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.repository("gone", repository.Spec{})
	stop := w.orchestrate(w.Apart("zero"))
	w.applied(repository.Machine, "default.gone", "delete", nil)
	w.comes(repository.Machine, "gone", repository.Deleted)
	stop()
	w.task("gone.one", task.Spec{Cron: "0 0 1 1 *"})
	w.task("a.here", task.Spec{})
	w.task("never.two", task.Spec{})
	w.applied(task.Machine, "default.gone.pending", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	w.task("gone.canceled", task.Spec{})
	w.applied(task.Machine, "default.gone.canceled", "cancel", nil)
	w.applied(task.Machine, "default.never.four", "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	gone := []string{"gone.one", "gone.pending", "gone.canceled"}
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		w.repository("later", repository.Spec{})
		w.task("later.three", task.Spec{})
		item, err := l.Tasks.WaitFor(w.Ctx, "default.later.three", func(i index.Item) bool { return i.State == task.Queued })
		require.NoError(t, err)
		l.task(item, false) // its repository has not come yet
		require.Equal(t, 3, l.lonely.Len())
		l.orphans()
		require.Equal(t, Reason{State: task.Queued, Why: "its repository is not there; it is taken out of the queue when that is so for a minute"}, l.reason("default.never.two"))
		now := time.Now().Add(orphaned)
		l.Orchestrator.clock = func() time.Time { return now }
		l.orphans()
		for _, key := range gone {
			w.comes(task.Machine, key, task.Deleted)
			w.Eventually("its timeline says why", func() bool {
				return slices.ContainsFunc(w.log(), func(e event) bool {
					return e.key == "default."+key && e.typ == task.EventDeleted && e.Reason == "its repository is not there any more"
				})
			})
		}
		w.comes(task.Machine, "never.two", task.Canceled) // its repository may have been lost, and come back
		require.Equal(t, task.Pending, w.state(task.Machine, "never.four"))
		for _, key := range []string{"a.here", "later.three"} {
			require.Equal(t, task.Queued, w.state(task.Machine, key))
		}
		item, err = l.Tasks.WaitFor(w.Ctx, "default.gone.one", func(i index.Item) bool { return i.State == task.Deleted })
		require.NoError(t, err)
		l.task(item, false)
		require.NotContains(t, l.alone("default.gone"), "default.gone.one")
	})
}

// alone are the tasks of a repository that are due, or the repositories that have such tasks.
func (l *loop) alone(repo string) (names []string) {
	for range l.lonely.Len() { // then it is the turn of the same one as before
		r := l.lonely.Next()
		due := slices.Collect(r.Due(l.clock(), orphaned))
		switch {
		case repo == r.Name:
			names = append(names, due...)
		case repo == "" && len(due) > 0:
			names = append(names, r.Name)
		}
	}
	return names
}

// Repositories of which nothing is known, as after the loss of their bucket, keep no other one waiting, however many they are, and the leader is not asked for them again and again.
func TestManyRepositoriesAreNotThere(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("gone", repository.Spec{})
	stop := w.orchestrate(w.Apart("zero"))
	w.applied(repository.Machine, "default.gone", "delete", nil)
	w.comes(repository.Machine, "gone", repository.Deleted)
	stop()
	const many = mostLost + mostLost/2
	for i := range many {
		w.applied(task.Machine, fmt.Sprintf("default.lost-%d.pending", i), "create", task.CreateBody{Spec: task.Spec{Type: "noop"}})
	}
	w.task("gone.one", task.Spec{})
	w.task("lost-0.queued", task.Spec{})
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		now := time.Now().Add(orphaned)
		l.Orchestrator.clock = func() time.Time { return now }
		require.Len(t, l.alone(""), many+1)
		l.orphans()
		require.InDelta(t, many+1-mostLost, len(l.alone("")), 2, "of two the tasks have to change")
		l.orphans()
		require.ElementsMatch(t, []string{"default.gone", "default.lost-0"}, l.alone(""))
		w.comes(task.Machine, "gone.one", task.Deleted)
		w.comes(task.Machine, "lost-0.queued", task.Canceled)

		w.applied(task.Machine, "default.lost-0.queued", "run", nil)
		for _, key := range []string{"default.gone.one", "default.lost-0.queued"} {
			item, err := l.Tasks.WaitFor(w.Ctx, key, func(i index.Item) bool { return i.State == task.Deleted || i.State == task.Queued })
			require.NoError(t, err)
			l.task(item, false)
		}
		now = now.Add(lost.For - 1)
		require.Equal(t, []string{"default.lost-0"}, l.alone(""), "of which a task was queued again")
		require.Equal(t, many, l.lonely.Len())
		l.orphans()
		w.comes(task.Machine, "lost-0.queued", task.Canceled)

		w.repository("lost-1", repository.Spec{})
		item, err := l.Repositories.WaitFor(w.Ctx, "default.lost-1", func(index.Item) bool { return true })
		require.NoError(t, err)
		l.repository(item, false)
		now = now.Add(1)
		require.Len(t, l.alone(""), many-1, "after an hour all that are still lost")
		require.Equal(t, many-1, l.lonely.Len())
	})
}

// Of a repository that cannot be read nothing else is said, and its tasks are left alone.
func TestATaskOfARepositoryThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	_, err := w.JS.Publish(w.Ctx, "$KV."+w.Names.Bucket(repository.Machine.Plural)+".default.a", []byte("{"))
	require.NoError(t, err)
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		require.Equal(t, Reason{State: task.Queued, Why: "its repository cannot be read"}, l.reason("default.a.one"))
		now := time.Now().Add(orphaned)
		l.Orchestrator.clock = func() time.Time { return now }
		l.orphans()
		require.Contains(t, l.alone("default.a"), "default.a.one")
		require.Equal(t, task.Queued, w.state(task.Machine, "a.one"))
	})
}
