package tables

// What a relay asks of the settings, of its positions, and of the log.

import (
	"maps"
	"slices"
	"strings"
)

// functions answer the statements, by their names.
var functions = collect(asked, parking, claiming, operating, appending)

func collect(all ...map[string]func(*txn, args) result) map[string]func(*txn, args) result {
	f := map[string]func(*txn, args) result{}
	for _, some := range all {
		maps.Copy(f, some)
	}
	return f
}

func one(v ...any) result { return result{rows: [][]any{v}} }

// changed is what a statement returns that has changed one row.
var changed = result{n: 1}

// cluster is who the database says it is.
const cluster = "7000000000000000001/model/16384/public"

var asked = map[string]func(*txn, args) result{
	"identify":     func(*txn, args) result { return one(cluster, false) },
	"outboxThere":  func(*txn, args) result { return one(true) },
	"version":      func(*txn, args) result { return one(int64(10)) },
	"readSettings": readSettings,
	"nameSource": func(x *txn, a args) result {
		next := *x.d.settings.get(x, true)
		if next.source != "" {
			return result{}
		}
		next.source = a.text(0)
		x.d.settings.put(x, true, &next)
		return changed
	},
	"sourceName": func(x *txn, _ args) result { return one(text(x.d.settings.get(x, true).source)) },
	"savedPosition": func(x *txn, a args) result {
		if c := x.d.cursor.get(x, cursorKey{a.text(0), a.int(1)}); c != nil {
			return one(c.seq, c.system)
		}
		return result{}
	},
	"notedMarker": func(x *txn, a args) result {
		s := x.d.stream.get(x, streamKey{a.text(0), a.text(1), a.int(2)})
		if s == nil || s.stream != a.text(3) || s.subject != a.text(4) || s.cluster != a.text(5) {
			return result{}
		}
		return one(s.marker)
	},
	"generation": func(x *txn, a args) result {
		if s := x.d.stream.get(x, streamKey{a.text(0), a.text(1), a.int(2)}); s != nil {
			return one(s.generation)
		}
		return result{}
	},
	"enter": func(x *txn, a args) result {
		return x.noteMarker(a, func(was streamRow, now *streamRow) bool {
			generation := now.generation
			*now = was
			now.generation = generation
			return was.generation == a.int(8)
		})
	},
	"note": func(x *txn, a args) result {
		return x.noteMarker(a, func(was streamRow, now *streamRow) bool {
			now.generation = was.generation
			return was.stream != now.stream || was.subject != now.subject || was.cluster != now.cluster || was.marker < now.marker || a.flag(8)
		})
	},
	"firstRelay": func(x *txn, a args) result {
		return one(!slices.ContainsFunc(x.d.cursor.all(x), func(c *cursorRow) bool { return c.source == a.text(0) }) &&
			!slices.ContainsFunc(x.d.stream.all(x), func(s *streamRow) bool { return s.source == a.text(0) }))
	},
	"syncOn": func(x *txn, _ args) result { x.async = false; return one("on") },
	"raise": func(x *txn, a args) result {
		k := streamKey{a.text(0), a.text(1), a.int(2)}
		s := x.d.stream.get(x, k)
		if s == nil || s.generation != a.int(3) {
			return result{}
		}
		next := *s
		next.generation++
		x.d.stream.put(x, k, &next)
		return changed
	},
	"saveCursor":  saveCursor,
	"droppedUpTo": func(*txn, args) result { return result{} }, // nothing is dropped by its age
	"lastNumber":  func(x *txn, _ args) result { return one(x.d.last) },
	"fence": func(x *txn, _ args) result {
		writers := []string{}
		for _, y := range x.d.open {
			if y.appended {
				writers = append(writers, y.virtual())
			}
		}
		x.flushes(true)
		return one(x.d.last, writers)
	},
	"flushLog": func(x *txn, a args) result {
		return one(x.flushes(x.d.last > a.int(0)))
	},
	"readAll": func(x *txn, a args) result {
		return x.readLog(a, func(int64) bool { return true })
	},
	"readShards": func(x *txn, a args) result {
		return x.readLog(a, func(shard int64) bool { return slices.Contains(a.ints(2), shard) })
	},
	"numbersThere": func(x *txn, a args) (r result) {
		for _, n := range a.ints(0) {
			if l := x.d.log.get(x, rowKey{seq: n}); l != nil {
				r.rows = append(r.rows, []any{l.seq, l.id})
			}
		}
		return r
	},
	"idsThere": func(x *txn, a args) (r result) {
		for _, l := range x.d.log.all(x) {
			if slices.Contains(a.ids(0), l.id) {
				r.rows = append(r.rows, []any{l.seq, l.id})
			}
		}
		return r
	},
	"maintain": func(*txn, args) result { return one(int64(0), int64(0), int64(0)) },
	"cursors": func(x *txn, _ args) (r result) {
		least := map[int64]*cursorRow{}
		for _, c := range x.d.cursor.all(x) {
			if b := least[c.shard]; b == nil || c.seq < b.seq {
				least[c.shard] = c
			}
		}
		for _, n := range slices.Sorted(maps.Keys(least)) {
			r.rows = append(r.rows, []any{n, least[n].owner, least[n].seq})
		}
		return r
	},
	"pressure": func(x *txn, a args) result {
		x.d.pressure.put(x, a.text(0), &pressureRow{a.text(0), a.int(1), x.now})
		return changed
	},
	"pressureOld": func(x *txn, a args) (r result) {
		for _, p := range x.d.pressure.all(x) {
			if (p.source == a.text(0) || strings.HasPrefix(p.source, a.text(0)+"/")) && seconds(x.now, p.at) > 60 {
				x.d.pressure.put(x, p.source, nil)
				r.n++
			}
		}
		return r
	},
}

