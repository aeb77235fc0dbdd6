package orchestrator

// What becomes of tasks that run after others: those that they name (runAfter), and the clone of their repository. One that waits for a task which has failed for good, or was canceled, ends itself, with a
// reason that names it, so nothing of a repository waits for what will not come; it is queued again when that task is. depend keeps who waits for whom, settle looks at one of them.

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
	return r != nil && max(r.applied, r.data.Applied) < r.generation || !seen && l.clock().Sub(since) < sweepEvery
}

// depend takes a change of a task, for itself and for those that run after it.
func (l *loop) depend(repo string, item *index.Item, b *task.Brief, gone bool) {
	var on, needs []string
	if !gone {
		needs = l.after(repo, item.Key, b)
	}
	l.needs.set(item.Key, needs)
	switch {
	case gone:
	case item.State == task.Queued:
		on = needs
	case b.Blocked != "" && (item.State == task.Failed || item.State == task.Canceled):
		on = []string{repo + "." + b.Blocked}
	}
	l.runs.set(item.Key, on)
	if len(on) > 0 {
		l.settle(item.Key)
	}
	for key := range l.runs.by[item.Key] {
		l.settle(key)
	}
}

// settle ends a queued task that runs after one which has ended without success, or is deleted, and queues one again that was ended so when the other one is.
func (l *loop) settle(key string) {
	item, _ := l.Tasks.Get(key)
	b, _ := item.Value.(*task.Brief)
	if b == nil || item.Problem != "" || l.ledger.slots[key] != nil {
		return
	}
	_, repo, _ := split(key)
	for _, up := range l.runs.of[key] {
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
			order := task.Order{Batch: b.Batch, StopBatch: b.StopBatch}
			if l.stops[repo+"/"+b.Batch].key != "" { // in a batch that is stopped it would be canceled
				order = task.Order{}
			}
			body, err := json.Marshal(task.RunBody{Order: order})
			if err == nil {
				l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandRetry, Body: body, Reason: id + ", which it runs after, is queued again"})
			}
			return
		}
	}
}

// resettle looks at all of them again: a command may have been lost.
func (l *loop) resettle() {
	for key := range l.runs.of {
		l.settle(key)
	}
}
