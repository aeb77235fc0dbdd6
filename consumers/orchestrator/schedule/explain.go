package schedule

import (
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
	r := it.class.repo
	switch {
	case r.Paused:
		return "its repository is paused"
	case r.held >= r.Rights.Held:
		return fmt.Sprintf("its repository runs %d of %d", r.held, r.Rights.Held)
	}
	for i, e := range it.class.entries {
		name := it.Entries[i]
		free, again := e.allows(now)
		switch {
		case free:
		case e.Paused:
			return "queue " + name + " is paused"
		case !again.IsZero():
			return fmt.Sprintf("queue %s has started %d in its interval, until %s", name, e.taken, again.UTC().Format(time.RFC3339))
		default:
			return fmt.Sprintf("queue %s runs %d of %d", name, e.held, e.Limits.Held)
		}
	}
	return "it is its turn soon"
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