func readSettings(x *txn, _ args) result {
	s := x.d.settings.get(x, true)
	read := s.read
	if s.mode == "claim" {
		read = s.shards
		for _, e := range x.d.waiting(x) {
			read = max(read, e.shard+1)
		}
	}
	return one(s.mode, s.shards, read, s.source, "")
}

// noteMarker writes what is known of the markers of a shard. change gets what there was and what is to be, and says whether it is.
func (x *txn) noteMarker(a args, change func(was streamRow, now *streamRow) bool) result {
	k := streamKey{a.text(0), a.text(1), a.int(2)}
	now := streamRow{k, a.text(3), a.text(4), a.text(6), a.int(5), a.int(7)}
	if was := x.d.stream.lock(x, k).next; was != nil && !change(*was, &now) {
		return result{}
	}
	x.d.stream.put(x, k, &now)
	return changed
}

func saveCursor(x *txn, a args) result {
	if s := x.d.stream.get(x, streamKey{a.text(0), a.text(5), a.int(1)}); s == nil || s.generation != a.int(6) {
		return result{}
	}
	k := cursorKey{a.text(0), a.int(1)}
	now := cursorRow{k, a.int(2), a.text(3), a.text(4)}
	if was := x.d.cursor.lock(x, k).next; was != nil && was.seq == now.seq && was.owner == now.owner && was.system == now.system {
		return result{}
	}
	x.d.cursor.put(x, k, &now)
	return changed
}

// flushes makes the commit of the transaction wait for the disk, with something to write, where not all of the log is there.
func (x *txn) flushes(wanted bool) bool {
	if !wanted || x.d.flushed >= x.d.written {
		return false
	}
	x.async = false
	x.write()
	return true
}

func (x *txn) readLog(a args, of func(shard int64) bool) (r result) {
	for _, l := range x.d.log.all(x) {
		if int64(len(r.rows)) == a.int(1) {
			break
		}
		if l.seq > a.int(0) && of(l.shard) {
			r.rows = append(r.rows, []any{l.seq, l.shard, l.id, l.occurred, l.typ, l.agg, l.name, l.payload, l.content, l.headers, later(l.notBefore, x.now)})
		}
	}
	return r
}
