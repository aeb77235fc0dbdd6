package tables

// What a relay of mode claim asks of outbox_event.

import (
	"cmp"
	"math"
	"slices"
	"time"
)

var claiming = map[string]func(*txn, args) result{
	"async": func(x *txn, _ args) result { x.async = true; return one("off") },
	"flush": func(x *txn, _ args) result {
		x.async = false
		x.write()
		return one("on", "0/0")
	},
	"claim": claim,
	"markSent": func(x *txn, a args) result {
		return x.update(a.ids(0), held(a.id(1)), func(r *claimRow) { r.status, r.sent = "SENT", x.now; r.free() })
	},
	"release": func(x *txn, a args) result {
		return x.update(a.ids(0), held(a.id(1)), func(r *claimRow) {
			r.status = "NEW"
			if r.lastError != nil {
				r.status = "FAILED"
			}
			r.attempts--
			r.retry = x.now
			r.free()
		})
	},
	"markFailed": markFailed,
	"settleSent": func(x *txn, a args) result {
		return x.update(a.ids(0), func(r *claimRow) bool { return r.status != "SENT" }, func(r *claimRow) { r.status, r.sent = "SENT", x.now; r.free() })
	},
	"settleLeases": func(x *txn, a args) result {
		var ids []id
		for _, r := range x.d.waiting(x) {
			if r.status == "SENDING" {
				ids = append(ids, r.id)
			}
		}
		return x.update(ids, func(*claimRow) bool { return true }, func(r *claimRow) {
			r.lastError = text("the lease of " + r.lockedBy + " was ended")
			r.status, r.retry = "NEW", x.now
			if r.attempts >= a.int(0) {
				r.status, r.retry = "DEAD", infinity
			}
			r.free()
		})
	},
	"sentUpTo": func(x *txn, _ args) result {
		last := int64(0)
		for _, r := range x.d.events.all(x) {
			if r.phase() == 2 {
				last = max(last, r.sent.UnixMicro())
			}
		}
		return one(last)
	},
	"missing": func(x *txn, a args) result {
		var first *claimRow
		for _, r := range x.d.events.all(x) {
			if r.phase() == 2 && r.sent.UnixMicro() > a.int(0) && !slices.Contains(a.ids(1), r.id) && (first == nil || r.sent.Before(first.sent)) {
				first = r
			}
		}
		if first == nil {
			return result{}
		}
		return one(first.id.String())
	},
	"statusHead": func(x *txn, _ args) result {
		s := x.d.settings.get(x, true)
		if s.mode == "log" {
			return one(s.mode, s.read, x.now)
		}
		return one(s.mode, s.shards, x.now)
	},
	"statusEvents": func(x *txn, _ args) result {
		count, oldest := map[string]int64{}, time.Time{}
		for _, r := range x.d.events.all(x) {
			count[r.status]++
			if r.phase() < 2 && (r.phase() == 1 || !later(r.notBefore, x.now) || r.status == "SENDING") && (oldest.IsZero() || r.created.Before(oldest)) {
				oldest = r.created
			}
		}
		return one(count["NEW"], count["SENDING"], count["FAILED"], count["DEAD"], count["SENT"], oldest)
	},
	"parkedEvents": func(x *txn, _ args) (list result) {
		all := x.d.waiting(x)
		for i, r := range all {
			if r.phase() != 1 || len(list.rows) == 100 {
				continue
			}
			behind := int64(0)
			for _, q := range all[i+1:] {
				if q.typ == r.typ && q.agg == r.agg {
					behind++
				}
			}
			retry, why := r.retry, ""
			if retry.Equal(infinity) {
				retry = time.Time{}
			}
			if r.lastError != nil {
				why = *r.lastError
			}
			list.rows = append(list.rows, []any{r.typ, r.agg, r.id.String(), r.status, r.attempts, retry, why, behind})
		}
		return list
	},
}

// free ends the claim of a row.
func (r *claimRow) free() { r.lockedBy, r.lockedUntil, r.token = "", time.Time{}, id{} }

// held are rows of a claim.
func held(token id) func(*claimRow) bool {
	return func(r *claimRow) bool { return r.status == "SENDING" && r.token == token }
}

// update changes rows, and returns the ids of those that it changed.
func (x *txn) update(ids []id, which func(*claimRow) bool, how func(*claimRow)) (r result) {
	for _, e := range ids {
		if row := x.d.events.get(x, e); row == nil || !which(row) {
			continue
		}
		next := *x.d.events.lock(x, e).next
		how(&next)
		x.d.events.put(x, e, &next)
		r.rows = append(r.rows, []any{e})
	}
	return r
}

