package limits

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
)

// Log is what was seen. Its zero value has seen nothing.
type Log struct {
	now    uint64               // commands seen
	at     map[uint64]uint64    // the place of each, by its sequence
	values map[string][]written // by machine and key
	ids    map[string]bool      // of events
	tasks  map[string]*work     // by key
	runs   []run
	limits map[string]*limited // by entry, and by repository
}

// written is the place of the last command that a value has taken.
type written struct{ version, place uint64 }

// work is a task, as its events say.
type work struct {
	queued  uint64         // the place at which it was queued
	runs    string         // the attempt that runs; empty is none
	started map[string]int // its attempts, in the runs of the log
}

// run is an attempt.
type run struct {
	key, id             string
	scopes              []string // what limits it
	queued, start, over uint64   // places; over is 0 while it runs
}

func (r *run) String() string { return r.key + " " + r.id }

// limited is something that limits tasks.
type limited struct {
	limit   int
	paused  bool
	changes []change
}

// change is what holds from a place on.
type change struct {
	most        int
	place, told uint64 // of its command; and how many commands were stored when its event was
}

const none = math.MaxInt

// Command takes a command that was stored.
func (l *Log) Command(seq uint64) {
	if l.at == nil {
		*l = Log{at: map[uint64]uint64{}, values: map[string][]written{}, ids: map[string]bool{}, tasks: map[string]*work{}, limits: map[string]*limited{}}
	}
	l.now++
	l.at[seq] = l.now
}

// limiting reports whether an entity is a task, or limits tasks.
func limiting(x *seen.Entity) bool {
	return x.Machine == task.Machine || x.Machine == queue.Machine || x.Machine == repository.Machine
}

// Value takes a value that was stored, also once more, or in the place of some that were lost.
func (l *Log) Value(x *seen.Entity, v *seen.Value) {
	if l.values == nil || !limiting(x) {
		return
	}
	id := x.String()
	list := l.values[id]
	for len(list) > 0 && list[len(list)-1].version >= v.Version {
		list = list[:len(list)-1]
	}
	l.values[id] = append(list, written{v.Version, l.at[v.Mark]})
}

// place is that of the command which has made a version. Several versions that were written at once have that of the last one.
func (l *Log) place(x *seen.Entity, version uint64) uint64 {
	for _, w := range l.values[x.String()] {
		if w.version >= version {
			return w.place
		}
	}
	return l.now
}

// Event takes an event that was stored, and says what is wrong with the ends of attempts. It takes each once.
func (l *Log) Event(x *seen.Entity, ev *seen.Event) string {
	if !ev.Numbered || l.ids == nil || l.ids[ev.EventID] || !limiting(x) {
		return ""
	}
	l.ids[ev.EventID] = true
	place := l.place(x, ev.Version)
	switch x.Machine {
	case task.Machine:
		return l.task(x, ev, place)
	case queue.Machine:
		l.queue(x.Key, ev, place)
	case repository.Machine:
		l.repository(x.Key, ev, place)
	}
	return ""
}

func (l *Log) task(x *seen.Entity, ev *seen.Event, place uint64) string {
	t := l.tasks[x.Key]
	if t == nil {
		t = &work{started: map[string]int{}}
		l.tasks[x.Key] = t
	}
	if ev.To == task.Queued && ev.From != task.Queued {
		t.queued = place
	}
	var d struct{ AttemptID, Type, Pool string }
	_ = json.Unmarshal(ev.Data, &d) // of other events anything
	switch ev.Type {
	case task.EventStarted:
		before := t.runs
		t.runs, t.started[d.AttemptID] = d.AttemptID, len(l.runs)
		l.runs = append(l.runs, run{key: x.Key, id: d.AttemptID, scopes: scopes(x.Key, d.Type, d.Pool), queued: t.queued, start: place})
		if before != "" {
			return fmt.Sprintf("attempt %s was started, and %s has not ended", d.AttemptID, before)
		}
	case task.EventSucceeded, task.EventFailed, task.EventRetrying, task.EventSnoozed, task.EventCanceled, task.EventReset:
		if d.AttemptID == "" {
			break // it did not run
		}
		named := t.runs == d.AttemptID
		if named {
			l.runs[t.started[t.runs]].over, t.runs = place, ""
		}
		if of := l.result(ev, d.AttemptID); !named || of != d.AttemptID {
			return fmt.Sprintf("event %s ends attempt %s by a result of %s: %s", ev.EventID, d.AttemptID, of, l.stands(t, of))
		}
	}
	return ""
}

