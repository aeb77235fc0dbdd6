package index

// The table: a row per key, and the sets, counts and labels over these that queries use (set.go has the ordered sets,
// past.go the keys that are gone). Index.take applies described updates (apply, drop) under the lock of the index; query.go,
// order.go and item read. Keys, labels and rows are shared or reused, because a million rows have to fit into memory.

import (
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/kv/internal/feed"
)

// table holds the rows of an index and the ordered sets over them. While it is being filled it has rows only; seal
// sorts once and fills the sets, which costs a fraction of a million ordered insertions.
type table struct {
	sealed   bool
	at       feed.Position
	rows     map[string]*row
	all      set
	states   map[string]*state
	spaces   map[string]*space
	labels   map[string]map[string]*label // by name, then value
	combos   map[string]*labelSet         // by their canonical form
	problems map[string]string            // what is wrong with the value, by key
	values   map[*row]any                 // what describe wants kept; most indexes keep nothing
	missing  int                          // keys that the bucket held when the table was filled, and whose values it did not send
	over     map[string]int64             // when keys were last written that have ended and are forgotten, and whose values the bucket has
	past     map[uint64]struct{}          // hashes of keys that were deleted, or have ended and are forgotten
	ending   []ending                     // rows in states that end, in the order of their revisions; nil without terminal
	terminal func(state string) bool      // whether a state ends a key; nil forgets none
	fresh    map[string]string            // keys of a batch that have no rows yet
	spare    []*row                       // allocated, and not in use
	buf      []byte
	names    []string
}

// state is one name of a state and the rows in it.
type state struct {
	name  string
	ended bool // what is in it may be forgotten
	rows  set
}

// space counts a namespace's rows by state.
type space struct {
	total  int
	states map[*state]int
}

// label is one value of one label and the rows that carry it.
type label struct {
	name, value string
	rows        set
	combos      int // label sets that hold it
}

// labelSet is a combination of labels, stored once for all rows that carry it. Its labels are sorted by name.
type labelSet struct {
	form   string
	labels []*label
	rows   int
}

// op is one described update.
type op struct {
	feed.Update
	meta    Meta
	problem string
}

func newTable() *table {
	return &table{
		rows: make(map[string]*row), states: make(map[string]*state), spaces: make(map[string]*space),
		labels: make(map[string]map[string]*label), combos: make(map[string]*labelSet), problems: make(map[string]string),
		values: make(map[*row]any), fresh: make(map[string]string),
	}
}

// key is the one copy of a key: that of its row, or one that becomes it, without the subject that it came in.
func (t *table) key(k string) string {
	if r := t.rows[k]; r != nil {
		return r.key
	}
	one, there := t.fresh[k]
	if !there {
		one = strings.Clone(k)
		t.fresh[one] = one
	}
	return one
}

// before is what a row was; zero when there was none.
type before struct {
	state   *state
	version uint64
	since   int64 // when it came into its state; 0 is not known
}

// apply takes one update, whose key it keeps. It returns the row, or nil if the key is gone, and what the row was.
func (t *table) apply(o *op) (r *row, was before) {
	r = t.rows[o.Key]
	if r != nil {
		was = before{r.state, r.version, r.since}
	}
	if len(t.over) > 0 {
		delete(t.over, o.Key)
	}
	if o.Deleted {
		if r != nil {
			t.drop(r)
		}
		t.mark(o.Key)
		return nil, was
	}
	t.unmark(o.Key)
	if r == nil {
		r = t.newRow(o.Key)
		t.rows[r.key] = r
		if t.sealed {
			t.all.insert(r)
		}
	}
	t.fill(r, o)
	return r, was
}

func (t *table) fill(r *row, o *op) {
	m := &o.meta
	t.setState(r, m.State)
	t.setLabels(r, m.Labels)
	r.since, r.created, r.updated = nanos(m.Since), nanos(m.CreatedAt), nanos(m.UpdatedAt)
	if r.updated == 0 {
		r.updated = o.At
	}
	r.version, r.generation, r.revision = m.Version, m.Generation, o.Revision
	if r.state.ended {
		t.ending = append(t.ending, ending{r, o.Revision, o.At})
	}
	if m.Value != nil {
		t.values[r] = m.Value
	} else if len(t.values) > 0 {
		delete(t.values, r)
	}
	if o.problem != "" {
		t.problems[r.key] = o.problem
	} else if len(t.problems) > 0 {
		delete(t.problems, r.key)
	}
}

func (t *table) drop(r *row) {
	delete(t.rows, r.key)
	delete(t.problems, r.key)
	delete(t.values, r)
	if t.sealed {
		t.all.remove(r)
		t.leave(r)
	}
	t.setLabels(r, nil)
	*r = row{}
	if len(t.spare) < maxSpare {
		t.spare = append(t.spare, r)
	}
}

// maxSpare bounds the rows that are kept for later. Others are left to the garbage collector, which frees them with their neighbours.
const maxSpare = 10_000

// rowsAtOnce are allocated together. Rows live long; single ones would lie between what does not, and keep its pages of memory in use.
const rowsAtOnce = 100

