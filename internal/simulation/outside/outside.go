// Package outside is the world outside of a simulated installation: what providers do, and what observers see. It outlives every process.
package outside

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
)

// Outside is all of it.
type Outside struct {
	Machines []*machines.Machine
	Lies     bool // providers are slow, fail, hang, panic and lie
	Note     func(who, format string, args ...any)

	// Late is told of an attempt that comes when one of the same effect with a higher fence has been here before.
	Late func(t machines.Task, before uint64)

	mu     sync.Mutex
	r      *rand.Rand
	calmed chan struct{}     // closed when nothing goes wrong any more
	fences map[string]uint64 // the highest that was seen, by machine and key, and of each effect
	told   map[string]uint64 // the highest that an attempt with a lower one was told, by machine and key
	holds  map[string]bool   // what work has made and nobody has released, likewise
}

// Begin makes it ready: nothing has happened, and what it does is drawn from r.
func (o *Outside) Begin(r *rand.Rand) {
	o.r, o.calmed = r, make(chan struct{})
	o.fences, o.told, o.holds = map[string]uint64{}, map[string]uint64{}, map[string]bool{}
}

// Calm has it tell the truth, at once, from now on.
func (o *Outside) Calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Lies = false
	close(o.calmed)
}

// Told is the highest fence of which an attempt of an entity was told that it is below.
func (o *Outside) Told(machine, key string) uint64 { return o.told[machine+"/"+key] }

// Holds reports whether something is there that the work of an entity has made.
func (o *Outside) Holds(machine, key string) bool { return o.holds[machine+"/"+key] }

// Provider is that of one machine, as the process that is named calls it.
func (o *Outside) Provider(process, machine string) Provider { return Provider{o, process, machine} }

// Provider performs effects.
type Provider struct {
	o                *Outside
	process, machine string
}

var errSilent = errors.New("the outside does not answer")

// Perform does what a task says: at once, late, never, wrongly, or not. What it reports is drawn from the type that the table gives the report.
func (p Provider) Perform(ctx context.Context, t machines.Task) machines.Result {
	o := p.o
	o.mu.Lock()
	how, wait := o.r.IntN(20), time.Duration(o.r.Int64N(int64(2*time.Second)))
	var done any
	m := o.Machines[slices.IndexFunc(o.Machines, func(m *machines.Machine) bool { return m.Name == p.machine })]
	if fx, ok := m.Effect(t.Effect); ok {
		in, _ := m.Input(fx.Done)
		done = orders.ValueOf(o.r, in.Body)
	}
	lies := o.Lies
	half := o.r.IntN(2) == 0
	o.mu.Unlock()
	o.Note(p.process, "performs %s of %s/%s, attempt %s, fence %d, how %d", t.Effect, p.machine, t.Key(), t.Attempt, t.Fence, how)
	if refused := o.land(t, false); refused != nil {
		return machines.Result{Failure: refused}
	}
	if !lies {
		how = 0
	}
	if t.Machine == task.Machine.Name && t.Effect == task.EffectRun && how < 14 { // several are under way at a time
		how = 13
	}
	if how > 13 && half { // done, and the answer is another one
		o.land(t, true)
	}
	switch {
	case how < 12:
		o.land(t, true)
		return machines.Result{Data: done}
	case how < 14:
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "given up", Retryable: true}}
		}
		if refused := o.land(t, true); refused != nil {
			return machines.Result{Failure: refused}
		}
		return machines.Result{Data: done}
	case how == 14:
		select { // it may hang for minutes, by the time that its table gives it
		case <-ctx.Done():
		case <-o.calmed:
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

// land does what a task says, or would, unless a later one has been here.
func (o *Outside) land(t machines.Task, do bool) *machines.Failure {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := t.Machine + "/" + t.Key()
	own := id + "/" + t.Effect // others of the entity may be under way beside it
	if seen := o.fences[id]; t.Fence < seen {
		if before := o.fences[own]; t.Fence < before {
			o.Late(t, before)
		}
		o.told[id] = max(o.told[id], seen)
		return &machines.Failure{Code: "fenced", Message: "a later one has been here", Retryable: true, Fence: seen}
	}
	o.fences[id], o.fences[own] = t.Fence, t.Fence
	if do {
		switch t.Effect {
		case "work":
			o.holds[id] = true
		case "release":
			delete(o.holds, id)
		}
	}
	return nil
}

// Looker is who looks at the entities of a machine.
func (o *Outside) Looker(m *machines.Machine) Looker { return Looker{o, m} }

// Looker sees what is drawn.
type Looker struct {
	o *Outside
	m *machines.Machine
}

// Look reports now and then something that the table takes as a report and that is no answer to an effect.
func (l Looker) Look(_ context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	l.o.mu.Lock()
	defer l.o.mu.Unlock()
	r := l.o.r
	if r.IntN(8) == 0 {
		return machines.Finding{}, errSilent
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
func (l Looker) Watch(ctx context.Context, _ func(string)) error { <-ctx.Done(); return nil }
