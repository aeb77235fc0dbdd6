package simulation

// Invariants of time: what is asked for is done as soon as nothing goes wrong. Faults last as long as they are drawn to; a bound begins anew at the end of each.

import (
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/streams"
)

// recovery is how long the program may take until it goes on when nothing goes wrong any more: a delivery that was lost comes again after 30 s (the default of AckWait).
const recovery = 35 * time.Second

// again is after how long an ack that was lost is made up for: the command is delivered once more (the default of AckWait).
const again = 30 * time.Second

// disturbed notes whether something goes wrong at this moment.
func (w *World) disturbed() {
	asked := w.operator != nil && w.operator.Left+len(w.laters) > 0
	down := w.serverDown || w.restoring || slices.ContainsFunc(w.places, func(p *place) bool { return p.now == nil })
	if asked || down || w.holds.After(time.Now()) || !w.fullUntil.IsZero() || len(w.elections) > 0 || w.slowUntil.After(time.Now()) || w.pausedUntil.After(w.serverNow()) {
		w.wrongAt = time.Now()
	}
}

// stuck are the commands that have been in their stream for longer than that.
func (w *World) stuck(within time.Duration, of func(x *store.Entry) string) string {
	log := w.server.Log(streams.CommandStream)
	if time.Since(w.wrongAt) <= within || log == nil {
		return ""
	}
	under := []string{streams.Names{}.StoredAll()}
	for e := log.NextUnder(under, 1); e != nil; e = log.NextUnder(under, e.Seq+1) {
		if time.Since(w.history.stored[e.Seq]) <= within {
			continue
		}
		if wrong := of(e); wrong != "" {
			return wrong
		}
	}
	return ""
}

// decided: commands do not wait for their decision.
func decided(w *World) string {
	return w.stuck(recovery, func(e *store.Entry) string {
		if w.isDecided(e) {
			return ""
		}
		return fmt.Sprintf("command %d, %s, was stored %s ago, and nobody has decided about it", e.Seq, e.Subject, time.Since(w.history.stored[e.Seq]))
	})
}

// acked: what was decided does not stay.
func acked(w *World) string {
	return w.stuck(recovery+again, func(e *store.Entry) string {
		if !w.isDecided(e) {
			return ""
		}
		return fmt.Sprintf("command %d, %s, is decided and still there, %s after it was stored", e.Seq, e.Subject, time.Since(w.history.stored[e.Seq]))
	})
}

// isDecided reports whether the value of the entity says so, or its sender was told.
func (w *World) isDecided(e *store.Entry) bool {
	a, err := streams.Names{}.ParseStored(e.Subject)
	if err != nil {
		return false
	}
	if x := w.history.entities[a.Machine+"/"+a.Key]; x != nil && x.Last() != nil && e.Seq <= x.Last().Mark {
		return true
	}
	id := streams.UnscopeID(a.Machine, a.Key, store.Value(e.Header, streams.HeaderID))
	return slices.ContainsFunc(w.clients, func(c *client) bool {
		return slices.ContainsFunc(c.log, func(rec *record) bool { _, ok := rec.answer(); return ok && rec.id == id })
	})
}