func (t *table) newRow(key string) *row {
	if len(t.spare) == 0 {
		rows := make([]row, rowsAtOnce)
		for i := range rows {
			t.spare = append(t.spare, &rows[i])
		}
	}
	last := len(t.spare) - 1
	r := t.spare[last]
	t.spare = t.spare[:last]
	r.key = key
	return r
}

func (t *table) setState(r *row, name string) {
	if r.state != nil && r.state.name == name {
		return
	}
	s := t.states[name]
	if s == nil {
		s = &state{name: strings.Clone(name), ended: t.terminal != nil && t.terminal(name)}
		t.states[s.name] = s
	}
	if t.sealed && r.state != nil {
		t.leave(r)
	}
	r.state = s
	if t.sealed {
		s.rows.insert(r)
		t.count(r)
	}
}

// leave takes the row out of its state's set and counts.
func (t *table) leave(r *row) {
	r.state.rows.remove(r)
	name := namespace(r.key)
	sp := t.spaces[name]
	if sp.states[r.state]--; sp.states[r.state] == 0 {
		delete(sp.states, r.state)
	}
	if sp.total--; sp.total == 0 {
		delete(t.spaces, name)
	}
}

func (t *table) count(r *row) {
	name := namespace(r.key)
	sp := t.spaces[name]
	if sp == nil {
		sp = &space{states: make(map[*state]int)}
		t.spaces[strings.Clone(name)] = sp
	}
	sp.total++
	sp.states[r.state]++
}

func (t *table) setLabels(r *row, labels map[string]string) {
	if r.labels == nil && len(labels) == 0 {
		return
	}
	next := t.combo(labels)
	old := r.labels
	if next == old {
		return
	}
	if next != nil {
		next.rows++
	}
	if r.labels = next; t.sealed {
		if old != nil {
			for _, l := range old.labels {
				l.rows.remove(r)
			}
		}
		if next != nil {
			for _, l := range next.labels {
				l.rows.insert(r)
			}
		}
	}
	if old != nil {
		t.release(old)
	}
}

// combo is the one labelSet of these labels.
func (t *table) combo(labels map[string]string) *labelSet {
	if len(labels) == 0 {
		return nil
	}
	t.names = t.names[:0]
	for name := range labels {
		t.names = append(t.names, name)
	}
	slices.Sort(t.names)
	t.buf = t.buf[:0]
	for _, name := range t.names { // 0xff is in no valid string, so two different sets never have one form
		t.buf = append(append(append(append(t.buf, name...), 0xff), labels[name]...), 0xff)
	}
	if c := t.combos[string(t.buf)]; c != nil {
		return c
	}
	c := &labelSet{form: string(t.buf), labels: make([]*label, len(t.names))}
	for i, name := range t.names {
		c.labels[i] = t.label(name, labels[name])
		c.labels[i].combos++
	}
	t.combos[c.form] = c
	return c
}

func (t *table) label(name, value string) *label {
	values := t.labels[name]
	if values == nil {
		name = strings.Clone(name)
		values = make(map[string]*label)
		t.labels[name] = values
	}
	l := values[value]
	if l == nil {
		l = &label{name: strings.Clone(name), value: strings.Clone(value)}
		values[l.value] = l
	}
	return l
}

// release forgets a combination that no row carries, and its labels that no other one holds.
func (t *table) release(c *labelSet) {
	if c.rows--; c.rows > 0 {
		return
	}
	delete(t.combos, c.form)
	for _, l := range c.labels {
		if l.combos--; l.combos > 0 {
			continue
		}
		if delete(t.labels[l.name], l.value); len(t.labels[l.name]) == 0 {
			delete(t.labels, l.name)
		}
	}
}

// seal makes the ordered sets of a table that was filled.
func (t *table) seal() {
	rows := make([]*row, 0, len(t.rows))
	for _, r := range t.rows {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *row) int { return strings.Compare(a.key, b.key) })
	for _, r := range rows {
		t.all.load(r)
		r.state.rows.load(r)
		t.count(r)
		if r.labels != nil {
			for _, l := range r.labels.labels {
				l.rows.load(r)
			}
		}
	}
	t.sealed = true
}

func (t *table) item(r *row) Item {
	i := Item{
		Key: r.key, State: r.state.name, Since: instant(r.since), CreatedAt: instant(r.created), UpdatedAt: instant(r.updated),
		Version: r.version, Generation: r.generation, Revision: r.revision,
	}
	if len(t.problems) > 0 {
		i.Problem = t.problems[r.key]
	}
	if len(t.values) > 0 {
		i.Value = t.values[r]
	}
	if r.labels != nil {
		for _, l := range r.labels.labels {
			if strings.HasPrefix(l.name, DataLabel) {
				continue
			}
			if i.Labels == nil {
				i.Labels = make(map[string]string, len(r.labels.labels))
			}
			i.Labels[l.name] = l.value
		}
	}
	return i
}

// namespace is the first token of a key.
func namespace(key string) string {
	ns, _, _ := strings.Cut(key, ".")
	return ns
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
