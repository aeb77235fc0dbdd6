package simulation

// The world outside: what providers do and what observers see. It outlives every process.

import (
	"context"
	"errors"
	"time"

	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/machines"
)

// outside is what providers have seen.
type outside struct {
	fences map[string]uint64 // the highest, by machine and key, and of each effect
	told   map[string]uint64 // the highest that it has told an attempt with a lower one, by machine and key
	holds  map[string]bool   // what work has made and nobody has released, likewise
}

// performer is the provider of one machine as one process calls it.
type performer struct {
	n       *node
	machine string
}

var errOutside = errors.New("the outside does not answer")

// Perform does what a task says: at once, late, never, wrongly, or not. What it reports is drawn from the type that the table gives the report.
func (p performer) Perform(ctx context.Context, t machines.Task) machines.Result {
	w := p.n.w
	w.outMu.Lock()
	r := w.outRand
	id := p.machine + "/" + t.Key()
	how, wait := r.IntN(20), time.Duration(r.Int64N(int64(2*time.Second)))
	var done any
	m := w.machine(p.machine)
	if fx, ok := m.Effect(t.Effect); ok {
		in, _ := m.Input(fx.Done)
		done = orders.ValueOf(r, in.Body)
	}
	lies := w.opts.Lies
	half := r.IntN(2) == 0
	w.outMu.Unlock()
	w.trace.Note(p.n.nonce, "performs %s of %s, attempt %s, fence %d, how %d", t.Effect, id, t.Attempt, t.Fence, how)
	if refused := w.land(t, false); refused != nil {
		return machines.Result{Failure: refused}
	}
	if !lies {
		how = 0
	}
	if how > 13 && half { // done, and the answer is another one
		w.land(t, true)
	}
	switch {
	case how < 12:
		w.land(t, true)
		return machines.Result{Data: done}
	case how < 14:
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "given up", Retryable: true}}
		}
		if refused := w.land(t, true); refused != nil {
			return machines.Result{Failure: refused}
		}
		return machines.Result{Data: done}
	case how == 14:
		select { // it may hang for minutes, by the time that its table gives it
		case <-ctx.Done():
		case <-w.calmed:
		}
		return machines.Result{Failure: &machines.Failure{Code: "timeout", Message: "it hangs", Retryable: true}}
	case how < 17:
		return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "not now", Retryable: true, RetryAfter: wait}}
	case how == 17:
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: "never"}}
	case how == 18:
		panic("a provider that panics")
	}
	return machines.Result{Data: map[string]any{"what": "nobody asked for"}}
}

// land does what a task says, or would, unless a later one has been here. The attempt that the entity waits for must not be an earlier one.
func (w *World) land(t machines.Task, do bool) *machines.Failure {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	id := t.Machine + "/" + t.Key()
	own := id + "/" + t.Effect // others of the entity may be under way beside it
	if seen := w.outside.fences[id]; t.Fence < seen {
		if x := w.history.entities[id]; t.Fence < w.outside.fences[own] && !w.lost && x != nil && x.last() != nil && x.last().Effects[t.Effect].ID == t.Attempt {
			w.fail("I7", "attempt %s of %s, which is waited for, has fence %d, and %d was there before", t.Attempt, own, t.Fence, w.outside.fences[own])
		}
		w.outside.told[id] = max(w.outside.told[id], seen)
		return &machines.Failure{Code: "fenced", Message: "a later one has been here", Retryable: true, Fence: seen}
	}
	w.outside.fences[id], w.outside.fences[own] = t.Fence, t.Fence
	if do {
		switch t.Effect {
		case "work":
			w.outside.holds[id] = true
		case "release":
			delete(w.outside.holds, id)
		}
	}
	return nil
}

// looker sees what is drawn.
type looker struct {
	n *node
	m *machines.Machine
}

// Look reports now and then something that the table takes as a report and that is no answer to an effect.
func (l looker) Look(_ context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	w := l.n.w
	w.outMu.Lock()
	defer w.outMu.Unlock()
	r := w.outRand
	if r.IntN(8) == 0 {
		return machines.Finding{}, errOutside
	}
	s, ok := l.m.State(e.State)
	if !ok || s.Poll == nil || r.IntN(3) == 0 {
		return machines.Finding{}, nil
	}
	fx, ok := l.m.Effect(s.Poll.Effect)
	if !ok {
		return machines.Finding{}, nil
	}
	in, _ := l.m.Input(fx.Done)
	return machines.Finding{Input: in.Name, Data: orders.ValueOf(r, in.Body)}, nil
}

// Watch never tells anything.
func (l looker) Watch(ctx context.Context, _ func(string)) error { <-ctx.Done(); return nil }
