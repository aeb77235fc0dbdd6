package tables

// What a relay of mode log asks of outbox_parked and outbox_late.

import (
	"cmp"
	"slices"
	"time"
)

var parking = map[string]func(*txn, args) result{
	"entered": func(x *txn, a args) (r result) {
		if x.entered(a) {
			r.rows = [][]any{{true}}
		}
		return r
	},
	"park": func(x *txn, a args) result {
		l := x.d.log.get(x, rowKey{seq: a.int(8)})
		if !x.entered(a[4:]) || l == nil || l.id != a.id(9) {
			return result{}
		}
		p := l.parked(a.int(6))
		p.state, p.attempts, p.parked = a.text(0), a.int(1), x.now
		p.retry = after(x.now, a.float(2))
		if p.state == "NEW" {
			p.retry = cmp.Or(l.notBefore, x.now)
		}
		x.park(p)
		return one(seconds(p.retry, x.now))
	},
	"wait": func(x *txn, a args) (r result) {
		if !x.entered(a) {
			return r
		}
		for i, n := range a.ints(4) {
			if l := x.d.log.get(x, rowKey{seq: n}); l != nil && l.id == a.ids(5)[i] {
				p := l.parked(l.shard)
				p.state, p.parked = "NEW", x.now
				x.park(p)
				r.n++
			}
		}
		return r
	},
	"due": func(x *txn, a args) (r result) {
		var all []*parkedRow
		for _, shard := range a.ints(0) {
			some := x.parkedOf(func(p *parkedRow) bool {
				return p.shard == shard && !p.retry.IsZero() && !p.retry.After(x.now) && !later(p.notBefore, x.now)
			})
			slices.SortStableFunc(some, byRetry)
			all = append(all, some[:min(len(some), int(a.int(1)))]...)
		}
		slices.SortStableFunc(all, byRetry)
		return x.heads(all)
	},
	"nextDue": func(x *txn, a args) result {
		left := 1e9
		for _, p := range x.parkedOf(func(p *parkedRow) bool { return slices.Contains(a.ints(0), p.shard) && p.retry.After(x.now) }) {
			left = min(left, seconds(p.retry, x.now))
		}
		return one(left)
	},
	"gone": func(x *txn, a args) (r result) {
		for i, shard := range a.ints(0) {
			if p := x.d.parked.get(x, rowKey{shard, a.ints(1)[i]}); p == nil || p.retry.IsZero() {
				r.rows = append(r.rows, []any{int64(i + 1)})
			}
		}
		return r
	},
	"promote": func(x *txn, a args) result {
		return x.heads(x.promote(x.first(a.texts(0), a.texts(1)), func(*parkedRow) bool { return true }))
	},
	"heads": headsOfShard,
	"unpromote": func(x *txn, a args) result {
		return x.change(a.ints(0), a.ints(1), func(_ int, p *parkedRow) { p.retry = time.Time{} })
	},
	"countTries": func(x *txn, a args) result {
		return x.change(a.ints(0), a.ints(1), func(i int, p *parkedRow) { p.attempts++; p.retry = after(x.now, a.floats(2)[i]) })
	},
	"waiting": waitingRows,
	"failedParked": func(x *txn, a args) result {
		return x.change([]int64{a.int(0)}, []int64{a.int(1)}, func(_ int, p *parkedRow) {
			p.state, p.attempts, p.retry = a.text(2), a.int(3), after(x.now, a.float(5))
			if p.state == "DEAD" {
				p.retry = infinity
			}
		})
	},
	"takeOut": func(x *txn, a args) (r result) {
		for _, p := range x.parkedOf(func(p *parkedRow) bool { return p.shard == a.int(0) && slices.Contains(a.ids(1), p.id) }) {
			r.rows = append(r.rows, []any{p.seq, p.id, p.typ, p.agg})
		}
		return r
	},
	"aside": func(x *txn, a args) (r result) {
		for _, p := range x.parkedOf(func(p *parkedRow) bool { return p.shard == a.int(0) && p.seq > a.int(1) }) {
			r.rows = append(r.rows, []any{p.seq, p.id})
		}
		return r
	},
	"published": func(x *txn, a args) (r result) {
		for i, shard := range a.ints(0) {
			if p := x.d.parked.get(x, rowKey{shard, a.ints(1)[i]}); p != nil {
				x.d.parked.put(x, p.rowKey, nil)
				k := lateKey{p.rowKey, p.id}
				x.d.late.put(x, k, &lateRow{k, p.day, a.ints(2)[i]})
				r.n++
			}
		}
		return r
	},
	"publishedBeside": func(x *txn, a args) (r result) {
		for i, shard := range a.ints(0) {
			k := lateKey{rowKey{shard, a.ints(1)[i]}, a.ids(2)[i]}
			if t := x.d.late.get(x, k); t != nil && t.marker == 0 {
				x.d.late.put(x, k, &lateRow{k, t.day, a.ints(3)[i]})
				r.n++
			}
		}
		return r
	},
	"late": func(x *txn, a args) (r result) {
		for _, t := range x.d.late.all(x) {
			if t.shard == a.int(0) && t.marker > 0 && t.marker >= a.int(1) {
				r.rows = append(r.rows, []any{t.seq, t.id, t.marker})
			}
		}
		return r
	},
	"discarded": func(x *txn, a args) (r result) {
		for _, t := range x.d.late.all(x) {
			if t.shard == a.int(0) && t.marker == 0 {
				r.rows = append(r.rows, []any{t.seq, t.id})
			}
		}
		return r
	},
	"forgetLate": func(x *txn, a args) (r result) {
		for _, t := range x.d.late.all(x) {
			if t.shard == a.int(0) && t.marker > 0 {
				x.d.late.put(x, t.lateKey, nil)
				r.n++
			}
		}
		return r
	},
	"reclaim": reclaim,
}

