package orchestrator

// What repositories are told. repository takes a change of one; tell goes through those that are dirty: it has the tasks made that a new one asks for (prepare), reports counts that lead to
// another state at once and others twice a second (report), and empties one that is deleted (empty). Reports are asked one at a time for each repository, so they arrive in their order.

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	mostAsked   = 64                     // at a time
	mostReason  = 256                    // bytes of why a repository is in error, as of every reason
	statesEvery = 50 * time.Millisecond  // changes of the state: two nodes that schedule for a moment, and see different tasks, take turns
	countsEvery = 500 * time.Millisecond // counts that do not change the state
	countsMost  = 5 * time.Second        // the same, where many repositories have changed
	askWithin   = 10 * time.Second
	lookEvery   = 20 * time.Millisecond // between two looks at those that wait for their time
	askAgain    = 2 * time.Second       // after an error, and for a revision that does not come
	askMost     = time.Minute           // the same, after many errors and refusals
)

// repo is a repository as it is stored, and what it is being told.
type repo struct {
	data       *repository.Data
	state      string
	version    uint64
	generation uint64

	parked  bool // its value cannot be read: nothing of it is known, and every command to it would become a dead letter
	asking  bool
	awaits  uint64               // version that the last answer named
	told    time.Time            // when the last report was answered
	known   *repository.Observed // what the last report said, if it changed nothing
	older   time.Time            // when a node of before refused a report for cloneAsked, which it does not know
	reports backoff              // of what the repository is told
	makes   backoff              // of the tasks that it asks for: one that cannot be made keeps no count back
	cloned  uint64               // generation whose clone was asked for
	asked   uint64               // version that the task which clones has since then
	applied uint64               // generation whose tasks were made
	emptying
}

// backoff is when something may be asked again.
type backoff struct {
	not    time.Time // not before
	failed int       // questions in a row that were refused, or not answered
}

// fail waits longer each time: a refusal changes nothing, and may come again for as long as something is parked.
func (b *backoff) fail(now time.Time) {
	b.not = now.Add(min(askAgain<<min(b.failed, 8), askMost))
	b.failed++
}

// answer is what became of a question.
type answer struct {
	repo     string
	prepares bool // it was about tasks that a repository asks for, not what that is told
	version  uint64
	cloned   uint64
	asked    uint64
	applied  uint64
	busy     bool                 // it is to be asked again a little later
	known    *repository.Observed // what was said, and changed nothing
	older    bool                 // a node of before does not know what was said
	err      error
}

// startable reports whether tasks of a repository may be started at all.
func (l *loop) startable(name string) bool {
	r := l.repos[name]
	return r != nil && !r.parked && r.state != repository.Deleting
}

// repository takes a change of a repository.
func (l *loop) repository(item index.Item, deleted bool) {
	d, _ := item.Value.(*repository.Data)
	before := l.repos[item.Key]
	if item.Problem != "" {
		if before != nil && !before.parked {
			before.parked = true
			l.retask(item.Key)
		}
		return
	}
	l.dirty[item.Key] = struct{}{}
	l.lonely.Changed(item.Key)
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
		r = &repo{}
		l.repos[item.Key] = r
	}
	anew := before == nil || r.parked || r.data.URL != d.URL || (r.state == repository.Deleting) != (item.State == repository.Deleting)
	if item.Generation < r.generation {
		r.applied, r.cloned = 0, 0
	}
	if item.Generation != r.generation {
		r.makes = backoff{}
	}
	if item.Version != r.version {
		r.reports, r.known = backoff{}, nil
	}
	r.data, r.state, r.version, r.generation, r.parked = d, item.State, item.Version, item.Generation, false
	l.tally.SetSpec(item.Key, d.Spec)
	rights := schedule.Rights{Held: d.Limit(), Weight: d.Share(), Paused: d.Paused != nil}
	if rights.Paused {
		rights.Why = pausedBy(d.Paused.By, d.Paused.Reason)
	}
	l.sched.SetRepository(item.Key, rights)
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
		if l.asking >= mostAsked { // whoever is answered makes room, and wakes the loop
			break
		}
		delete(l.dirty, name)
		if at := l.look(name, now); !at.IsZero() {
			l.later[name] = at
			l.next = earlier(l.next, at)
		}
	}
	if soon := now.Add(lookEvery); !l.next.IsZero() && l.next.Before(soon) { // one look for all that come together
		l.next = soon
	}
	return l.next
}

