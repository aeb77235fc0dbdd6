package index

// Lists and counts from the table. List takes a Query and returns a Page in the order of keys (other orders are in order.go):
// matcher picks the smallest sets that hold all matches, and scan merges these and checks each row, in pieces between which the
// lock is free. Counts copies what the table counts by namespace and state. Package api and the catalog of discovery call it.

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Query selects items. Fields that are set must all match.
type Query struct {
	Namespace string // the key's first token
	Parent    string // the second of three
	States    []string
	Labels    []Selector

	UpdatedAfter, UpdatedBefore time.Time // both exclusive
	CreatedAfter, CreatedBefore time.Time // both exclusive
	SinceBefore                 time.Time // in their state since before then

	IDPrefix string              // of the key's last token
	Keys     map[string]struct{} // nil: any

	Problems bool   // only items with a Problem
	After    string // only keys after this one
	Limit    int    // of items in the page; 0 is 100

	Order     Order
	AfterTime time.Time // with an Order by time: only what comes after this time and the key After
}

// Page is a part of an answer.
type Page struct {
	Items    []Item
	Next     string    // After of the next page; empty if this is the last one
	NextTime time.Time // AfterTime of the next page
	Revision uint64    // all writes up to here are in the page
}

// piece is how many rows are visited under one hold of the lock.
const piece = 4096

// List returns the first items that match, in the order of q.Order, after q.After.
func (ix *Index) List(q Query) Page {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	if q.Order.By != ByKey {
		return ix.ordered(q)
	}
	var p Page
	p.Revision = ix.visit(&q, func(t *table, r *row) bool {
		if len(p.Items) == q.Limit {
			p.Next = p.Items[q.Limit-1].Key
			return false
		}
		p.Items = append(p.Items, t.item(r))
		return true
	})
	return p
}

// Counts is the number of items by state in a namespace, or in all if it is empty.
func (ix *Index) Counts(namespace string) map[string]int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	counts := make(map[string]int)
	if namespace == "" {
		for name, s := range ix.table.states {
			if n := s.rows.len(); n > 0 {
				counts[name] = n
			}
		}
		return counts
	}
	if sp := ix.table.spaces[namespace]; sp != nil {
		for s, n := range sp.states {
			counts[s.name] = n
		}
	}
	return counts
}

// CountsByNamespace is [Index.Counts] of every namespace that has items.
func (ix *Index) CountsByNamespace() map[string]map[string]int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	all := make(map[string]map[string]int, len(ix.table.spaces))
	for namespace, sp := range ix.table.spaces {
		counts := make(map[string]int, len(sp.states))
		for s, n := range sp.states {
			counts[s.name] = n
		}
		all[namespace] = counts
	}
	return all
}

// prefix is that of all keys that can match.
func (q *Query) prefix() string {
	switch {
	case q.Namespace == "":
		return ""
	case q.Parent == "":
		return q.Namespace + "."
	}
	return q.Namespace + "." + q.Parent + "."
}

func (q *Query) start() string {
	if q.After == "" {
		return q.prefix()
	}
	return max(q.prefix(), after(q.After))
}

// after is the least key that is greater.
func after(key string) string { return key + "\x00" }

// scan visits up to a piece of the rows from start on, and returns where to continue, if there are more and see has not
// seen enough.
func (t *table) scan(q *Query, start string, see func(*table, *row) bool) (next string, more bool) {
	m := t.matcher(q)
	if m.none {
		return "", false
	}
	prefix := q.prefix()
	cursors := make([]cursor, 0, len(m.sets))
	for _, s := range m.sets {
		if c := s.from(start); c.row != nil {
			cursors = append(cursors, c)
		}
	}
	for n, missed := 0, 0; len(cursors) > 0; n++ {
		least := 0
		for i := range cursors {
			if cursors[i].row.key < cursors[least].row.key {
				least = i
			}
		}
		r := cursors[least].row
		if !strings.HasPrefix(r.key, prefix) {
			return "", false
		}
		if n == piece {
			return r.key, true
		}
		if m.match(r) && !see(t, r) {
			return "", false
		}
		c := &cursors[least]
		if missed = m.advance(c, missed); c.row == nil {
			cursors = slices.Delete(cursors, least, least+1)
		}
	}
	return "", false
}

// fewMisses is after how many rows whose ids begin otherwise it is cheaper to look for the next one that may match than to go on from row to row.
const fewMisses = 8

