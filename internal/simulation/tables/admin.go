package tables

// What operators do, and what a relay does once an hour.

import (
	"cmp"
	"slices"
)

var operating = map[string]func(*txn, args) result{
	"purge": func(x *txn, _ args) (r result) {
		s := x.d.settings.get(x, true)
		for _, e := range x.d.events.all(x) {
			if e.phase() == 2 && e.sent.Before(x.now.Add(-s.retention)) && !x.d.events.locked(x, e.id) {
				x.d.events.put(x, e.id, nil)
				r.rows = append(r.rows, []any{e.id})
			}
		}
		return r
	},
	"purgeInbox": func(*txn, args) result { return result{} }, // nobody handles events here
	"audit": func(x *txn, _ args) result { // nobody reads it here
		x.write()
		return changed
	},
	"redriveEvents": func(x *txn, a args) result {
		bad := x.badEvents(a)
		return x.update(bad, func(*claimRow) bool { return true }, func(r *claimRow) {
			r.status, r.attempts, r.retry = "NEW", 0, x.now
			r.redrives++
		})
	},
	"discardEvents": func(x *txn, a args) (r result) {
		for _, e := range x.badEvents(a) {
			x.d.events.put(x, e, nil)
			r.rows = append(r.rows, []any{e})
		}
		return r
	},
	"redriveParked": func(x *txn, a args) (r result) {
		for _, p := range x.badParked(a) {
			x.change([]int64{p.shard}, []int64{p.seq}, func(_ int, p *parkedRow) {
				p.state, p.attempts, p.retry = "NEW", 0, x.now
				p.redrives++
			})
			r.rows = append(r.rows, []any{p.id})
		}
		return r
	},
	"discardParked": func(x *txn, a args) (r result) {
		for _, p := range x.badParked(a) {
			x.d.parked.put(x, p.rowKey, nil)
			k := lateKey{p.rowKey, p.id}
			x.d.late.put(x, k, &lateRow{k, p.day, 0})
			r.rows = append(r.rows, []any{p.id})
		}
		return r
	},
}

// wanted says whether a filter, the first four parameters, means an event.
func (a args) wanted(e id, typ, agg, name string) bool {
	return (len(a.ids(0)) == 0 || slices.Contains(a.ids(0), e)) && (a.text(1) == "" || a.text(1) == typ) && (a.text(2) == "" || a.text(2) == agg) && (a.text(3) == "" || a.text(3) == name)
}

// badEvents locks rows that have failed, and makes due what a claim has postponed behind them.
func (x *txn) badEvents(a args) (bad []id) {
	of := map[aggregate]bool{}
	for _, r := range x.d.waiting(x) {
		if r.phase() == 1 && a.wanted(r.id, r.typ, r.agg, r.name) && int64(len(bad)) < a.int(4) {
			x.d.events.lock(x, r.id)
			bad = append(bad, r.id)
			of[aggregate{r.typ, r.agg}] = true
		}
	}
	for _, r := range x.d.waiting(x) {
		if of[aggregate{r.typ, r.agg}] && (r.status == "NEW" || r.status == "FAILED") && r.retry.After(x.now) && !later(r.notBefore, x.now) && !slices.Contains(bad, r.id) {
			x.update([]id{r.id}, func(*claimRow) bool { return true }, func(r *claimRow) { r.retry = x.now })
		}
	}
	return bad
}

func (x *txn) badParked(a args) []*parkedRow {
	bad := x.parkedOf(func(p *parkedRow) bool { return p.state != "NEW" && a.wanted(p.id, p.typ, p.agg, p.name) })
	slices.SortStableFunc(bad, func(a, b *parkedRow) int { return cmp.Compare(a.seq, b.seq) })
	bad = bad[:min(len(bad), int(a.int(4)))]
	for _, p := range bad {
		x.d.parked.lock(x, p.rowKey)
	}
	return bad
}
