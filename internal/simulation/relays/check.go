package relays

// The invariants. I13: each committed row becomes an event exactly once, in order per aggregate, and none that is not. I12: all comes to rest. I14: a process ends.

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/tables"
	"github.com/bcc94042/instar/streams/outbox"
)

// stream is where events go.
const stream = "OUTBOX"

// idOf is the id of an event in the stream; nil for what is none.
func idOf(e *store.Entry) uuid.UUID {
	if !strings.HasPrefix(e.Subject, "outbox.") {
		return uuid.Nil
	}
	id, _ := uuid.Parse(store.Value(e.Header, "ce-id"))
	return id
}

// observe looks at what was stored since the last step.
func (w *World) observe() {
	l := w.server.Log(stream)
	if l == nil {
		return
	}
	for w.looked < l.Last {
		w.looked++
		e := l.At(w.looked)
		if e == nil {
			continue
		}
		id := idOf(e)
		if id == uuid.Nil {
			continue
		}
		switch {
		case w.seen[id] > 0:
			w.fail("I13", "event %s is stored at %d and again at %d", id, w.seen[id], w.looked)
		case w.undone(id):
			w.fail("I13", "event %s is of a transaction that was rolled back", id)
		case !w.db.Durable(id):
			w.fail("I13", "event %s is stored at %d before its commit is on the disk of the database", id, w.looked)
		}
		w.seen[id] = w.looked
	}
}

func (w *World) undone(id uuid.UUID) bool {
	return slices.ContainsFunc(w.apps, func(a *app) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.undone[id]
	})
}

// unrest is what keeps the world from rest; empty for nothing.
func (w *World) unrest() string {
	parked := map[string]bool{}
	waiting := 0
	for _, r := range w.db.Rows() {
		parked[r.Aggregate] = parked[r.Aggregate] || r.State == "DEAD"
		if w.seen[r.ID] == 0 && !parked[r.Aggregate] {
			waiting++
		}
	}
	if waiting > 0 {
		return fmt.Sprintf("%d rows are not in the stream", waiting)
	}
	return ""
}

// quiet says whether all is at rest. What reads all rows comes last.
func (w *World) quiet() bool {
	return time.Since(w.calmAt) > 20*time.Second && w.unrest() == ""
}

// check holds the stream against the tables, at rest.
func (w *World) check() {
	published := map[string][]tables.Row{}
	dead, ahead := map[string]bool{}, map[string][]tables.Row{} // aggregates that wait behind a row, and that row, unless it may be overtaken
	there := map[uuid.UUID]bool{}
	for _, r := range w.db.Rows() {
		there[r.ID] = true
		at := w.seen[r.ID]
		switch {
		case r.State == "DEAD":
			dead[r.Aggregate] = true
			if !r.Later {
				ahead[r.Aggregate] = append(ahead[r.Aggregate], r)
			}
			if at > 0 {
				w.fail("I13", "event %s is parked, and stored at %d", r.ID, at)
			}
		case at == 0 && dead[r.Aggregate], r.Later:
		case at == 0:
			w.fail("I13", "row %d, event %s of %s, is not in the stream, and nothing tells why", r.Seq, r.ID, r.Aggregate)
		case !w.db.Lost(r.ID) && slices.ContainsFunc(ahead[r.Aggregate], func(before tables.Row) bool { return w.ordered(before, r) }):
			w.fail("I13", "event %s of %s has overtaken one that is parked", r.ID, r.Aggregate)
		case w.db.Lost(r.ID): // it has another number now than when it was published
		default:
			for _, before := range published[r.Aggregate] {
				if w.seen[before.ID] > at && w.ordered(before, r) {
					w.fail("I13", "row %d, event %s of %s, is stored at %d, behind row %d, at %d", before.Seq, before.ID, r.Aggregate, w.seen[before.ID], r.Seq, at)
				}
			}
			published[r.Aggregate] = append(published[r.Aggregate], r)
		}
	}
	for _, a := range w.apps {
		for id, is := range a.promised {
			if is && !there[id] && !w.setBack {
				w.fail("model", "the database has lost event %s, whose commit it had answered", id)
			}
		}
	}
}

// ordered says whether a row of an aggregate has to be published before a later one: in mode claim, unless their transactions were open at the same time.
func (w *World) ordered(before, r tables.Row) bool {
	return w.o.Mode == outbox.Log || before.Committed <= r.Appended || before.Committed == r.Committed
}

// end lets everything come to an end, so that the bubble can.
func (w *World) end() {
	if w.calmAt.IsZero() {
		w.calm()
	}
	w.over.Store(true)
	w.trace.On = w.trace.Live
	for _, at := range w.places {
		if at.now != nil {
			w.crash(at.now, true)
		}
	}
	w.server.Close()
	w.db.Close()
	stop := time.After(10 * time.Minute)
	for _, p := range w.all {
		select {
		case <-p.done:
		case <-stop:
			w.fail("I14", "%s does not end", p.place.name)
			return
		}
	}
	for synctest.Wait(); !w.appsDone(); synctest.Wait() {
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute) // for what the libraries leave to themselves
}
