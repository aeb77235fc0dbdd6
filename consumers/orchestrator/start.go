package orchestrator

// What is granted, and what becomes of it. The loop calls grant in each round: it asks package schedule, writes the ledger, and then start sends each start. sweep, every some seconds, sends again what did not arrive, and
// gives slots back whose task is not stored as it was (check).

import (
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// grant takes what may start, writes its slots, and only then sends the starts. It reports whether anything was granted.
func (l *loop) grant() (bool, error) {
	now := l.clock()
	if l.held = now.Sub(l.settled) < l.pace(); l.held {
		return false, nil
	}
	var granted []schedule.Task
	if sees, err := l.sees(now); err != nil {
		return false, err
	} else if sees {
		granted = l.sched.Next(now, min(mostGrants, maxSlots-len(l.ledger.slots), l.ledger.room()))
	}
	if len(granted) == 0 && (!l.ledger.changed || now.Sub(l.settled) < settleWithin) {
		return false, nil
	}
	started := make([]*slot, 0, len(granted))
	waited := make([]time.Duration, 0, len(granted))
	for i := range granted {
		t := &granted[i]
		s := &slot{Key: t.Key, Type: t.Type, Pool: t.Pool, Enqueue: t.Enqueue, Start: t.Start, Version: t.Version, Unique: t.Unique}
		l.ledger.add(s)
		started = append(started, s)
		waited = append(waited, ago(now, t))
	}
	if err := l.ledger.write(l.ctx, l.sched.Windows(now)); err != nil {
		return false, err
	}
	l.settled = l.clock()
	for _, s := range started {
		l.start(s)
	}
	if l.Metrics != nil && len(granted) > 0 {
		l.Metrics.Granted(waited)
	}
	return len(granted) > 0, nil
}

// sees reports whether something may be granted: a task is not started past a pause, or a lower limit, that was answered before it was made. They are in other buckets, so they may
// come later than the task. Where nobody says how far those are, everything else goes on.
func (l *loop) sees(now time.Time) (bool, error) {
	if !l.sched.Might(now) || now.Before(l.blind) {
		return false, nil
	}
	if err := l.current(grantWithin); err != nil {
		l.blind = l.clock().Add(time.Second)
		l.Log.Warn("no task is started for a second", "error", err)
		return false, nil
	}
	return true, l.limits()
}

// pace is how long the ledger is left alone after a write, so that a write stands for what comes together. After a silence nothing waits.
func (l *loop) pace() time.Duration {
	return min(time.Duration(len(l.ledger.slots))*paceEvery, paceMost)
}

// start sends the start of a slot that is stored.
func (l *loop) start(s *slot) {
	namespace, repo, id := split(s.Key)
	body := task.Started{Enqueue: s.Enqueue, Start: s.Start}
	if r := l.repos[repo]; r != nil && r.data.URL != "" {
		body.Source = &task.Repository{URL: r.data.URL, Ref: r.data.Ref, Clone: s.Start}
		if id != repository.CloneTask {
			body.Source.Clone = l.cloned(repo)
		}
	}
	if d := l.types[namespace+"."+queue.TypePrefix+s.Type]; d != nil {
		body.Timeout, body.Attempts = d.Timeout, d.Attempts
	}
	if body.Timeout == "" && s.Type == repository.CloneTask && l.CloneFor > 0 {
		body.Timeout = l.CloneFor.String()
	}
	s.asked = l.clock()
	l.send(publish.Command{Machine: task.Machine.Name, Key: s.Key, Name: task.ReportStarted, Body: report(body)})
}

// cloned is the last start of the clone of a repository: a node that has fetched for an earlier one has something old. Nothing of the repository starts while that one is not over.
func (l *loop) cloned(repo string) uint64 {
	item, _ := l.Tasks.Get(repo + "." + repository.CloneTask)
	if b, _ := item.Value.(*task.Brief); b != nil {
		return b.Starts
	}
	return 0
}

// sweep repairs what was lost: starts that did not arrive, slots of tasks that the index does not know, repositories whose state is another one than it should be.
func (l *loop) sweep() {
	now, checked := l.clock(), 0
	for key, s := range l.ledger.slots {
		if s.runs || now.Sub(s.asked) < startAgain {
			continue
		}
		item, ok := l.Tasks.Get(key)
		switch {
		case ok && item.Problem != "": // it is parked: a start would become a dead letter
		case ok && item.Version >= s.Version:
			l.start(s)
		case checked < mostChecked:
			checked++
			l.check(s, now)
		}
	}
	for name := range l.repos {
		l.dirty[name] = struct{}{}
	}
}

// check asks the leader for the task of a slot whose version nobody has seen. Where it is older there, or not there at all, the store has lost what came after, as when it was restored: what is
// there counts then, and a slot that it does not keep is given back.
func (l *loop) check(s *slot, now time.Time) {
	m, err := l.Value(l.ctx, task.Machine, s.Key)
	if err != nil {
		return
	}
	if !kv.Absent(m) {
		e, err := task.Machine.Decode(m.Data)
		if err != nil || e.State != task.Deleted && e.Version >= s.Version { // the index has not seen it yet
			return
		}
		if d, _ := e.Data.(*task.Data); d != nil && s.keeps(e.State, &task.Brief{Enqueue: d.Enqueue, Starts: d.Starts}) {
			s.Version, s.asked = e.Version, time.Time{}
			l.ledger.changed = true
			l.retake(s.Key)
			return
		}
	}
	l.Log.Warn("a task that had a slot is not stored as it was; giving the slot back", "task", s.Key, "version", s.Version)
	l.ledger.drop(s)
	l.sched.Release(s.Key, now)
	l.retake(s.Key)
}

// retake looks at a task again as the index has it.
func (l *loop) retake(key string) {
	if item, ok := l.Tasks.Get(key); ok {
		l.task(item, false)
	}
}
