package simulation

// What has been stored, read from the simulated server after each step: every value and every event of every entity, also those that are replaced or removed later. The
// invariants are held against it.

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/limits"
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// history is what was seen of all entities.
type history struct {
	entities map[string]*seen.Entity // by machine/key
	order    []*seen.Entity
	read     map[string]uint64    // by stream: the last sequence
	losses   int                  // of power, and what an operator has purged or restored
	letters  []letter             // dead ones
	stored   map[uint64]time.Time // when commands were seen first, by their sequences
	seqs     map[string][2]uint64 // of commands, by their ids: the first and the last
	attempts map[string]string    // of results, by the id of the command
	lostAt   time.Time            // of the last loss of power that cost something
	tasks    limits.Log           // what ran, and what limited it
}

// observe reads what was stored since the last step, and holds it against the invariants.
func (w *World) observe() {
	if w.restoring {
		return
	}
	for _, m := range w.opts.Machines {
		name := streams.BucketStream(m.Plural)
		w.read(name, func(e *store.Entry) {
			key, ok := strings.CutPrefix(e.Subject, streams.BucketSubject(m.Plural, ""))
			if !ok {
				return
			}
			x := w.entityOf(m, key)
			v := seen.Value{Seq: e.Seq}
			if err := json.Unmarshal(e.Data, &v); err != nil {
				w.fail("I5", "the value of %s at %d is no JSON: %v", x, e.Seq, err)
				return
			}
			v.Dropped = store.Value(e.Header, "KV-Operation") != ""
			for _, i := range invariants {
				if i.value != nil {
					w.holds1(i, x, i.value(x, &v))
				}
			}
			w.history.tasks.Value(x, &v)
			x.Dropped = x.Dropped || v.Dropped
			x.Values, x.Highest = append(x.Values, v), max(x.Highest, v.Version)
		})
	}
	w.disturbed()
	w.read(streams.CommandStream, w.sawCommand)
	w.read(streams.EventStream, w.sawEvent)
	w.read(streams.DeadStream, func(e *store.Entry) {
		w.history.letters = append(w.history.letters, letter{e.Subject, store.Value(e.Header, "Instar-Dead-Subject"), store.Value(e.Header, "Instar-Dead-Id")})
	})
	mending := !w.history.lostAt.IsZero() && time.Since(w.history.lostAt) < time.Minute // the passes over all entities bring back what was not synced
	for _, i := range invariants {
		if i.step != nil && !(mending && i.id != "I11") && w.server.Log(streams.EffectStream) != nil {
			w.holds1(i, nobody{}, i.step(w))
		}
	}
}

func (w *World) sawEvent(e *store.Entry) {
	parts := strings.SplitN(e.Subject, ".", 4)
	m := w.machine(parts[2])
	if m == nil {
		return
	}
	tokens := 2
	if m.Parent != "" {
		tokens = 3
	}
	keys := strings.SplitN(parts[3], ".", tokens+1)
	x := w.entityOf(m, strings.Join(keys[:tokens], "."))
	ev := seen.Event{Seq: e.Seq, EventID: store.Value(e.Header, streams.HeaderID), Type: store.Value(e.Header, "ce-type"), Body: e.Data}
	if err := json.Unmarshal(e.Data, &ev); err != nil {
		w.fail("I3", "event %d of %s is no JSON: %v", e.Seq, x, err)
		return
	}
	if rest, ok := strings.CutPrefix(ev.EventID, m.Name+"/"+x.Key+"/"); ok {
		version, n, _ := strings.Cut(rest, "/")
		_, err := strconv.ParseUint(version, 10, 64)
		ev.Numbered = err == nil
		ev.N, _ = strconv.ParseUint(n, 10, 64)
	}
	id := streams.CommandID(m.Name, x.Key, ev.ID)
	if ev.Attempt = w.history.attempts[id]; w.history.losses == 0 { // after one, places are those of commands that were sent again
		ev.Sent = w.history.seqs[id]
	}
	w.holds1(endsOnce, x, w.history.tasks.Event(x, &ev))
	for _, i := range invariants {
		if i.event != nil {
			w.holds1(i, x, i.event(x, &ev))
		}
	}
	x.IDs[ev.EventID] = true
	x.Events = append(x.Events, ev)
}

// read calls f with each message of a stream that was not read yet.
func (w *World) read(stream string, f func(*store.Entry)) {
	l := w.server.Log(stream)
	if l == nil {
		return
	}
	for seq := max(w.history.read[stream]+1, l.First); seq <= l.Last; seq++ {
		if e := l.At(seq); e != nil {
			f(e)
		}
	}
	w.history.read[stream] = l.Last
}

func (w *World) entityOf(m *machines.Machine, key string) *seen.Entity {
	id := m.Name + "/" + key
	x := w.history.entities[id]
	if x == nil {
		x = seen.New(m, key, w.above+1)
		w.history.entities[id] = x
		w.history.order = append(w.history.order, x)
	}
	return x
}

// cut forgets what a loss of power has taken.
func (h *history) cut(w *World) {
	h.lostAt = time.Now()
	h.forget()
	w.rereading = true
	w.observe()
	w.rereading = false
}

// forget lets everything be read again.
func (h *history) forget() {
	h.losses++
	h.letters = nil
	for _, x := range h.order {
		x.Forget()
	}
	clear(h.read)
	clear(h.stored)
	clear(h.seqs)
}

func newHistory() history {
	return history{entities: map[string]*seen.Entity{}, read: map[string]uint64{}, stored: map[uint64]time.Time{}, seqs: map[string][2]uint64{}, attempts: map[string]string{}}
}
