package orchestrator

// What repositories are told. repository takes a change of one; tell goes through those that are dirty: it has the tasks made that a new one asks for (prepare), reports counts that lead to
// another state at once and others twice a second (report), and empties one that is deleted (empty). Reports are asked one at a time for each repository, so they arrive in their order.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	mostAsked   = 64                     // at a time
	countsEvery = 500 * time.Millisecond // counts that do not change the state
	countsMost  = 5 * time.Second        // the same, where many repositories have changed
	askWithin   = 10 * time.Second
	askLater    = 20 * time.Millisecond // when as many are asked as may be
	askAgain    = 2 * time.Second       // after an error, and for a revision that does not come
)

// repo is a repository as it is stored, and what it is being told.
type repo struct {
	data       *repository.Data
	state      string
	version    uint64
	generation uint64

	asking  bool
	awaits  uint64    // version that the last answer named
	told    time.Time // when the last report was answered
	not     time.Time // before this nothing is asked
	applied uint64    // generation whose tasks were made
	sent    map[string]string
}

// answer is what became of a question.
type answer struct {
	repo    string
	version uint64
	applied uint64
	err     error
}

// startable reports whether tasks of a repository may be started at all.
func (l *loop) startable(name string) bool {
	return l.repos[name] != nil && l.repos[name].state != repository.Deleting
}

// repository takes a change of a repository.
func (l *loop) repository(item index.Item, deleted bool) {
	d, _ := item.Value.(*repository.Data)
	if item.Problem != "" {
		return
	}
	l.dirty[item.Key] = struct{}{}
	before := l.repos[item.Key]
	if deleted || d == nil || item.State == repository.Deleted {
		delete(l.repos, item.Key)
		l.sched.ForgetRepository(item.Key)
		l.tally.Forget(item.Key)
		if before != nil {
			l.retask(item.Key)
		}
		return
	}
	r := before
	if r == nil {
		r = &repo{sent: map[string]string{}}
		l.repos[item.Key] = r
	}
	anew := before == nil || r.data.URL != d.URL || (r.state == repository.Deleting) != (item.State == repository.Deleting)
	if item.Generation < r.generation {
		r.applied = 0
	}
	r.data, r.state, r.version, r.generation = d, item.State, item.Version, item.Generation
	l.tally.SetSpec(item.Key, d.Spec)
	l.sched.SetRepository(item.Key, schedule.Rights{Held: d.Limit(), Weight: d.Share(), Paused: d.Paused != nil})
	if anew {
		l.retask(item.Key)
	}
}

// retask looks at all tasks of a repository again: whether they may start has changed.
func (l *loop) retask(name string) {
	for _, id := range l.tally.Tasks(name) {
		if item, ok := l.Tasks.Get(name + "." + id); ok {
			l.task(item, false)
		}
	}
}

// tell goes through the repositories that have changed, and those that were to be looked at again. It returns when it is to be called again, if nothing else happens; zero is never.
func (l *loop) tell() (again time.Time) {
	now := l.clock()
	if !l.next.IsZero() && !now.Before(l.next) {
		l.next = time.Time{}
		for name, at := range l.later {
			if now.Before(at) {
				l.next = earlier(l.next, at)
				continue
			}
			delete(l.later, name)
			l.dirty[name] = struct{}{}
		}
	}
	for name := range l.dirty {
		if at := l.look(name, now); !at.IsZero() {
			l.later[name] = at
			l.next = earlier(l.next, at)
		}
	}
	clear(l.dirty)
	return l.next
}

// look does what is due for a repository, and returns when to look again; zero is when it changes, or is answered.
func (l *loop) look(name string, now time.Time) time.Time {
	r := l.repos[name]
	switch {
	case r == nil, r.asking:
		return time.Time{}
	case l.asking >= mostAsked:
		return now.Add(askLater)
	case r.version < r.awaits && now.Sub(r.told) < askAgain: // the index has not seen the last report
		return r.told.Add(askAgain)
	case now.Before(r.not):
		return r.not
	}
	return l.tellOne(name, r, now)
}

