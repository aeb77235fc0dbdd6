package tables

// Rows, and the transactions that change them. A row has what was committed last and, while a transaction has changed or locked it, what that one sees; others wait for its end.

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// txn is a transaction.
type txn struct {
	d        *database
	id       uint64
	now      time.Time // when it began
	block    bool      // begin was said
	failed   bool
	async    bool // its commit does not wait for the disk
	wrote    bool // there is something of it in the log
	appended bool // it has taken a number of outbox_log
	ended    bool
	on       *txn // it waits for that one

	touched []cell
	shared  []func()
	undo    []func() // of the statement that is being executed
	events  []id     // that it appends
}

// cell is a row as a transaction ends with it.
type cell interface {
	commit() (undo func())
	abort()
}

// blocked is thrown by what has to wait for another transaction.
type blocked struct{ by *txn }

// refusal is an error of the database.
type refusal struct{ code, message string }

func refuse(code, format string, args ...any) { panic(refusal{code, fmt.Sprintf(format, args...)}) }

// wait waits for another transaction, or finds that it waits for this one.
func (x *txn) wait(by *txn) {
	for w := by; w != nil && !w.ended; w = w.on {
		if w == x {
			refuse("40P01", "deadlock detected")
		}
	}
	panic(blocked{by})
}

type row[V any] struct {
	now, next *V // committed, and of its writer; nil is none
	writer    *txn
	sharers   map[*txn]bool
}

func (r *row[V]) commit() func() {
	before := r.now
	r.now, r.next, r.writer = r.next, nil, nil
	return func() { r.now = before }
}

func (r *row[V]) abort() { r.next, r.writer = nil, nil }

func (r *row[V]) seen(x *txn) *V {
	if r.writer == x && x != nil {
		return r.next
	}
	return r.now
}

func (r *row[V]) busy(x *txn) *txn {
	if r.writer != nil && r.writer != x {
		return r.writer
	}
	var first *txn
	for by := range r.sharers {
		if by != x && (first == nil || by.id < first.id) {
			first = by
		}
	}
	return first
}

// table is rows by their keys. A nil transaction sees what is committed.
type table[K comparable, V any] struct {
	rows map[K]*row[V]
	cmp  func(a, b K) int
}

func newTable[K comparable, V any](cmp func(a, b K) int) *table[K, V] {
	return &table[K, V]{map[K]*row[V]{}, cmp}
}

// all are the rows that a transaction sees, by key.
func (t *table[K, V]) all(x *txn) (list []*V) {
	for _, k := range slices.SortedFunc(maps.Keys(t.rows), t.cmp) {
		if v := t.rows[k].seen(x); v != nil {
			list = append(list, v)
		}
	}
	return list
}

func (t *table[K, V]) get(x *txn, k K) *V {
	if r := t.rows[k]; r != nil {
		return r.seen(x)
	}
	return nil
}

// lock makes others wait who want to change or lock the row.
func (t *table[K, V]) lock(x *txn, k K) *row[V] {
	r := t.rows[k]
	if r == nil {
		r = &row[V]{}
		t.rows[k] = r
	}
	if by := r.busy(x); by != nil {
		x.wait(by)
	}
	if r.writer == nil {
		r.writer, r.next = x, r.now
		x.touched = append(x.touched, r)
		x.undo = append(x.undo, func() {
			r.abort()
			x.touched = slices.DeleteFunc(x.touched, func(c cell) bool { return c == cell(r) })
		})
	}
	return r
}

// locked says that somebody else has the row.
func (t *table[K, V]) locked(x *txn, k K) bool {
	r := t.rows[k]
	return r != nil && r.busy(x) != nil
}

// put writes a row; nil removes it.
func (t *table[K, V]) put(x *txn, k K, v *V) {
	r := t.lock(x, k)
	before := r.next
	r.next = v
	x.undo = append(x.undo, func() { r.next = before })
	x.write()
}

// share keeps others from changing the row.
func (t *table[K, V]) share(x *txn, k K) {
	r := t.rows[k]
	if r.writer != nil && r.writer != x {
		x.wait(r.writer)
	}
	if r.sharers == nil {
		r.sharers = map[*txn]bool{}
	}
	if !r.sharers[x] {
		r.sharers[x] = true
		x.shared = append(x.shared, func() { delete(r.sharers, x) })
	}
}

// statement executes something, which may have to wait: then it has done nothing. What fails ends the transaction but for its rollback.
func (x *txn) statement(do func()) (waits bool, failed *refusal) {
	x.undo, x.on = nil, nil
	defer func() {
		switch r := recover().(type) {
		case nil:
			return
		case blocked:
			waits, x.on = true, r.by
		case refusal:
			x.failed, failed = true, &r
		default:
			panic(r)
		}
		for _, undo := range slices.Backward(x.undo) {
			undo()
		}
	}()
	do()
	return false, nil
}

func (x *txn) release() {
	for _, free := range x.shared {
		free()
	}
	x.touched, x.shared = nil, nil
	x.ended = true
	x.d.open = slices.DeleteFunc(x.d.open, func(y *txn) bool { return y == x })
}

// rollback undoes everything.
func (x *txn) rollback() {
	for _, c := range x.touched {
		c.abort()
	}
	x.release()
}

// commit makes everything visible, and waits for the disk, or not.
func (x *txn) commit() {
	var undo []func()
	for _, c := range x.touched {
		undo = append(undo, c.commit())
	}
	if x.wrote {
		x.d.written++
		for _, e := range x.events {
			x.d.committed[e] = x.d.written
		}
		x.d.commits = append(x.d.commits, commit{at: x.d.written, undo: undo, events: x.events})
		if !x.async {
			x.d.flush(x.d.written)
		}
	}
	x.release()
}
