package simulation

// Invariants of what was asked for under a condition: at a revision, under an attempt, and what can be had again because it could not be done.

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// told holds the answers of one entity after the other against its history. It asks nothing where a loss has made that of some entities unreadable.
func told(wrong func(x *seen.Entity, rec *record, a *machines.Answer) string) func(*World) string {
	return func(w *World) string {
		if w.history.losses > 0 { // only the last value of an entity can be read again
			return ""
		}
		for _, c := range w.clients {
			for _, rec := range c.log {
				a, ok := rec.answer()
				if !ok {
					continue
				}
				if text := wrong(w.entityOf(w.machine(rec.Machine), rec.Key), rec, &a); text != "" {
					return fmt.Sprintf("%s %s of %s under %s expected revision %q, was answered %s, %s", rec.Machine, rec.Name, rec.Key, rec.id, rec.Expect, rec.answers[0], text)
				}
			}
		}
		return ""
	}
}

func stood(x *seen.Entity, _ *record, a *machines.Answer) string { return seen.Stood(x, a) }

// conditional: the ids of clients are never those of others, so that whoever repeats a command expects the same.
func conditional(x *seen.Entity, rec *record, a *machines.Answer) string {
	return seen.Expected(x, rec.Expect, rec.told, a)
}

// sawCommand notes when a command was stored, and under which attempt a result was sent.
func (w *World) sawCommand(e *store.Entry) {
	w.history.stored[e.Seq] = time.Now()
	w.history.tasks.Command(e.Seq)
	var body struct{ Attempt string }
	id := store.Value(e.Header, streams.HeaderID)
	first, again := w.history.seqs[id]
	if !again {
		first[0] = e.Seq
	}
	w.history.seqs[id] = [2]uint64{first[0], e.Seq}
	if json.Unmarshal(e.Data, &body) == nil && body.Attempt != "" {
		w.history.attempts[id] = body.Attempt
	}
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
		for _, l := range w.history.letters {
			if strings.HasSuffix(l.subject, of) {
				n--
			}
		}
		if n > 0 && w.history.losses == 0 { // those that were put back before a loss are not known any more
			return fmt.Sprintf("%d of %s were answered with dead and are no dead letters", n, of)
		}
	}
	return ""
}
