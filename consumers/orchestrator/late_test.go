package orchestrator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
)

// A task that was granted and is made to wait before its start arrives waits: whoever did that was told so.
func TestASnoozeAtTheMomentOfAStart(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	w.loads(w.Apart("one"), func(ctx context.Context, l *loop) {
		w.applied(task.Machine, "default.a.one", "snooze", task.SnoozeBody{For: "1h"}) // which the loop has not seen
		granted, err := l.grant()
		require.NoError(t, err)
		require.True(t, granted)
		w.Eventually("the start is refused", func() bool {
			for _, e := range w.log() {
				if e.typ == "command.refused" {
					return true
				}
			}
			return false
		})
		require.Equal(t, task.Queued, w.state(task.Machine, "a.one"))
		e, _ := w.Entity(task.Machine, "default.a.one")
		item, err := l.Tasks.WaitFor(ctx, "default.a.one", func(i index.Item) bool { return i.Version >= e.Version })
		require.NoError(t, err)
		l.task(item, false)
		require.Empty(t, l.ledger.slots, "its slot is free")
		granted, err = l.grant()
		require.NoError(t, err)
		require.False(t, granted)
		require.Equal(t, e.Data.(*task.Data).NotBefore, l.sched.Due().UTC(), "and it comes at its time")
	})
}

// Whoever takes over starts nothing before this node has seen all pauses and limits that are stored: the one before may have gone by them already.
func TestWhoTakesOverKnowsOfEveryPause(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.repository("a", repository.Spec{})
	w.task("a.one", task.Spec{})
	done := make(chan struct{})
	stalled, stop := context.WithCancel(w.Ctx)
	d := w.Apart("one")
	queues := index.New(d.JS, d.Names.Bucket(queue.Machine.Plural), func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{Log: d.Log})
	w.follows(d, func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		ended := make(chan struct{})
		go func() { _ = queues.Run(stalled); close(ended) }()
		for _, ix := range []*index.Index{o.Tasks, o.Repositories, queues} {
			<-ix.Ready()
		}
		stop()
		<-ended // it hears nothing any more
		o.Queues, o.Deps, o.clock = queues, o.WithDefaults(), time.Now
		w.applied(queue.Machine, "default.all", "pause", nil)
		takes, cancel := context.WithCancel(ctx)
		loaded := make(chan error, 1)
		go func() { loaded <- o.begin(takes).load() }()
		w.Eventually("it waits for what is stored", func() bool { l := queues.Lag(); return l.Known > l.Applied })
		cancel()
		require.ErrorContains(t, <-loaded, "cannot start tasks before all of queues is seen")
	})
	<-done
}

// Tasks that ended long ago are deleted, but for those that somebody counts on.
func TestEndedTasksAreKeptForATime(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		o.KeepEnded = time.Millisecond
		_ = o.Run(ctx)
	})
	w.repository("a", repository.Spec{URL: "/srv/a", Analyses: []string{"lines"}, Required: []string{"must"}})
	w.comes(task.Machine, "a.lines", task.Pending)
	w.applied(task.Machine, "default.a.lines", "run", nil)
	w.applied(task.Machine, "default.a.later", "create", task.CreateBody{Spec: task.Spec{Type: "noop", RunAfter: []string{"needed"}}})
	w.task("a.needed", task.Spec{})
	w.task("a.must", task.Spec{Type: "must"})
	w.task("a.cron", task.Spec{Cron: "0 0 1 1 *"})
	kept := []string{"clone", "lines", "needed", "must", "cron"}
	for _, id := range kept {
		w.comes(task.Machine, "a."+id, task.Succeeded)
	}
	w.task("a.canceled", task.Spec{RunAfter: []string{"later"}})
	w.applied(task.Machine, "default.a.canceled", "cancel", nil)
	w.task("a.done", task.Spec{})
	w.comes(task.Machine, "a.canceled", task.Deleted)
	w.comes(task.Machine, "a.done", task.Deleted)
	for _, id := range kept { // the pass that found the others has looked at them as well
		require.Equal(t, task.Succeeded, w.state(task.Machine, "a."+id), id)
	}
	require.Equal(t, task.Pending, w.state(task.Machine, "a.later"))
}
