package orchestrator

// What becomes of tasks that run after others: those that they name (runAfter), and the clone of their repository. One that waits for a task which has failed for good, or was canceled, ends itself, with a
// reason that names it, so nothing of a repository waits for what will not come; it is queued again when that task is. depend keeps who waits for whom, behind looks at those for which the state of a task means something, and settle at one of them.

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// dependencies have the keys of tasks.
type dependencies struct {
	of map[string][]string        // what each of them depends on
	by map[string]map[string]bool // the same by what it depends on
}

func newDependencies() dependencies {
	return dependencies{of: map[string][]string{}, by: map[string]map[string]bool{}}
}

func (a *dependencies) set(key string, on []string) {
	for _, up := range a.of[key] {
		if delete(a.by[up], key); len(a.by[up]) == 0 {
			delete(a.by, up)
		}
	}
	delete(a.of, key)
	if len(on) == 0 {
		return
	}
	a.of[key] = on
	for _, up := range on {
		if a.by[up] == nil {
			a.by[up] = map[string]bool{}
		}
		a.by[up][key] = true
	}
}

// after are the tasks that have to succeed before a task starts.
func (l *loop) after(repo, key string, b *task.Brief) (keys []string) {
	for _, id := range b.RunAfter {
		keys = append(keys, repo+"."+id)
	}
	clone := repo + "." + repository.CloneTask
	if r := l.repos[repo]; r != nil && r.data.URL != "" && key != clone && !slices.Contains(keys, clone) {
		keys = append(keys, clone)
	}
	return keys
}

// cloning reports whether the clone of a repository is still to be asked for, or may be so new that this node has not seen it: what is known of it says nothing then.
func (l *loop) cloning(repo string, seen bool, since time.Time) bool {
	r := l.repos[repo]
	return r != nil && max(r.applied, r.cloned, r.data.Applied) < r.generation || !seen && l.clock().Sub(since) < sweepEvery
}

// need keeps what a task has to wait for whenever it is queued.
func (l *loop) need(repo, key string, b *task.Brief, gone bool) {
	var needs []string
	if !gone {
		needs = l.after(repo, key, b)
	}
	l.needs.set(key, needs)
}

// depend takes a change of a task, for itself and, where its state is another one, for those that run after it: there may be very many of them, and how far it is means nothing to them.
func (l *loop) depend(repo string, item *index.Item, b *task.Brief, gone, changed bool) {
	var runs, blocked []string
	switch {
	case gone:
	case item.State == task.Queued:
		runs = l.needs.of[item.Key]
	case b.Blocked != "" && (item.State == task.Failed || item.State == task.Canceled):
		blocked = []string{repo + "." + b.Blocked}
	}
	l.runs.set(item.Key, runs)
	l.blocked.set(item.Key, blocked)
	if len(runs)+len(blocked) > 0 {
		l.settle(item.Key)
	}
	if changed {
		l.behind(item.Key)
	}
}

// behind looks at the tasks that run after one: at those that are queued where it has ended without success or is not there, and at those that were ended by it where it is queued again.
func (l *loop) behind(up string) {
	if len(l.runs.by[up])+len(l.blocked.by[up]) == 0 {
		return
	}
	other, ok := l.Tasks.Get(up)
	ended := !ok || slices.Contains([]string{task.Failed, task.Canceled, task.Deleting, task.Deleted}, other.State)
	switch {
	case other.Problem != "", ended && l.serves(other):
	case ended:
		for key := range l.runs.by[up] {
			l.settle(key)
		}
	case other.State != task.Pending:
		for key := range l.blocked.by[up] {
			l.settle(key)
		}
	}
}

// settle ends a queued task that runs after one which has ended without success, or is deleted, and queues one again that was ended so when the other one is.
func (l *loop) settle(key string) {
	l.settles++
	item, _ := l.Tasks.Get(key)
	b, _ := item.Value.(*task.Brief)
	if b == nil || item.Problem != "" || l.ledger.slots[key] != nil {
		return
	}
	_, repo, _ := split(key)
	for _, up := range slices.Concat(l.runs.of[key], l.blocked.of[key]) {
		other, ok := l.Tasks.Get(up)
		_, _, id := split(up)
		if other.Problem != "" || item.State == task.Queued && id == repository.CloneTask && l.cloning(repo, ok, item.Since) {
			continue
		}
		deleted := !ok || other.State == task.Deleting || other.State == task.Deleted
		switch ended := other.State == task.Failed || other.State == task.Canceled; {
		case item.State == task.Queued && (deleted || ended && !l.serves(other)) && l.startable(repo): // else all tasks of the repository are deleted
			l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: task.ReportBlocked, Body: report(task.Blocked{Enqueue: b.Enqueue, By: id, Canceled: deleted || other.State == task.Canceled, Deleted: deleted})})
			return
		case item.State != task.Queued && b.Blocked == id && (other.State == task.Queued || other.State == task.Running || other.State == task.Succeeded):
			order := task.Order{Batch: b.Batch, StopBatch: b.StopBatch, NotBefore: b.NotBefore}
			if l.stops[repo+"/"+b.Batch].key != "" { // in a batch that is stopped it would be canceled
				order.Batch, order.StopBatch = "", false
			}
			body, err := json.Marshal(task.RunBody{Order: order})
			if err == nil {
				l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandRetry, Body: body, Reason: id + ", which it runs after, is queued again"})
			}
			return
		}
	}
}

// resettle looks at all of them again that something is to be told: a command may have been lost.
func (l *loop) resettle() {
	for up := range l.runs.by {
		l.behind(up)
	}
	for up := range l.blocked.by {
		if l.runs.by[up] == nil {
			l.behind(up)
		}
	}
}

// uncircle cancels one queued task of each circle of those that run after each other, or it would wait for ever; the others end with it. The doors let no circle in, but who publishes commands himself, and two doors that
// are asked at once.
func (l *loop) uncircle() {
	const open, done = 1, 2
	looked := map[string]int{}
	var look func(key string)
	look = func(key string) {
		looked[key] = open
		for _, up := range l.runs.of[key] {
			if len(l.runs.of[up]) == 0 {
				continue
			}
			if looked[up] == 0 {
				look(up)
			} else if looked[up] == open && l.ledger.slots[key] == nil {
				_, _, id := split(up)
				l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandCancel, Reason: "it runs after " + id + ", which runs after it"})
			}
		}
		looked[key] = done
	}
	for key := range l.runs.by { // who is in a circle waits, and is waited for
		if len(l.runs.of[key]) > 0 && looked[key] == 0 {
			look(key)
		}
	}
}

// waitsFor reports whether a task runs after another one, or after what waits for that, or was ended by it.
func (l *loop) waitsFor(key, up string) bool {
	looked := map[string]bool{}
	for next := slices.Clone(l.needs.of[key]); len(next) > 0; {
		k := next[len(next)-1]
		next = next[:len(next)-1]
		if k == up {
			return true
		}
		if !looked[k] {
			looked[k], next = true, append(append(next, l.runs.of[k]...), l.blocked.of[k]...)
		}
	}
	return false
}
