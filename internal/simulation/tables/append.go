package tables

// What an application appends.

import (
	"time"

	"github.com/bcc94042/instar/streams/outbox"
)

var appending = map[string]func(*txn, args) result{
	"append": func(x *txn, a args) result {
		x.limit(a.int(9))
		x.append(event{
			id: a.id(6), occurred: a.time(7), typ: a.text(0), agg: a.text(1), name: a.text(2), content: a.text(4), notBefore: a.time(8), headers: a.text(5), payload: a.bytes(3),
		})
		return one(a.id(6))
	},
	"appendMany": func(x *txn, a args) result {
		x.limit(a.int(9))
		ids, occurred, notBefore := a.ids(0), read[[]time.Time](a, 1), read[[]time.Time](a, 8)
		for i := range ids {
			x.append(event{
				id: ids[i], occurred: occurred[i], typ: a.texts(2)[i], agg: a.texts(3)[i], name: a.texts(4)[i], payload: read[[][]byte](a, 5)[i], content: a.texts(6)[i], headers: a.texts(7)[i], notBefore: notBefore[i],
			})
		}
		return one("")
	},
}

// limit refuses what is appended while a relay is too far behind.
func (x *txn) limit(most int64) {
	behind := int64(0)
	for _, p := range x.d.pressure.all(x) {
		behind = max(behind, p.lag)
	}
	if most > 0 && behind > most {
		refuse("OB001", "the outbox is %d events behind, more than %d", behind, most)
	}
}

// append writes a row into the table of the mode. Its number is taken, and the lock on the table held, whatever becomes of it.
func (x *txn) append(e event) {
	d, how := x.d, x.d.settings.get(x, true)
	e.shard = int64(outbox.ShardOf(e.typ, e.agg, int(how.shards)))
	e.created, e.at = d.clock(), d.written
	if e.occurred.IsZero() {
		e.occurred = e.created
	}
	before := x.events
	x.undo = append(x.undo, func() { x.events = before })
	if how.mode == "claim" {
		x.async = false // the function sees to that
		d.claimed++
		e.seq = d.claimed
		unique(d.events.lock(x, e.id).next != nil)
		retry := e.notBefore
		if retry.IsZero() {
			retry = x.now
		}
		d.events.put(x, e.id, &claimRow{event: e, status: "NEW", retry: retry})
		x.events = append(x.events, e.id)
		return
	}
	x.appended = true
	day := e.created.Truncate(24 * time.Hour)
	e.seq = x.next()
	for _, r := range d.log.rows {
		if r.next != nil && r.next.id == e.id && r.writer != nil && r.writer != x {
			x.wait(r.writer)
		}
	}
	for _, l := range d.log.all(x) {
		unique(l.id == e.id && l.day.Equal(day))
	}
	d.log.put(x, rowKey{seq: e.seq}, &logRow{e, day})
	x.events = append(x.events, e.id)
}

// unique refuses what is there already.
func unique(there bool) {
	if there {
		refuse("23505", "duplicate key value violates unique constraint")
	}
}
