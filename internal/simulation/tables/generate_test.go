package tables

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// operation is one statement on one connection.
type operation struct {
	conn       int
	name, text string
	args       []any
}

// generator draws operations. What it knows of rows it looks up in the model.
type generator struct {
	r     *rand.Rand
	m     *Server
	mode  string
	open  [apps]bool
	ids   []id
	token id
	n     int
}

func (g *generator) answered(o operation, answer string) {
	failed := len(answer) == 5 && !strings.Contains(answer, " ")
	switch {
	case o.conn >= apps:
	case o.name == "begin":
		g.open[o.conn] = true
	case o.name == "commit" || o.name == "rollback" || failed && !g.open[o.conn]:
		g.open[o.conn] = false
	}
}

func statementNamed(name string) *statement {
	for _, s := range known {
		if s.name == name {
			return s
		}
	}
	panic("no statement " + name)
}

func (g *generator) say(conn int, name string, args ...any) operation {
	return operation{conn, name, statementNamed(name).text, args}
}

func (g *generator) next() operation {
	g.n++
	if g.r.IntN(5) < 2 {
		return g.app()
	}
	conn := relay + g.r.IntN(2)
	if g.r.IntN(6) == 0 {
		return g.operator(conn)
	}
	if g.mode == "claim" {
		return g.claims(conn)
	}
	if g.r.IntN(2) == 0 {
		return g.reads(conn)
	}
	return g.parks(conn)
}

// app appends in a transaction of its own, or in one that stays open.
func (g *generator) app() operation {
	conn := g.r.IntN(apps)
	if g.open[conn] && g.r.IntN(3) == 0 {
		end := []string{"commit", "commit", "rollback"}[g.r.IntN(3)]
		return operation{conn, end, end, nil}
	}
	if !g.open[conn] && g.r.IntN(2) == 0 {
		return operation{conn, "begin", "begin", nil}
	}
	event := func() (e id, agg string, notBefore *time.Time) {
		e = uuid.NewSHA1(uuid.Nil, fmt.Append(nil, g.n, g.r.Uint64()))
		if len(g.ids) > 0 && g.r.IntN(8) == 0 {
			e = g.someID()
		}
		g.ids = append(g.ids, e)
		if g.r.IntN(8) == 0 {
			at := time.Now().Add(time.Hour)
			notBefore = &at
		}
		return e, string(rune('a' + g.r.IntN(3))), notBefore
	}
	e, agg, at := event()
	if g.r.IntN(3) > 0 {
		return g.say(conn, "append", "order", agg, "order.paid", []byte("{}"), "application/json", "{}", e, (*time.Time)(nil), at, int64(0))
	}
	f, other, no := event()
	return g.say(conn, "appendMany", []id{e, f}, []*time.Time{nil, nil}, []string{"order", "order"}, []string{agg, other}, []string{"order.paid", "order.sent"}, [][]byte{{1}, {}}, []string{"text/plain", "application/json"}, []string{"{}", "{}"}, []*time.Time{at, no}, int64(0))
}

func (g *generator) someID() id {
	if len(g.ids) == 0 {
		return uuid.Nil
	}
	return g.ids[g.r.IntN(len(g.ids))]
}

func (g *generator) shard() int64 { return int64(g.r.IntN(2)) }

// rows are some that are committed, by their numbers.
func (g *generator) rows() (shards []int, seqs []int64, ids []id) {
	for _, l := range g.m.d.log.all(nil) {
		if g.r.IntN(3) == 0 {
			shards, seqs, ids = append(shards, int(l.shard)), append(seqs, l.seq), append(ids, l.id)
		}
	}
	return shards, seqs, ids
}

// parked are some of outbox_parked.
func (g *generator) parked() (shards []int, seqs []int64, ids []id) {
	for _, p := range g.m.d.parked.all(nil) {
		if g.r.IntN(2) == 0 {
			shards, seqs, ids = append(shards, int(p.shard)), append(seqs, p.seq), append(ids, p.id)
		}
	}
	return shards, seqs, ids
}