// look does what is due for a repository, and returns when to look again; zero is when it changes, or is answered.
func (l *loop) look(name string, now time.Time) time.Time {
	r := l.repos[name]
	switch {
	case r == nil, r.asking, r.parked:
		return time.Time{}
	case r.version < r.awaits && now.Sub(r.told) < askAgain: // the index has not seen the last report
		return r.told.Add(askAgain)
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
	var again time.Time
	switch {
	case r.state == repository.Deleting:
		again = l.empty(name, r, now)
	case max(r.applied, r.data.Applied) >= r.generation:
	case now.Before(r.makes.not):
		again = r.makes.not
	default:
		l.prepare(name, r)
		return time.Time{}
	}
	if now.Before(r.reports.not) {
		return earlier(again, r.reports.not)
	}
	stored := repository.Counts{}
	if r.data.Tasks != nil {
		stored = *r.data.Tasks
	}
	o := repository.Observed{Counts: counts}
	switch {
	case r.applied > r.data.Applied:
		o.Applied = r.applied
	case r.data.Clone && r.cloned == r.generation && now.Sub(r.older) >= askMost: // some of its tasks cannot be made
		o.CloneAsked = r.cloned
	}
	if o.Applied+o.CloneAsked > 0 && !l.counted(name, r, &counts) { // what is known of the clone is of the one before, and would say that this one is done
		o.Applied, o.CloneAsked, again = 0, 0, earlier(again, now.Add(statesEvery))
	}
	state := r.state
	if r.state != repository.Deleting {
		state = r.data.After(&o, r.generation).Derive(&counts)
	}
	switch {
	case r.known != nil && *r.known == o && now.Sub(r.told) < askMost: // a node of before derives another state from it
		return earlier(again, r.told.Add(askMost))
	case o.CloneAsked+o.Applied > 0, r.state == repository.Deleting && counts.Tasks() == 0:
	case state != r.state:
		if at := r.told.Add(statesEvery); now.Before(at) {
			return earlier(again, at)
		}
	case counts == stored:
		return again
	case now.Sub(r.told) < l.countsAfter():
		return earlier(again, r.told.Add(l.countsAfter()))
	}
	failed := ""
	if state == repository.Error {
		failed = l.tally.Failed(name)
	}
	l.ask(name, r, func(ctx context.Context) answer {
		a, err := l.command(ctx, publish.Command{
			Machine: repository.Machine.Name, Key: name, Name: repository.ReportObserved, Body: report(o), Reason: l.failure(ctx, name, failed),
		})
		told := answer{version: a.Version, err: err}
		switch {
		case err != nil:
		case a.Refusal != nil && a.Refusal.Code == machines.CodeValidation && o.CloneAsked > 0:
			told.older = true
		case a.Refusal != nil:
			told.err = a.Refusal
		case a.Outcome == machines.Unchanged:
			told.known = &o
		}
		return told
	})
	return again
}

// counted reports whether counts know of the clone that was asked for last.
func (l *loop) counted(name string, r *repo, c *repository.Counts) bool {
	item, ok := l.Tasks.Get(name + "." + repository.CloneTask)
	return !ok || r.data.URL == "" || item.Problem != "" || item.Version >= r.asked && (item.State == c.Clone || item.State == task.Deleted)
}

// failure is why a repository is in error, for whom reads only that: what its leader says of the task that has failed, "" without one.
func (l *loop) failure(ctx context.Context, name, id string) string {
	if id == "" {
		return ""
	}
	why := "the task " + id + " has failed"
	if m, err := l.Value(ctx, task.Machine, name+"."+id); err == nil && !kv.Absent(m) {
		if e, err := task.Machine.Decode(m.Data); err == nil && e.LastError != nil {
			why += ": " + e.LastError.Message
		}
	}
	return strings.ToValidUTF8(why[:min(len(why), mostReason)], "")
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
	r.asking = false
	again := &r.makes
	if !a.prepares {
		again, r.told, r.known = &r.reports, now, nil
		if a.version >= r.version { // else it has changed since
			r.known = a.known
		}
	}
	if a.older {
		r.older = now
	}
	r.awaits, r.cloned, r.asked, r.applied = max(r.awaits, a.version), max(r.cloned, a.cloned), max(r.asked, a.asked), max(r.applied, a.applied)
	if a.err != nil {
		if l.ctx.Err() == nil {
			l.Log.Warn("a repository cannot be told, or given its tasks; trying again", "repository", a.repo, "error", a.err)
		}
		again.fail(now)
		return
	}
	*again = backoff{}
	if a.busy {
		again.not = now.Add(countsEvery)
	}
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
