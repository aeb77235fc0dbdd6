package schedule

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Explain says why a task does not start now; it is empty for one that is not known. It changes nothing.
func (s *Scheduler) Explain(key string, now time.Time) string {
	it := s.items[key]
	if it == nil {
		return ""
	}
	switch it.where {
	case inHeld:
		return "it has a slot"
	case inFuture:
		return "it is not before " + it.NotBefore.UTC().Format(time.RFC3339)
	case inWaiters:
		if u, ok := strings.CutPrefix(it.waits, "unique "); ok {
			return fmt.Sprintf("another task has its unique key %s", u)
		}
		return "it runs after " + it.waits + ", which has not succeeded"
	}
	_, text := it.class.against(now)
	return text
}

// Reasons why a task waits.
const (
	ForTime       = "time"       // it is not before a later time
	ForDependency = "dependency" // another task has to succeed first
	ForUnique     = "unique"     // another one has its unique key
	ForPause      = "pause"      // its repository or a queue is paused
	ForWorker     = "worker"     // no worker would take it
	ForLimit      = "limit"      // its repository or a queue runs as many as it may
	ForRate       = "rate"       // a queue has started as many in its interval as it may
	ForTurn       = "turn"       // nothing is against it but those before it
)

// Reasons are all of them.
var Reasons = []string{ForTime, ForDependency, ForUnique, ForPause, ForWorker, ForLimit, ForRate, ForTurn}

// against is what keeps the tasks of a class from being started, as a reason and for people.
func (c *class) against(now time.Time) (reason, text string) {
	r := c.repo
	switch {
	case r.Paused:
		return ForPause, "its repository is paused" + r.Why
	case r.held >= r.Rights.Held:
		return ForLimit, fmt.Sprintf("its repository runs %d of %d", r.held, r.Rights.Held)
	}
	for i, e := range c.entries { // which somebody has to end, whatever becomes free
		if e.Paused {
			return ForPause, "queue " + c.names[i] + " is paused" + e.Why
		}
	}
	for i, e := range c.entries {
		if e.Away {
			return ForWorker, cmp.Or(e.Why, "no worker of "+c.names[i]+" asks for tasks")
		}
	}
	for i, e := range c.entries {
		name := c.names[i]
		free, again := e.allows(now)
		switch {
		case free:
		case !again.IsZero():
			return ForRate, fmt.Sprintf("queue %s has started %d in its interval, until %s", name, e.taken, again.UTC().Format(time.RFC3339))
		default:
			return ForLimit, fmt.Sprintf("queue %s runs %d of %d", name, e.held, e.Limits.Held)
		}
	}
	return ForTurn, "it is its turn soon"
}

// Stand is how many tasks wait, and for what.
type Stand struct {
	Waiting map[string]int // by reason; those for which none waits are not there
	Held    int
	Oldest  time.Duration // that a task has been due without having been started; of those whose time has not come, and that wait for another one, it says nothing
}

// Stand counts what there is. It looks at every task once.
func (s *Scheduler) Stand(now time.Time) Stand {
	st := Stand{Waiting: map[string]int{}, Held: s.held}
	classes := map[*class]string{}
	for _, it := range s.items {
		switch it.where {
		case inFuture:
			st.Waiting[ForTime]++
		case inWaiters:
			if strings.HasPrefix(it.waits, "unique ") {
				st.Waiting[ForUnique]++
			} else {
				st.Waiting[ForDependency]++
			}
		case inReady:
			reason := classes[it.class]
			if reason == "" {
				reason, _ = it.class.against(now)
				classes[it.class] = reason
			}
			st.Waiting[reason]++
			due := it.Queued
			if it.NotBefore.After(due) {
				due = it.NotBefore
			}
			st.Oldest = max(st.Oldest, now.Sub(due))
		}
	}
	return st
}

// Cycle returns the keys of a cycle that a task would close by running after others, or nil. after says what a task runs after.
func Cycle(key string, runsAfter []string, after func(key string) []string) []string {
	seen := map[string]bool{}
	var path []string
	var visit func(at string) bool
	visit = func(at string) bool {
		if at == key {
			path = append(path, at)
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, next := range after(at) {
			if visit(next) {
				path = append(path, at)
				return true
			}
		}
		return false
	}
	for _, first := range runsAfter {
		if visit(first) {
			path = append(path, key)
			for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
				path[i], path[j] = path[j], path[i]
			}
			return path
		}
	}
	return nil
}
