// Package tally counts the tasks of repositories as they change, so that what the state of a repository is derived from costs one step per change and not one per task.
//
// After any sequence of calls [Tally.Counts] is what counting all tasks from the beginning gives. A Tally is for one goroutine.
package tally

// The loop of consumers/orchestrator calls it: in come specs and tasks of repositories as they change, out go their counts, and the task for which one is in error.

import (
	"maps"
	"slices"

	"github.com/bcc94042/instar/machines/repository"
)

// Tally has the tasks of all repositories. Use [New].
type Tally struct{ repos map[string]*repo }

type repo struct {
	spec   repository.Spec
	counts repository.Counts // without RequiredMissing
	types  map[string]int    // how many tasks have it, but for those that end and the one that clones
	tasks  map[string]repository.Of
}

// New is an empty tally.
func New() *Tally { return &Tally{repos: map[string]*repo{}} }

func (t *Tally) repo(name string) *repo {
	r := t.repos[name]
	if r == nil {
		r = &repo{types: map[string]int{}, tasks: map[string]repository.Of{}}
		t.repos[name] = r
	}
	return r
}

// SetSpec changes which tasks are required. It reports whether that may have changed the counts.
func (t *Tally) SetSpec(name string, s repository.Spec) bool {
	r := t.repo(name)
	same := slices.Equal(r.spec.Required, s.Required) && (r.spec.URL == "") == (s.URL == "")
	r.spec = s
	if same {
		return false
	}
	r.counts, r.types = repository.Counts{}, map[string]int{}
	for _, task := range r.tasks {
		r.count(task, 1)
	}
	return true
}

// Set puts a task in place of what was known of it. It reports whether that was something else.
func (t *Tally) Set(name string, task repository.Of) bool {
	r := t.repo(name)
	old, was := r.tasks[task.ID]
	if was && old == task {
		return false
	}
	if was {
		r.count(old, -1)
	}
	r.tasks[task.ID] = task
	r.count(task, 1)
	return true
}

// Remove forgets a task, and reports whether it was known.
func (t *Tally) Remove(name, id string) bool {
	r := t.repos[name]
	if r == nil {
		return false
	}
	old, was := r.tasks[id]
	if was {
		r.count(old, -1)
		delete(r.tasks, id)
	}
	return was
}

// Forget drops a repository without tasks.
func (t *Tally) Forget(name string) {
	if r := t.repos[name]; r != nil && len(r.tasks) == 0 {
		delete(t.repos, name)
	}
}

// Tasks are the ids of the tasks of a repository, in no order.
func (t *Tally) Tasks(name string) []string {
	r := t.repos[name]
	if r == nil {
		return nil
	}
	return slices.Collect(maps.Keys(r.tasks))
}

// Failed is the task for which a repository is in error: its clone, or of the required ones that have failed (of all, where it is strict) the first by id; "" where there is none. One that failed by itself comes before those
// that another one has ended, and of these it is the one with which that began, required or not.
func (t *Tally) Failed(name string) (id string) {
	r := t.repos[name]
	if r == nil {
		return ""
	}
	for _, task := range r.tasks {
		var one repository.Counts
		one.Add(&r.spec, task)
		if one.Clone == "failed" {
			return task.ID
		}
		if (one.RequiredFailed > 0 || r.spec.Strict && one.Failed > 0) && (id == "" || r.cause(task, r.tasks[id])) {
			id = task.ID
		}
	}
	for seen := map[string]bool{id: true}; ; seen[id] = true {
		up := r.tasks[r.tasks[id].Blocked]
		if up.State != "failed" || seen[up.ID] {
			return id
		}
		id = up.ID
	}
}

// cause reports whether a task says more of why a repository is in error than another one.
func (r *repo) cause(task, other repository.Of) bool {
	if (task.Blocked == "") != (other.Blocked == "") {
		return task.Blocked == ""
	}
	return task.ID < other.ID
}

// Counts is what the tasks of a repository are like.
func (t *Tally) Counts(name string) repository.Counts {
	r := t.repos[name]
	if r == nil {
		return repository.Counts{}
	}
	c := r.counts
	c.Miss(&r.spec, func(typ string) bool { return r.types[typ] > 0 })
	return c
}

// count adds a task, or takes it away.
func (r *repo) count(task repository.Of, n int) {
	var one repository.Counts
	one.Add(&r.spec, task)
	if one.Clone != "" {
		if n < 0 {
			one = repository.Counts{}
		}
		r.counts.Clone, r.counts.Cloned = one.Clone, one.Cloned
		return
	}
	c := &r.counts
	c.Pending += n * one.Pending
	c.Queued += n * one.Queued
	c.Running += n * one.Running
	c.Succeeded += n * one.Succeeded
	c.Failed += n * one.Failed
	c.Canceled += n * one.Canceled
	c.Ending += n * one.Ending
	c.Required += n * one.Required
	c.RequiredDone += n * one.RequiredDone
	c.RequiredFailed += n * one.RequiredFailed
	if one.Ending == 0 {
		if r.types[task.Type] += n; r.types[task.Type] == 0 {
			delete(r.types, task.Type)
		}
	}
}
