package documents

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// doc is a document, or the mark that one was deleted.
type doc struct {
	name    string
	size    int64
	at      time.Time
	seq     uint64 // of its mark
	nuid    string // of its parts
	deleted bool
}

// place is what the name of a document says: <namespace>/<repository>/<task>/<enqueuing>/<attempt>/<rest>.
type place struct {
	task    string // <namespace>.<repository>.<task>
	repo    string // <namespace>/<repository>
	enqueue uint64
}

func placeOf(name string) (p place, ok bool) {
	parts := strings.SplitN(name, "/", 6)
	if len(parts) < 6 {
		return p, false
	}
	n, err := strconv.ParseUint(parts[3], 10, 64)
	return place{task: parts[0] + "." + parts[1] + "." + parts[2], repo: parts[0] + "/" + parts[1], enqueue: n}, err == nil
}

// index is what is known of the bucket. What is in it by other names than those of tasks counts for nothing.
type index struct {
	mu    sync.Mutex
	all   map[string]doc
	tasks map[string]map[string]struct{} // names, by task
	repos map[string]map[string]struct{} // the same, by repository
	bytes int64
	seen  uint64        // sequence of the last message
	more  chan struct{} // closed when seen rises
}

func newIndex() *index {
	return &index{all: map[string]doc{}, tasks: map[string]map[string]struct{}{}, repos: map[string]map[string]struct{}{}, more: make(chan struct{})}
}

// set takes what is stored under a name.
func (x *index) set(d doc, seq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(d.name)
	x.all[d.name] = d
	if p, ok := placeOf(d.name); ok && !d.deleted {
		x.bytes += d.size
		put(x.tasks, p.task, d.name)
		put(x.repos, p.repo, d.name)
	}
	x.see(seq)
}

// pass is for a message that says nothing of a document: who waits for all that is stored does not wait for it.
func (x *index) pass(seq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.see(seq)
}

func (x *index) see(seq uint64) {
	if seq > x.seen {
		x.seen = seq
		close(x.more)
		x.more = make(chan struct{})
	}
}

// mark takes a document as deleted, until its mark is seen.
func (x *index) mark(name string, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[name].deleted {
		return
	}
	x.drop(name)
	x.all[name] = doc{name: name, at: at, deleted: true}
}

// forget is for what is not even marked any more.
func (x *index) forget(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(name)
}

func (x *index) drop(name string) {
	old, was := x.all[name]
	if !was {
		return
	}
	delete(x.all, name)
	if p, ok := placeOf(name); ok && !old.deleted {
		x.bytes -= old.size
		take(x.tasks, p.task, name)
		take(x.repos, p.repo, name)
	}
}

func put(m map[string]map[string]struct{}, key, name string) {
	if m[key] == nil {
		m[key] = map[string]struct{}{}
	}
	m[key][name] = struct{}{}
}

func take(m map[string]map[string]struct{}, key, name string) {
	if delete(m[key], name); len(m[key]) == 0 {
		delete(m, key)
	}
}

// of are the documents in one of the groups, the oldest first.
func (x *index) of(group map[string]map[string]struct{}, key string) []doc {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]doc, 0, len(group[key]))
	for name := range group[key] {
		list = append(list, x.all[name])
	}
	slices.SortFunc(list, older)
	return list
}

func older(a, b doc) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) }

// keys are the tasks that have documents.
func (x *index) keys() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.tasks))
}

func (x *index) has(task string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.tasks[task]) > 0
}

// crowded are the repositories with more than so many documents.
func (x *index) crowded(most int) (list []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for repo, names := range x.repos {
		if len(names) > most {
			list = append(list, repo)
		}
	}
	return list
}

func (x *index) size() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytes
}

// clear forgets everything: it is read from the beginning.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.all)
	clear(x.tasks)
	clear(x.repos)
	x.bytes, x.seen = 0, 0
}

// oldest are so many documents of tasks that together they have at least some bytes more than there may be, the oldest first.
func (x *index) oldest(most int64) (list []doc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	over := x.bytes - most
	if over <= 0 {
		return nil
	}
	for _, d := range x.all {
		if _, ok := placeOf(d.name); ok && !d.deleted {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, older)
	for i, d := range list {
		if over -= d.size; over <= 0 {
			return list[:i+1]
		}
	}
	return list
}

// where are the documents, or the marks of deleted ones, that are of before a time.
func (x *index) where(deleted bool, before time.Time) (list []doc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.all {
		if _, ok := placeOf(d.name); ok && d.deleted == deleted && d.at.Before(before) {
			list = append(list, d)
		}
	}
	return list
}

// parts are the ids under which the parts of documents are stored.
func (x *index) parts() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[string]bool, len(x.all))
	for _, d := range x.all {
		if !d.deleted {
			all[d.nuid] = true
		}
	}
	return all
}

// upTo returns a channel that is closed when more was seen, or nil when everything up to a sequence was.
func (x *index) upTo(seq uint64) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen >= seq {
		return nil
	}
	return x.more
}