// result is the attempt whose result an event is of; where it is of none, that which it names.
func (l *Log) result(ev *seen.Event, named string) string {
	if ev.Attempt != "" && (ev.Command == task.ReportDone || ev.Command == task.ReportRunFailed) {
		return ev.Attempt
	}
	return named
}

func (l *Log) stands(t *work, id string) string {
	switch i, ok := t.started[id]; {
	case !ok:
		return "that was never started"
	case l.runs[i].over > 0:
		return "that has ended"
	}
	return "that runs"
}

// Left says which attempt of a task has no end, and is not under way.
func (l *Log) Left(x *seen.Entity) string {
	t, v := l.tasks[x.Key], x.Last()
	if x.Machine.Name != task.Machine.Name || t == nil || t.runs == "" {
		return ""
	}
	var d struct{ AttemptID string }
	_ = json.Unmarshal(v.Data, &d)
	if v.State == task.Running && d.AttemptID == t.runs && len(v.Effects) > 0 {
		return ""
	}
	return fmt.Sprintf("attempt %s of %s has no end, and it is %s", t.runs, x, v.State)
}

func (l *Log) queue(key string, ev *seen.Event, place uint64) {
	c := l.limited(key)
	switch ev.Type {
	case queue.EventConfigured:
		var d queue.Settings
		_ = json.Unmarshal(ev.Data, &d)
		c.limit = d.Limit
	case queue.EventPaused:
		c.paused = true
	case queue.EventResumed:
		c.paused = false
	case queue.EventDeleted:
		c.limit, c.paused = 0, false
	default:
		return
	}
	most := c.limit
	if most == 0 {
		most = unset(key)
	}
	c.changed(most, place, l.now)
}

// unset is the limit of an entry that has none.
func unset(key string) int {
	if key == "default."+queue.Cluster {
		return queue.DefaultLimit
	}
	return none
}

func (l *Log) repository(key string, ev *seen.Event, place uint64) {
	c := l.limited(repo + key)
	switch ev.Type {
	case repository.EventCreated, repository.EventConfigured:
		var d repository.Spec
		_ = json.Unmarshal(ev.Data, &d)
		c.limit = d.Limit()
	case repository.EventPaused:
		c.paused = true
	case repository.EventResumed:
		c.paused = false
	case repository.EventDeleted: // nothing of it starts until it is created again, which asks for no limit
		c.limit, c.paused = none, false
	default:
		return
	}
	c.changed(c.limit, place, l.now)
}

func (l *Log) limited(name string) *limited {
	c := l.limits[name]
	if c == nil {
		c = &limited{}
		l.limits[name] = c
	}
	return c
}

func (c *limited) changed(most int, place, told uint64) {
	if c.paused {
		most = 0
	}
	c.changes = append(c.changes, change{most, place, told})
}

// most is the highest limit that may have held when a start was decided: at any time since the task was queued. A change that was told before that has taken the place of what held before it, and one that was stored
// after the start has no part in it.
func (l *Log) most(name string, r *run) int {
	most := unset(name)
	c := l.limits[name]
	if c == nil {
		return most
	}
	for _, ch := range c.changes {
		switch {
		case ch.place > r.start:
		case ch.told < r.queued:
			most = ch.most
		default:
			most = max(most, ch.most)
		}
	}
	return most
}

const repo = "repository "

// scopes are what limits an attempt of a task.
func scopes(key, typ, pool string) []string {
	namespace, rest, _ := strings.Cut(key, ".")
	parent, _, _ := strings.Cut(rest, ".")
	of := queue.Of(typ, pool)
	return []string{"default." + queue.Cluster, namespace + "." + of[0], namespace + "." + of[1], namespace + "." + of[2], repo + namespace + "." + parent}
}

// Exceeded says at which start more ran than the highest limit allows that may have held then, by repository, type, pool, and in all. It asks for all events.
func (l *Log) Exceeded() string {
	for i := range l.runs {
		r := &l.runs[i]
		for s, name := range r.scopes {
			var at []string
			for j := range l.runs {
				o := &l.runs[j]
				if o.scopes[s] == name && o.start <= r.start && (o.over == 0 || o.over > r.start || i == j) {
					at = append(at, o.String())
				}
			}
			if most := l.most(name, r); len(at) > most {
				return fmt.Sprintf("when %s was started, command %d of those that were seen, %d of %s ran, and at most %d may: %s", r, r.start, len(at), name, most, strings.Join(at, ", "))
			}
		}
	}
	return ""
}
