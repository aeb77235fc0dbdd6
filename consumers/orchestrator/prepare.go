package orchestrator

// What is made and deleted with a repository: prepare makes the tasks that it asks for, and has it cloned; empty deletes its tasks when it is deleted, some at a time.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	mostDeleted = 256              // tasks of a repository that were told and have not changed yet
	deleteAgain = 30 * time.Second // after a command that has changed nothing
)

// prepare makes the tasks that a repository asks for, and has it cloned: once for each generation, however often it is called before all of them are made.
func (l *loop) prepare(name string, r *repo) {
	generation, spec, clone := r.generation, r.data.Spec, r.data.Clone && r.data.URL != "" && r.cloned != r.generation
	_, starting := l.ledger.slots[name+"."+repository.CloneTask] // maybe with another URL
	l.ask(name, r, func(ctx context.Context) answer {
		a := answer{prepares: true}
		if clone {
			if a.asked, a.busy, a.err = l.makeClone(ctx, name, generation, starting, spec); a.err != nil || a.busy {
				return a
			}
		}
		a.cloned = generation
		for i, typ := range spec.Analyses {
			var busy bool
			if busy, a.err = l.makeTask(ctx, name, typ, task.CreateBody{Spec: task.Spec{Type: typ, SortOrder: i}}); a.err != nil {
				return a
			}
			a.busy = a.busy || busy
		}
		if !a.busy {
			a.applied = generation
		}
		return a
	})
}

// makeClone has the repository cloned: by the task that is there, or by a new one. A clone that runs, and was begun for something else, is waited for, and canceled where it clones
// another URL or ref: what was asked for is what lies there in the end. It returns the version that the task has since then.
func (l *loop) makeClone(ctx context.Context, name string, generation uint64, starting bool, want repository.Spec) (version uint64, busy bool, err error) {
	key, batch := name+"."+repository.CloneTask, fmt.Sprint("clone-", generation)
	d, state, err := l.stored(ctx, key)
	switch {
	case err != nil:
		return 0, false, err
	case d.Batch == batch:
	case state == task.Queued && starting:
		return 0, true, nil
	case state == task.Running:
		if d.Source != nil && d.Source.URL == want.URL && d.Source.Ref == want.Ref {
			return 0, true, nil
		}
		_, err = l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandCancel, Reason: "its repository has another url or ref"})
		return 0, true, err
	}
	body, err := json.Marshal(task.RunBody{Again: true, Order: task.Order{Batch: batch}})
	if err != nil {
		return 0, false, err
	}
	a, err := l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandRun, Body: body})
	switch {
	case err != nil:
		return 0, false, err
	case a.Refusal == nil: // of one that was started meanwhile nothing has changed
		return a.Version, a.Outcome == machines.Unchanged && a.State == task.Running, nil
	}
	busy, err = l.makeTask(ctx, name, repository.CloneTask, task.CreateBody{Spec: task.Spec{Type: repository.CloneTask, Priority: 1, SortOrder: -1_000_000}, Run: true, Order: task.Order{Batch: batch}})
	return 0, busy, err
}

// stored reads a task from its leader; of one that is not there the data is empty.
func (l *loop) stored(ctx context.Context, key string) (*task.Data, string, error) {
	m, err := l.Value(ctx, task.Machine, key)
	if err != nil || kv.Absent(m) {
		return &task.Data{}, machines.None, err
	}
	e, err := task.Machine.Decode(m.Data)
	d, _ := e.Data.(*task.Data)
	if d == nil {
		d = &task.Data{}
	}
	return d, e.State, err
}

// makeTask creates a task unless it is there. One that is being deleted is waited for: it is busy until it is gone.
func (l *loop) makeTask(ctx context.Context, repo, id string, b task.CreateBody) (busy bool, err error) {
	key := repo + "." + id
	if item, ok := l.Tasks.Get(key); ok && item.State == task.Deleting { // each refusal would be an event
		return true, nil
	}
	body, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	a, err := l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandCreate, Body: body})
	switch {
	case err != nil || a.Refusal == nil:
		return false, err
	case a.Refusal.Code == machines.CodeExists:
		return a.Refusal.State == task.Deleting, nil
	}
	return false, fmt.Errorf("task %s: %w", key, a.Refusal)
}

// emptying is how far the deletion of a repository's tasks is.
type emptying struct {
	left   []string             // ids that are still to be looked at
	sent   map[string]time.Time // when those were told that have not changed since
	listed time.Time
}

// changed: a task has come to another state, or is gone.
func (e *emptying) changed(id string, gone bool) {
	delete(e.sent, id)
	if !gone {
		e.left = append(e.left, id)
	}
}

// empty cancels and deletes the tasks of a repository that is deleted, each once until it changes, and so many at a time as are answered soon. It returns when to look again.
func (l *loop) empty(name string, r *repo, now time.Time) time.Time {
	var again []string // commands of which were lost, or refused: behind those that are still to be told
	for id, at := range r.sent {
		if now.Sub(at) >= deleteAgain {
			delete(r.sent, id)
			again = append(again, id)
		}
	}
	r.left = append(again, r.left...) // the last is the next
	if len(r.left) == 0 && now.Sub(r.listed) >= askAgain {
		r.left, r.listed = l.tally.Tasks(name), now
	}
	for len(r.left) > 0 && len(r.sent) < mostDeleted {
		id := r.left[len(r.left)-1]
		r.left = r.left[:len(r.left)-1]
		item, ok := l.Tasks.Get(name + "." + id)
		if _, told := r.sent[id]; !ok || told || item.Problem != "" || item.State == task.Deleting || item.State == task.Deleted {
			continue
		}
		if r.sent == nil {
			r.sent = map[string]time.Time{}
		}
		r.sent[id] = now
		c := publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: task.CommandDelete, Reason: "its repository is deleted"}
		if item.State == task.Running {
			c.Name = task.CommandCancel
		}
		l.send(c)
	}
	return now.Add(askAgain)
}
