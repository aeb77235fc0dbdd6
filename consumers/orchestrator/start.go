package orchestrator

import (
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// grant takes what may start, writes its slots, and only then sends the starts. It reports whether anything was granted.
func (l *loop) grant() (bool, error) {
	now := l.clock()
	if l.held = now.Sub(l.settled) < l.pace(); l.held {
		return false, nil
	}
	granted := l.sched.Next(now, min(mostGrants, maxSlots-len(l.ledger.slots)))
	if len(granted) == 0 && (!l.ledger.changed || now.Sub(l.settled) < settleWithin) {
		return false, nil
	}
	started := make([]*slot, 0, len(granted))
	waited := make([]time.Duration, 0, len(granted))
	for i := range granted {
		t := &granted[i]
		s := &slot{Key: t.Key, Type: t.Type, Pool: t.Pool, Enqueue: t.Enqueue, Start: t.Start, Version: t.Version, Unique: t.Unique}
		l.ledger.slots[t.Key] = s
		started = append(started, s)
		waited = append(waited, ago(now, t))
	}
	if err := l.ledger.write(l.ctx, l.sched.Windows()); err != nil {
		return false, err
	}
	l.settled = l.clock()
	for _, s := range started {
		l.start(s)
	}
	if l.Metrics != nil {
		if len(granted) > 0 {
			l.Metrics.Granted(len(granted), waited)
		}
		l.Metrics.Stands(l.sched.Waiting(), len(l.ledger.slots))
	}
	return len(granted) > 0, nil
}

// pace is how long the ledger is left alone after a write, so that a write stands for what comes together. After a silence nothing waits.
func (l *loop) pace() time.Duration {
	return min(time.Duration(len(l.ledger.slots))*paceEvery, paceMost)
}

// start sends the start of a slot that is stored.
func (l *loop) start(s *slot) {
	namespace, repo, _ := split(s.Key)
	body := task.Started{Enqueue: s.Enqueue, Start: s.Start}
	if r := l.repos[repo]; r != nil && r.data.URL != "" {
		body.Source = &task.Repository{URL: r.data.URL, Ref: r.data.Ref}
	}
	if d := l.types[namespace+"."+queue.TypePrefix+s.Type]; d != nil {
		body.Timeout, body.Attempts = d.Timeout, d.Attempts
	}
	s.asked = l.clock()
	l.send(publish.Command{Machine: task.Machine.Name, Key: s.Key, Name: task.ReportStarted, Body: report(body)})
}

// sweep repairs what was lost: starts that did not arrive, slots of tasks that the index does not know, repositories whose state is another one than it should be.
func (l *loop) sweep() {
	now := l.clock()
	for key, s := range l.ledger.slots {
		if s.runs || now.Sub(s.asked) < startAgain {
			continue
		}
		item, ok := l.Tasks.Get(key)
		switch {
		case ok && item.Version >= s.Version:
			l.start(s)
		case !ok && l.gone(key):
			delete(l.ledger.slots, key)
			l.ledger.changed = true
			l.sched.Release(key, now)
		}
	}
	for name, r := range l.repos {
		l.dirty[name] = struct{}{}
		clear(r.sent)
	}
}

// gone asks the leader whether there is no such task: the index may not have seen it yet.
func (l *loop) gone(key string) bool {
	m, err := l.Value(l.ctx, task.Machine, key)
	if err != nil {
		return false
	}
	if kv.Absent(m) {
		return true
	}
	e, err := task.Machine.Decode(m.Data)
	return err == nil && e.State == task.Deleted
}