func (g *generator) generation(shard int64) int64 {
	if s := g.m.d.stream.get(nil, streamKey{"shop", g.mode, shard}); s != nil && g.r.IntN(5) > 0 {
		return s.generation
	}
	return int64(g.r.IntN(3))
}

// reads is what a relay asks of the log, and of its positions.
func (g *generator) reads(conn int) operation {
	shard := g.shard()
	from := int64(g.r.IntN(10))
	_, seqs, ids := g.rows()
	switch g.r.IntN(16) {
	case 0, 1:
		return g.say(conn, "readAll", from, int64(1+g.r.IntN(5)))
	case 2:
		return g.say(conn, "readShards", from, int64(5), []int16{int16(shard)})
	case 3:
		return g.say(conn, "fence")
	case 4:
		return g.say(conn, "lastNumber")
	case 5:
		return g.say(conn, "flushLog", from)
	case 6:
		return g.say(conn, "numbersThere", append(seqs, 10_000))
	case 7:
		return g.say(conn, "idsThere", append(ids, uuid.Nil))
	case 8:
		return g.say(conn, "enter", "shop", g.mode, shard, "OUTBOX", "p", from, "c", from, g.generation(shard))
	case 9:
		return g.say(conn, "note", "shop", g.mode, shard, "OUTBOX", []string{"p", "q"}[g.r.IntN(2)], from, "c", from, g.r.IntN(4) == 0)
	case 10:
		return g.say(conn, "raise", "shop", g.mode, shard, g.generation(shard))
	case 11:
		return g.say(conn, "saveCursor", "shop", shard, from, "c", "a", g.mode, g.generation(shard))
	case 12:
		return g.say(conn, []string{"generation", "firstRelay", "savedPosition"}[0], "shop", g.mode, shard)
	case 13:
		return g.say(conn, "savedPosition", "shop", shard)
	case 14:
		return g.say(conn, "notedMarker", "shop", g.mode, shard, "OUTBOX", "p", "c")
	}
	return g.say(conn, []string{"readSettings", "cursors", "sourceName", "version", "outboxThere", "statusHead", "maintain"}[g.r.IntN(7)])
}

// parks is what a relay of mode log does with rows that cannot be published. Only a row that has no place yet is parked, as by a relay; the rest of what it says is drawn.
func (g *generator) parks(conn int) operation {
	shard := g.shard()
	shards, seqs, ids := g.parked()
	of := []int16{0, 1}
	if len(seqs) > 0 && g.r.IntN(2) == 0 {
		waits, markers := make([]float64, len(seqs)), make([]int64, len(seqs))
		for i := range seqs {
			waits[i], markers[i] = []float64{-1, 3600}[g.r.IntN(2)], int64(1+g.r.IntN(5))
		}
		switch g.r.IntN(7) {
		case 0:
			return g.say(conn, "countTries", shards, seqs, waits)
		case 1:
			return g.say(conn, "published", shards, seqs, markers)
		case 2:
			return g.say(conn, "unpromote", shards, seqs)
		case 3:
			return g.say(conn, "gone", append(shards, 0), append(seqs, 9999))
		case 4:
			return g.say(conn, "failedParked", int64(shards[0]), seqs[0], []string{"FAILED", "DEAD"}[g.r.IntN(2)], int32(2), "why", waits[0])
		case 5:
			return g.say(conn, "takeOut", int64(shards[0]), ids)
		case 6:
			return g.say(conn, "publishedBeside", shards, seqs, ids, markers)
		}
	}
	return g.parksMore(conn, shard, of)
}