// countsAfter is the least time between two reports that do not change the state, so that there are at most 40 a second of all repositories, until there are very many.
func (l *loop) countsAfter() time.Duration {
	return min(countsEvery*time.Duration(max(1, len(l.later)/20)), countsMost)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// tellOne does what is due for one repository. It returns when to look again; zero is when it changes. What it asks makes the repository dirty when it is answered.
func (l *loop) tellOne(name string, r *repo, now time.Time) time.Time {
	counts := l.tally.Counts(name)
	if r.state == repository.Deleting {
		l.empty(name, r)
	} else if applied := max(r.applied, r.data.Applied); applied < r.generation {
		l.prepare(name, r)
		return time.Time{}
	}
	stored := repository.Counts{}
	if r.data.Tasks != nil {
		stored = *r.data.Tasks
	}
	applied := uint64(0)
	if r.applied > r.data.Applied {
		applied = r.applied
	}
	state := r.state
	if r.state != repository.Deleting {
		state = repository.Derive(&r.data.Spec, &counts)
	}
	switch {
	case state != r.state, applied > 0, r.state == repository.Deleting && counts.Tasks() == 0:
	case counts == stored:
		return time.Time{}
	case now.Sub(r.told) < l.countsAfter():
		return r.told.Add(l.countsAfter())
	}
	l.ask(name, r, func(ctx context.Context) answer {
		a, err := l.command(ctx, publish.Command{
			Machine: repository.Machine.Name, Key: name, Name: repository.ReportObserved, Body: report(repository.Observed{Counts: counts, Applied: applied}),
		})
		return answer{repo: name, version: a.Version, err: err}
	})
	return time.Time{}
}

// ask has something done beside the loop, and its answer taken there.
func (l *loop) ask(name string, r *repo, do func(context.Context) answer) {
	r.asking = true
	l.asking++
	ctx := l.ctx
	go func() {
		ctx, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		a := do(ctx)
		a.repo = name
		l.answers <- a // has room for all that may be asked
	}()
}

func (l *loop) answered(a answer) {
	l.asking--
	r := l.repos[a.repo]
	l.dirty[a.repo] = struct{}{}
	if r == nil {
		return
	}
	now := l.clock()
	r.asking, r.told = false, now
	if a.err != nil {
		if l.ctx.Err() == nil {
			l.Log.Warn("a repository cannot be told; trying again", "repository", a.repo, "error", a.err)
		}
		r.not = now.Add(askAgain)
		return
	}
	r.awaits = max(r.awaits, a.version)
	r.applied = max(r.applied, a.applied)
}

// command asks for the answer of a command. A refusal is no error: what is stored decides what is asked next.
func (l *loop) command(ctx context.Context, c publish.Command) (machines.Answer, error) {
	c.Actor = actor
	var a machines.Answer
	m, err := l.Commands.AskMsg(ctx, c, nil)
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	return a, err
}

// prepare makes the tasks that a repository asks for, and has it cloned.
func (l *loop) prepare(name string, r *repo) {
	generation, spec, clone := r.generation, r.data.Spec, r.data.Clone && r.data.URL != ""
	l.ask(name, r, func(ctx context.Context) answer {
		if clone {
			if err := l.makeClone(ctx, name, generation); err != nil {
				return answer{err: err}
			}
		}
		for i, typ := range spec.Analyses {
			if err := l.makeTask(ctx, name, typ, task.CreateBody{Spec: task.Spec{Type: typ, SortOrder: i}}); err != nil {
				return answer{err: err}
			}
		}
		return answer{applied: generation}
	})
}

// makeClone has the repository cloned: by the task that is there, or by a new one.
func (l *loop) makeClone(ctx context.Context, name string, generation uint64) error {
	key, batch := name+"."+repository.CloneTask, fmt.Sprint("clone-", generation)
	body, err := json.Marshal(task.RunBody{Again: true, Order: task.Order{Batch: batch}})
	if err != nil {
		return err
	}
	a, err := l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandRun, Body: body})
	if err != nil || a.Refusal == nil {
		return err
	}
	return l.makeTask(ctx, name, repository.CloneTask, task.CreateBody{Spec: task.Spec{Type: repository.CloneTask, Priority: 1, SortOrder: -1_000_000}, Run: true, Order: task.Order{Batch: batch}})
}

// makeTask creates a task unless it is there.
func (l *loop) makeTask(ctx context.Context, repo, id string, b task.CreateBody) error {
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	a, err := l.command(ctx, publish.Command{Machine: task.Machine.Name, Key: repo + "." + id, Name: task.CommandCreate, Body: body})
	if err == nil && a.Refusal != nil && a.Refusal.Code != machines.CodeExists {
		err = fmt.Errorf("task %s.%s: %w", repo, id, a.Refusal)
	}
	return err
}

// empty cancels and deletes the tasks of a repository that is deleted, each once until it changes.
func (l *loop) empty(name string, r *repo) {
	for _, id := range l.tally.Tasks(name) {
		item, ok := l.Tasks.Get(name + "." + id)
		if !ok || r.sent[id] == item.State {
			continue
		}
		r.sent[id] = item.State
		c := publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: task.CommandDelete, Reason: "its repository is deleted"}
		switch item.State {
		case task.Deleting, task.Deleted:
			continue
		case task.Running:
			c.Name = task.CommandCancel
		}
		l.send(c)
	}
}
