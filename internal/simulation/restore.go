package simulation

// The operator takes a backup while work goes on; later all nodes stop, the server is one without streams, the backup is restored, and nodes start. What was answered before the backup
// was begun is held against what there is then as ever, and what came after it is gone.

import (
	"encoding/json"
	"log/slog"

	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/streams"
)

// saved is a backup, and how the world was when it was begun.
type saved struct {
	file     []byte
	answered map[*record]int         // answers of each
	highest  map[*seen.Entity]uint64 // versions
	lost     bool
}

func restore(w *World, f Fault) {
	of := backup.Store{Plan: w.plan, Machines: w.opts.Machines, Log: slog.New(w.trace.Handler("operator"))}
	b := &saved{}
	w.operator.Backup(of, func() {
		*b = saved{answered: map[*record]int{}, highest: map[*seen.Entity]uint64{}, lost: w.lost}
		for _, c := range w.clients {
			for _, rec := range c.log {
				b.answered[rec] = len(rec.answers)
			}
		}
		for _, x := range w.history.order {
			b.highest[x] = x.Highest
		}
	}, func(file []byte) {
		b.file, b.lost = file, b.lost || w.lost // values from before a loss of power and events from after it may be in one backup
		w.later(f.For, func() {
			w.operator.Restore(of, file, func() (ready bool) {
				ready, w.emptied = w.emptied, false
				if !ready {
					w.replaced = b
				}
				return ready
			}, func(r backup.Restored) { w.restored, w.above = true, r.Above })
		})
	})
}

// clear stops all nodes, and puts a server without streams in the place of the one that they had. Nobody but the operator reaches it until the restore has ended.
func (w *World) clear(b *saved) {
	w.trace.Step("operator", "empties", "the server", nil)
	for _, p := range w.places {
		if p.now != nil {
			w.crash(p.now, true)
		}
	}
	for _, c := range w.clients {
		for _, rec := range c.log {
			before := b.answered[rec]
			rec.gone = rec.gone || len(rec.answers) > 0 && before == 0
			if w.lost && before > 0 {
				rec.answers = rec.answers[:before] // what differs from those had cost them, and the backup brings them back
			}
		}
	}
	for _, x := range w.history.order {
		x.Torn = x.Torn || x.Highest != b.highest[x]
		x.Above = x.Highest
	}
	w.server.Empty()
	w.disk.Lost()
	w.wires = nil
	w.restoring, w.emptied, w.lost = true, true, b.lost // what a loss of power has cost since then is gone anyway
}

// goOn lets nodes go on with what was restored.
func (w *World) goOn() {
	w.trace.Note("operator", "has restored, above %d", w.above)
	w.count("restored")
	w.restored, w.restoring = false, false
	w.restores++
	w.history.forget()
	for _, x := range w.history.order {
		base := w.above + 1
		if e := w.server.Log(streams.BucketStream(x.Machine.Plural)).LastUnder(streams.BucketSubject(x.Machine.Plural, x.Key)); e != nil {
			var v seen.Value
			_ = json.Unmarshal(e.Data, &v) // or no event is of that version
			base = v.Version
			if store.Value(e.Header, "KV-Operation") != "" { // it has been dropped, and nothing is told of it
				base++
			}
		}
		x.Bases = append(x.Bases, base)
	}
	w.observe()
	w.wantAgain()
}
