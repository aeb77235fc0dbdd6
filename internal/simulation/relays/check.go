package relays

// What the judge of package shop is told, and when. I12: all comes to rest. I14: a process ends.

import (
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/shop"
)

// observe tells of what was stored since the last step.
func (w *World) observe() {
	if now := w.dbNow(); now.After(w.latest) {
		w.latest = now
	}
	l := w.server.Log(shop.Stream)
	if l == nil {
		return
	}
	for w.looked < l.Last {
		w.looked++
		e := l.At(w.looked)
		if e == nil || !strings.HasPrefix(e.Subject, "outbox.") {
			continue
		}
		if id, err := uuid.Parse(store.Value(e.Header, "ce-id")); err == nil {
			w.judge.Stored(id, w.looked, w.latest)
		}
	}
}

// quiet says whether all is at rest. What reads all rows comes last.
func (w *World) quiet() bool {
	return time.Since(w.calmAt) > 20*time.Second && w.judge.Unrest(false) == ""
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
	for synctest.Wait(); !w.done(); synctest.Wait() {
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute) // for what the libraries leave to themselves
}
