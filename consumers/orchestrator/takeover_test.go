package orchestrator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
)

// Who takes over goes on with the interval of a rate that another one has begun.
func TestARateIsHeldOverATakeover(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.applied(queue.Machine, "default.type-rated", "configure", queue.ConfigureBody{Settings: queue.Settings{Rate: 1, Interval: "24h"}})
	w.repository("a", repository.Spec{Concurrency: 4})
	w.task("a.one", task.Spec{Type: "rated"})
	stop := w.orchestrate(w.Apart("one"))
	w.comes(task.Machine, "a.one", task.Succeeded)
	stop()
	w.task("a.two", task.Spec{Type: "rated"})
	w.loads(w.Apart("two"), func(_ context.Context, l *loop) {
		granted, err := l.grant()
		require.NoError(t, err)
		require.False(t, granted)
		require.Contains(t, l.reason("default.a.two").Why, "queue default.type-rated has started 1 in its interval, until ")
	})
}

// Who takes over counts slots of which the start was never sent, and sends it.
func TestASlotIsHeldBeforeItsTaskRuns(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.applied(queue.Machine, "default.cluster", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: 1}})
	w.repository("a", repository.Spec{Concurrency: 4})
	w.task("a.granted", task.Spec{Priority: 9})
	w.loads(w.Apart("one"), func(ctx context.Context, l *loop) { // it grants, and dies before it sends
		item, _ := l.Tasks.Get("default.a.granted")
		l.ledger.add(&slot{Key: item.Key, Type: "noop", Enqueue: 1, Start: 1, Version: item.Version})
		require.NoError(t, l.ledger.write(ctx, nil))
	})
	w.task("a.other", task.Spec{Priority: 1})
	w.loads(w.Apart("two"), func(_ context.Context, l *loop) {
		granted, err := l.grant()
		require.NoError(t, err)
		require.False(t, granted)
		require.Equal(t, "queue default.cluster runs 1 of 1", l.reason("default.a.other").Why)
		l.sweep()
		w.comes(task.Machine, "a.granted", task.Succeeded)
	})
	w.orchestrate(w.Apart("three"))
	w.comes(task.Machine, "a.other", task.Succeeded)
	w.check(1, map[string]int{"default.a": 4}, nil)
}

// What an index says of a task from before its grant, as one that is read anew may, says nothing about the slot.
func TestAnOlderValueKeepsTheSlot(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		before, _ := l.Tasks.Get("default.a.one")
		granted, err := l.grant()
		require.NoError(t, err)
		require.True(t, granted)
		before.Version, before.State = before.Version-1, task.Pending
		l.task(before, false)
		require.Contains(t, l.ledger.slots, "default.a.one")
		require.Equal(t, "it has a slot", l.sched.Explain("default.a.one", l.clock()))
	})
}

// No more tasks are started than the nodes do together, and as many when there are more nodes.
func TestTheNodesAreGivenWhatTheyDo(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.applied(queue.Machine, "default.cluster", "configure", queue.ConfigureBody{Settings: queue.Settings{Limit: 64}})
	w.repository("a", repository.Spec{Concurrency: 64})
	for _, id := range []string{"a.one", "a.two", "a.three"} {
		w.task(id, task.Spec{})
	}
	w.loads(w.Apart("one"), func(_ context.Context, l *loop) {
		for _, x := range []struct {
			room  int
			known bool
			slots int
		}{{0, true, 0}, {1, true, 1}, {2, true, 2}, {1, true, 2}, {0, false, 3}} { // what runs goes on
			l.Room = func() (int, bool) { return x.room, x.known }
			l.roomAt, l.settled = time.Time{}, time.Time{}
			l.nodes()
			_, err := l.grant()
			require.NoError(t, err)
			require.Len(t, l.ledger.slots, x.slots)
			if x.known && x.room == 0 {
				require.Equal(t, "no node does tasks now", l.sched.Explain("default.a.one", l.clock()))
			}
		}
	})
}