func markFailed(x *txn, a args) (r result) {
	for i, e := range a.ids(0) {
		x.update([]id{e}, held(a.id(3)), func(row *claimRow) {
			row.status, row.lastError = "FAILED", text(a.texts(1)[i])
			row.retry = after(x.now, min(a.float(5)*math.Pow(2, float64(min(row.attempts-1, 40))), a.float(6)))
			left := seconds(row.retry, x.now)
			if a.flags(2)[i] || row.attempts >= a.int(4) {
				row.status, row.retry, left = "DEAD", infinity, 0
			}
			row.free()
			r.rows = append(r.rows, []any{e, row.status, row.attempts, left})
		})
	}
	return r
}

// chosen is a row that is due, with what a claim finds about it.
type chosen struct {
	*claimRow
	spent, follows, free bool
	until                time.Time
}

func claim(x *txn, a args) (r result) {
	var claimed, others [][]any
	list := x.due(a)
	x.judge(list)
	for _, c := range list {
		next := *c.claimRow
		switch {
		case !c.free && c.until.After(c.retry):
			next.retry = c.until
			if most := x.now.Add(time.Hour); most.Before(next.retry) {
				next.retry = most
			}
			if c.retry.After(next.retry) {
				next.retry = c.retry
			}
		case c.spent:
			next.lastError = text("the lease of " + next.lockedBy + " has ended")
			next.status, next.retry = "DEAD", infinity
			next.free()
		case c.free:
			if next.status == "SENDING" {
				next.lastError = text("the lease of " + next.lockedBy + " has ended")
			}
			next.status, next.lockedBy, next.lockedUntil, next.token = "SENDING", a.text(2), after(x.now, a.float(3)), a.id(4)
			next.attempts++
			claimed = append(claimed, []any{false, next.id, next.occurred, next.typ, next.agg, next.name, next.payload, next.content, next.headers, next.notBefore, next.seq, next.shard, next.attempts, next.redrives, next.lockedUntil})
			x.d.events.put(x, next.id, &next)
			continue
		default:
			continue
		}
		x.d.events.put(x, next.id, &next)
		others = append(others, []any{true, next.id, x.now, "", "", "", []byte{}, "", "{}", nil, next.seq, int64(0), int64(0), int64(0), x.now})
	}
	r.rows = append(claimed, others...)
	return r
}

// due locks what is due and that nobody else has locked.
func (x *txn) due(a args) (list []*chosen) {
	most := int(a.int(1))
	waiting := x.d.waiting(x)
	shards := a.ints(0)
	if len(shards) == 0 {
		s := x.d.settings.get(x, true)
		n := s.shards
		for _, r := range waiting {
			n = max(n, r.shard+1)
		}
		for i := range n {
			shards = append(shards, i)
		}
	}
	waiting = slices.DeleteFunc(waiting, func(r *claimRow) bool {
		free := r.status == "NEW" || r.status == "FAILED" || r.status == "SENDING" && r.lockedUntil.Before(x.now)
		return r.retry.After(x.now) || !free || x.d.events.locked(x, r.id)
	})
	order := func(a, b *claimRow) int { return cmp.Or(a.retry.Compare(b.retry), cmp.Compare(a.seq, b.seq)) }
	slices.SortFunc(waiting, order)
	var due []*claimRow
	for _, shard := range shards {
		all := slices.DeleteFunc(slices.Clone(waiting), func(r *claimRow) bool { return r.shard != shard })
		for _, r := range all[:min(len(all), most)] {
			x.d.events.lock(x, r.id)
			due = append(due, r)
		}
	}
	slices.SortFunc(due, order)
	for _, r := range due[:min(len(due), most)] {
		list = append(list, &chosen{claimRow: r, spent: r.status == "SENDING" && r.attempts >= a.int(5)})
	}
	return list
}

// judge finds which rows are free: those that nothing of their aggregate is before but what is free, too.
func (x *txn) judge(list []*chosen) {
	slices.SortFunc(list, func(a, b *chosen) int { return cmp.Compare(a.seq, b.seq) })
	last := map[aggregate]*chosen{}
	all := x.d.waiting(x)
	for _, c := range list {
		of := aggregate{c.typ, c.agg}
		var before *claimRow
		for _, r := range all {
			if r.typ == c.typ && r.agg == c.agg && r.seq < c.seq && !later(r.notBefore, x.now) {
				before = r
			}
		}
		lag := last[of]
		c.follows = before == nil && lag == nil || before != nil && lag != nil && before.id == lag.id
		if before != nil && !c.follows && before.status != "SENDING" {
			c.until = before.retry
		}
		c.free = c.follows && !c.spent
		if lag != nil {
			c.free = c.free && lag.free
			if lag.until.After(c.until) {
				c.until = lag.until
			}
		}
		last[of] = c
	}
}
