// Package lost keeps which tasks are there without their repository, since when, and whose turn it is to be looked at: repositories of which nothing can be done keep no other one waiting, however many they are.
//
// A List is for one goroutine.
package lost

// The loop of consumers/orchestrator calls it: in come tasks whose repository was not seen, and what the leader says of one; out go repositories, one after another, with the tasks to look at.

import (
	"iter"
	"time"
)

// For is how long the answer that nothing is known of a repository is enough, unless a task of it is queued.
const For = time.Hour

// List has the repositories that were not seen, of which there are tasks. Use [New].
type List struct {
	all   map[string]*Repository
	turns []string // the keys of all, each once: who is next
}

// Repository is one that was not seen.
type Repository struct {
	Name   string
	since  map[string]time.Time // by the key of a task
	queued map[string]bool      // of these
	none   time.Time            // when nothing was known of it; zero is that something is, or may be
}

// New is an empty list.
func New() *List { return &List{all: map[string]*Repository{}} }

// Note is told of a task without its repository, and again when that is queued, or is not any more. It counts from the first time.
func (l *List) Note(repo, key string, queued bool, now time.Time) {
	r := l.all[repo]
	if r == nil {
		r = &Repository{Name: repo, since: map[string]time.Time{}, queued: map[string]bool{}}
		l.all[repo] = r
		l.turns = append(l.turns, repo)
	}
	if _, noted := r.since[key]; !noted {
		r.since[key] = now
	}
	if delete(r.queued, key); queued {
		r.queued[key] = true
	}
}

// Drop forgets a task.
func (l *List) Drop(repo, key string) {
	if r := l.all[repo]; r != nil {
		delete(r.since, key)
		delete(r.queued, key)
	}
}

// Changed has the answer that nothing is known of a repository count no longer.
func (l *List) Changed(repo string) {
	if r := l.all[repo]; r != nil {
		r.none = time.Time{}
	}
}

// Len is how many repositories there are: after so many turns each had its own.
func (l *List) Len() int { return len(l.turns) }

// Next is the repository whose turn it is, of a list that is not empty. One without tasks goes with that.
func (l *List) Next() *Repository {
	r := l.all[l.turns[0]]
	if l.turns = l.turns[1:]; len(r.since) == 0 {
		delete(l.all, r.Name)
	} else {
		l.turns = append(l.turns, r.Name)
	}
	return r
}

// Is says at a time whether nothing is known of the repository.
func (r *Repository) Is(none bool, now time.Time) {
	if r.none = (time.Time{}); none {
		r.none = now
	}
}

// Due are the tasks without their repository for long enough, in no order: only queued ones where nothing is known of it.
func (r *Repository) Due(now time.Time, after time.Duration) iter.Seq[string] {
	return func(yield func(string) bool) {
		none := now.Sub(r.none) < For
		if none && len(r.queued) == 0 {
			return
		}
		for key, since := range r.since {
			if now.Sub(since) >= after && (!none || r.queued[key]) && !yield(key) {
				return
			}
		}
	}
}