func (g *generator) parksMore(conn int, shard int64, of []int16) operation {
	switch g.r.IntN(14) {
	case 0, 1, 2:
		if shards, seqs, ids := g.rows(); len(seqs) > 0 {
			state := []string{"NEW", "FAILED"}[g.r.IntN(2)]
			return g.say(conn, "park", state, int32(1), []float64{-1, 3600}[g.r.IntN(2)], "why", "shop", g.mode, int64(shards[0]), g.generation(int64(shards[0])), seqs[0], ids[0])
		}
	case 3, 4:
		_, seqs, ids := g.rows()
		return g.say(conn, "wait", "shop", g.mode, shard, g.generation(shard), seqs, ids)
	case 5:
		return g.say(conn, "due", of, int64(1+g.r.IntN(3)))
	case 6:
		return g.say(conn, "nextDue", of)
	case 7:
		return g.say(conn, "promote", []string{"order", "order"}, []string{"a", "b"})
	case 8:
		return g.say(conn, "heads", shard)
	case 9:
		return g.say(conn, "waiting", []string{"order", "order"}, []string{"a", "b"}, int64(1+g.r.IntN(3)), int64(g.r.IntN(3)))
	case 10:
		return g.say(conn, "aside", shard, int64(g.r.IntN(5)))
	case 11:
		return g.say(conn, []string{"late", "entered"}[0], shard, int64(g.r.IntN(4)))
	case 12:
		var seqs []int64
		var ids []id
		var behind []bool
		for _, t := range g.m.d.late.all(nil) {
			if t.shard == shard {
				seqs, ids, behind = append(seqs, t.seq), append(ids, t.id), append(behind, g.r.IntN(3) > 0)
			}
		}
		return g.say(conn, "reclaim", shard, seqs, ids, behind)
	}
	if g.r.IntN(4) == 0 {
		return g.say(conn, "forgetLate", shard)
	}
	return g.say(conn, "discarded", shard)
}

// claims is what a relay of mode claim does.
func (g *generator) claims(conn int) operation {
	var ids []id
	for _, e := range g.m.d.events.all(nil) {
		if g.r.IntN(2) == 0 {
			ids = append(ids, e.id)
		}
	}
	if g.token == uuid.Nil || g.r.IntN(4) == 0 {
		g.token = uuid.NewSHA1(uuid.Nil, fmt.Append(nil, "token", g.n))
	}
	switch g.r.IntN(11) {
	case 0, 1, 2:
		shards := [][]int16{{}, {0}, {0, 1}}[g.r.IntN(3)]
		return g.say(conn, "claim", shards, int64(1+g.r.IntN(4)), "a", []float64{-1, 3600}[g.r.IntN(2)], g.token, int32(2))
	case 3, 4:
		return g.say(conn, "markSent", ids, g.token)
	case 5:
		return g.say(conn, "release", ids, g.token)
	case 6:
		texts, final := slices.Repeat([]string{"why"}, len(ids)), make([]bool, len(ids))
		for i := range final {
			final[i] = g.r.IntN(3) == 0
		}
		return g.say(conn, "markFailed", ids, texts, final, g.token, int32(2), []float64{-1, 3600}[g.r.IntN(2)], 7200.0)
	case 7:
		return g.say(conn, "settleSent", ids[:min(len(ids), 1)])
	case 8:
		return g.say(conn, "settleLeases", int32(2))
	case 9:
		return g.say(conn, "missing", int64(0), ids)
	}
	return g.say(conn, []string{"readSettings", "statusHead", "parkedEvents"}[g.r.IntN(3)])
}

// operator redrives, discards, or looks.
func (g *generator) operator(conn int) operation {
	args := []any{[]id{}, "", "", "", int64(1 + g.r.IntN(3))}
	if g.r.IntN(2) == 0 {
		args[1], args[2] = "order", "a"
	}
	switch g.r.IntN(6) {
	case 0:
		return g.say(conn, "redriveEvents", args...)
	case 1:
		return g.say(conn, "discardEvents", args...)
	case 2:
		return g.say(conn, "redriveParked", args...)
	case 3:
		return g.say(conn, "discardParked", args...)
	case 4:
		return g.say(conn, "statusEvents", int64(10000))
	}
	return g.say(conn, "pressure", "shop/a", int64(g.r.IntN(100)))
}
