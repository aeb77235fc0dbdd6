package simulation

// The world outside: what providers do and what observers see. It outlives every process.

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/bcc94042/instar/machines"
)

// outside is what providers have seen.
type outside struct {
	fences map[string]uint64 // the highest, by machine and key
	calls  map[string]int    // by attempt
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
		done = valueOf(r, in.Body)
	}
	seen := w.outside.fences[id]
	w.outside.calls[t.Attempt]++
	if t.Fence >= seen {
		w.outside.fences[id] = t.Fence
	}
	lies := w.opts.Lies
	w.outMu.Unlock()
	w.trace.note(p.n.nonce, "performs %s of %s, attempt %s, fence %d, how %d", t.Effect, id, t.Attempt, t.Fence, how)
	if t.Fence < seen {
		return machines.Result{Failure: &machines.Failure{Code: "fenced", Message: "a later one has been here", Retryable: true, Fence: seen}}
	}
	if !lies {
		how = 0
	}
	switch {
	case how < 12:
		return machines.Result{Data: done}
	case how < 14:
		if !sleep(ctx, wait) {
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "given up", Retryable: true}}
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
	return machines.Finding{Input: in.Name, Data: valueOf(r, in.Body)}, nil
}

// Watch never tells anything.
func (l looker) Watch(ctx context.Context, _ func(string)) error { <-ctx.Done(); return nil }

// sleep waits, and reports false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func draws(seed uint64, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, what)) }
