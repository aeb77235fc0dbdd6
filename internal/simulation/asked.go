package simulation

// Invariants of what was asked for under a condition: at a revision, under an attempt, and what can be had again because it could not be done.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// conditional looks at the value that an applied command has replaced: it was at a revision that the sender expected.
func conditional(w *World) string {
	for _, c := range w.clients {
		for _, rec := range c.log {
			expected, ok := streams.ParseExpected(rec.Expect)
			a, answered := rec.answer()
			if !ok || rec.Expect == "" || expected.Any || !answered || a.Outcome != machines.Applied {
				continue
			}
			var before value
			for i, v := range w.entityOf(w.machine(rec.Machine), rec.Key).values {
				known := i > 0 || w.history.losses == 0 // after a loss of power only the last value of an entity can be read again
				if v.seq == a.Revision && known && !expected.Holds(before.seq) && !before.dropped {
					return fmt.Sprintf("%s %s of %s under %s expected revision %s, and was applied to %d", rec.Machine, rec.Name, rec.Key, rec.id, rec.Expect, before.seq)
				}
				before = v
			}
		}
	}
	return ""
}

// sawCommand notes when a command was stored, and under which attempt a result was sent.
func (w *World) sawCommand(e *store.Entry) {
	w.history.stored[e.Seq] = time.Now()
	var body struct{ Attempt string }
	if id := store.Value(e.Header, streams.HeaderID); json.Unmarshal(e.Data, &body) == nil && body.Attempt != "" {
		w.history.attempts[id] = body.Attempt
	}
}

// awaited looks at what an entity waited for before a result was taken: its attempt.
func awaited(w *World, x *entity, ev *event) string {
	attempt := w.history.attempts[streams.CommandID(x.m.Name, x.key, ev.ID)]
	of := func(fx machines.EffectInfo) bool {
		return ev.Command == fx.Done || ev.Command == fx.Failed || ev.Command == machines.CommandFailed
	}
	if attempt == "" || !ev.numbered || ev.typ == machines.EventDead || !slices.ContainsFunc(x.m.Effects, of) { // a table may want to know of results that are too late
		return ""
	}
	for i := len(x.values) - 1; i >= 0; i-- {
		v := &x.values[i]
		if v.Version >= ev.Version {
			continue
		}
		if v.Version < ev.Version-1 {
			break // several were written at once
		}
		for _, a := range v.Effects {
			if a.ID == attempt {
				return ""
			}
		}
		return fmt.Sprintf("event %s is of a result of attempt %s, and the entity waited for %v", ev.id, attempt, v.Effects)
	}
	return ""
}

// kept counts the dead letters of each entity: there is one of each command that was answered with dead.
func kept(w *World) string {
	dead := map[string]int{}
	for _, c := range w.clients {
		for _, rec := range c.log {
			if a, ok := rec.answer(); ok && a.Outcome == machines.Dead {
				dead["."+rec.Machine+"."+rec.Key]++
			}
		}
	}
	for of, n := range dead {
		for _, subject := range w.history.letters {
			if strings.HasSuffix(subject, of) {
				n--
			}
		}
		if n > 0 && w.history.losses == 0 { // those that were put back before a loss are not known any more
			return fmt.Sprintf("%d of %s were answered with dead and are no dead letters", n, of)
		}
	}
	return ""
}