// text is a text that is null where it is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func byRetry(a, b *parkedRow) int { return a.retry.Compare(b.retry) }

// entered says that no later session of the shard has entered, and makes one that enters wait. Its parameters are source, mode, shard and generation.
func (x *txn) entered(a args) bool {
	k := streamKey{a.text(0), a.text(1), a.int(2)}
	s := x.d.stream.get(x, k)
	if s == nil || s.generation != a.int(3) {
		return false
	}
	x.d.stream.share(x, k)
	return true
}

func (l *logRow) parked(shard int64) *parkedRow {
	return &parkedRow{rowKey: rowKey{shard, l.seq}, id: l.id, day: l.day, typ: l.typ, agg: l.agg, name: l.name, notBefore: l.notBefore}
}

func (x *txn) park(p *parkedRow) {
	if x.d.parked.lock(x, p.rowKey).next != nil {
		refuse("23505", `duplicate key value violates unique constraint "outbox_parked_pkey"`)
	}
	x.d.parked.put(x, p.rowKey, p)
}

func (x *txn) parkedOf(which func(*parkedRow) bool) []*parkedRow {
	return slices.DeleteFunc(x.d.parked.all(x), func(p *parkedRow) bool { return !which(p) })
}

// change changes parked rows.
func (x *txn) change(shards, seqs []int64, how func(i int, p *parkedRow)) (r result) {
	for i, shard := range shards {
		k := rowKey{shard, seqs[i]}
		if x.d.parked.get(x, k) == nil {
			continue
		}
		next := *x.d.parked.lock(x, k).next
		how(i, &next)
		x.d.parked.put(x, k, &next)
		r.n++
	}
	return r
}

// heads are rows as the relay reads them.
func (x *txn) heads(list []*parkedRow) (r result) {
	for _, p := range list {
		r.rows = append(r.rows, []any{p.shard, p.seq, p.id, p.typ, p.agg, p.attempts, later(p.notBefore, x.now), seconds(p.retry, x.now)})
	}
	return r
}

// first are the first rows of aggregates, of those that are not to be published later.
func (x *txn) first(types, ids []string) (list []*parkedRow) {
	for i := range types {
		of := x.parkedOf(func(p *parkedRow) bool { return p.typ == types[i] && p.agg == ids[i] && !later(p.notBefore, x.now) })
		if len(of) > 0 {
			list = append(list, slices.MinFunc(of, func(a, b *parkedRow) int { return cmp.Compare(a.seq, b.seq) }))
		}
	}
	return list
}

// promote gives rows a time at which they are due, those that have none, and returns them.
func (x *txn) promote(list []*parkedRow, which func(*parkedRow) bool) (heads []*parkedRow) {
	for _, p := range list {
		if !which(p) {
			continue
		}
		next := *x.d.parked.lock(x, p.rowKey).next
		if next.retry.IsZero() {
			next.retry = x.now
		}
		x.d.parked.put(x, p.rowKey, &next)
		heads = append(heads, &next)
	}
	return heads
}

func headsOfShard(x *txn, a args) result {
	var types, ids []string
	seen := map[aggregate]bool{}
	all := x.parkedOf(func(p *parkedRow) bool { return p.shard == a.int(0) })
	for _, p := range all {
		if k := (aggregate{p.typ, p.agg}); !seen[k] {
			seen[k] = true
			types, ids = append(types, p.typ), append(ids, p.agg)
		}
	}
	first := x.first(types, ids)
	list := x.promote(first, func(p *parkedRow) bool { return p.retry.IsZero() })
	for _, p := range all {
		if !p.retry.IsZero() {
			list = append(list, p)
		}
	}
	for _, p := range first {
		if p.shard != a.int(0) && !p.retry.IsZero() {
			list = append(list, p)
		}
	}
	return x.heads(list)
}

func waitingRows(x *txn, a args) (r result) {
	before := int64(0)
	for i, typ := range a.texts(0) {
		of := x.parkedOf(func(p *parkedRow) bool { return p.typ == typ && p.agg == a.texts(1)[i] && !later(p.notBefore, x.now) })
		slices.SortFunc(of, func(a, b *parkedRow) int { return cmp.Compare(a.seq, b.seq) })
		for _, p := range of[:min(len(of), int(a.int(2)))] {
			l := x.d.log.get(x, rowKey{seq: p.seq})
			gone := l == nil || !l.day.Equal(p.day)
			if gone {
				l = &logRow{event: event{occurred: p.parked, headers: "{}", payload: []byte{}}}
			}
			if before <= a.int(3) {
				r.rows = append(r.rows, []any{p.seq, p.shard, p.id, l.occurred, p.typ, p.agg, p.name, l.payload, l.content, l.headers, p.attempts, p.redrives, gone})
			}
			before += int64(len(l.payload))
		}
	}
	return r
}

func reclaim(x *txn, a args) result {
	found, behind := int64(0), int64(0)
	for i, n := range a.ints(1) {
		k := lateKey{rowKey{a.int(0), n}, a.ids(2)[i]}
		t := x.d.late.get(x, k)
		if t == nil {
			continue
		}
		x.d.late.put(x, k, nil)
		if !a.flags(3)[i] {
			continue
		}
		behind++
		l := x.d.log.get(x, rowKey{seq: n})
		if l == nil || !l.day.Equal(t.day) {
			continue
		}
		found++
		if x.d.parked.lock(x, k.rowKey).next == nil {
			x.d.parked.put(x, k.rowKey, &parkedRow{rowKey: k.rowKey, id: k.id, day: t.day, typ: l.typ, agg: l.agg, name: l.name, state: "NEW", retry: x.now, parked: x.now})
		}
	}
	return one(found, behind-found)
}