// advance moves a cursor on, past what cannot match where so many rows before it did not begin as is wanted. It returns how many that are now.
func (m *matcher) advance(c *cursor, missed int) int {
	next := m.behind(c.row.key)
	if next == "" {
		c.next()
		return 0
	}
	if missed++; missed < fewMisses {
		c.next()
	} else {
		c.seek(next)
	}
	return missed
}

// behind is the least key at which an id may begin as is wanted, behind a key whose id does not; empty where it does. All keys of an index have as many tokens.
func (m *matcher) behind(key string) string {
	if m.prefix == "" {
		return ""
	}
	dot := strings.LastIndexByte(key, '.')
	id, of := key[dot+1:], key[:dot+1]
	switch {
	case dot < 0 || strings.HasPrefix(id, m.prefix):
		return ""
	case id < m.prefix:
		return of + m.prefix
	}
	return key[:dot] + "/" // comes right behind all with a dot there
}

// matcher is a query resolved against a table: the smallest sets whose union holds all that match, and the rest of
// the conditions. It is valid as long as the table does not change.
type matcher struct {
	none     bool
	sets     []*set
	states   []*state // nil: any
	labels   []selection
	parent   string
	problems map[string]string
	troubled bool     // only those with a problem
	bounds   [4]int64 // updated after, before, created after, before; 0: none
	since    int64    // before; 0: none
	prefix   string   // of the last token
	keys     map[string]struct{}
}

// selection is a selector resolved to labels.
type selection struct {
	Selector
	labels []*label // of the values that exist
}

func (t *table) matcher(q *Query) matcher {
	m := matcher{problems: t.problems, troubled: q.Problems, bounds: [4]int64{nanos(q.UpdatedAfter), nanos(q.UpdatedBefore), nanos(q.CreatedAfter), nanos(q.CreatedBefore)}, since: nanos(q.SinceBefore), prefix: q.IDPrefix, keys: q.Keys}
	if q.Namespace == "" {
		m.parent = q.Parent
	}
	m.none = q.Namespace != "" && t.spaces[q.Namespace] == nil
	m.sets = []*set{&t.all}
	size := math.MaxInt // any other choice is better than the whole table: a namespace lies together in each set
	narrow := func(sets []*set) {
		n := 0
		for _, s := range sets {
			n += s.len()
		}
		m.none = m.none || n == 0
		if n < size {
			m.sets, size = sets, n
		}
	}
	if len(q.States) > 0 {
		var sets []*set
		for _, name := range q.States {
			if s := t.states[name]; s != nil && !slices.Contains(m.states, s) {
				m.states, sets = append(m.states, s), append(sets, &s.rows)
			}
		}
		narrow(sets)
	}
	for _, sel := range q.Labels {
		s := selection{Selector: sel, labels: t.selected(sel)}
		m.labels = append(m.labels, s)
		if sets := s.sets(); sets != nil {
			narrow(sets)
		}
	}
	if q.Keys != nil {
		narrow([]*set{t.among(q.Keys)})
	}
	if q.Problems {
		narrow([]*set{t.troubled()})
	}
	return m
}

// troubled is the set of the rows with a problem. It is made for each query, since there are few.
func (t *table) troubled() *set {
	s := new(set)
	for key := range t.problems {
		s.insert(t.rows[key])
	}
	return s
}

// among is the set of the rows of some keys.
func (t *table) among(keys map[string]struct{}) *set {
	s := new(set)
	for key := range keys {
		if r := t.rows[key]; r != nil {
			s.insert(r)
		}
	}
	return s
}

func (m *matcher) match(r *row) bool {
	if len(m.states) > 0 && !slices.Contains(m.states, r.state) {
		return false
	}
	for i := range m.labels {
		if !m.labels[i].match(r, m.problems) {
			return false
		}
	}
	if m.parent != "" {
		if tokens := strings.Split(r.key, "."); len(tokens) != 3 || tokens[1] != m.parent {
			return false
		}
	}
	if m.troubled && m.problems[r.key] == "" {
		return false
	}
	if m.prefix != "" && !strings.HasPrefix(r.key[strings.LastIndexByte(r.key, '.')+1:], m.prefix) {
		return false
	}
	if _, among := m.keys[r.key]; m.keys != nil && !among {
		return false
	}
	b := &m.bounds
	return between(r.since, 0, m.since) && between(r.updated, b[0], b[1]) && between(r.created, b[2], b[3])
}

func between(at, after, before int64) bool {
	return (after == 0 || at > after) && (before == 0 || at < before)
}

// value is the label of that name, or nil.
func (c *labelSet) value(name string) *label {
	if c == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(c.labels, name, func(l *label, name string) int { return cmp.Compare(l.name, name) })
	if !found {
		return nil
	}
	return c.labels[i]
}
