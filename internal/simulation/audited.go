package simulation

// Invariants of what others see: who asked for what, what a loss of power has cost, what the indexes answer, and what the outside was made to do.

import (
	"fmt"
	"slices"

	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines"
)

// audited: each refusal has an event.
func audited(w *World) string {
	told := map[string]bool{}
	for _, x := range w.history.order {
		for _, ev := range x.Events {
			if ev.Type == machines.EventRefused {
				told[x.Machine.Name+"/"+x.Key+"/"+ev.ID] = true
			}
		}
	}
	silent := []string{machines.CodeUnknown, machines.CodeKeyReused, machines.CodeParked, machines.CodeStale}
	for _, c := range w.clients {
		for _, rec := range c.log {
			a, ok := rec.answer()
			if !ok || a.Outcome != machines.Refused || a.Refusal == nil || slices.Contains(silent, a.Refusal.Code) {
				continue
			}
			if !told[rec.Machine+"/"+rec.Key+"/"+rec.id] {
				return fmt.Sprintf("%s %s of %s under %s was refused (%s), and no event tells it", rec.Machine, rec.Name, rec.Key, rec.id, a.Refusal.Code)
			}
		}
	}
	return ""
}

// lossTold: a version whose events were lost lies below an event that tells of the loss, and no event is of a version that is still to come.
func lossTold(w *World) string {
	for _, x := range w.history.order {
		if x.Purged {
			continue
		}
		v, base := x.Last(), x.Base()
		has, reconciled, highest := map[uint64]bool{}, uint64(0), uint64(0)
		wholly := false // it is told that the value was lost as a whole, and with it all versions up to the next one
		for _, ev := range x.Events {
			if ev.Type == machines.EventReconciled {
				reconciled, wholly = max(reconciled, ev.Version), ev.Version == 0
			}
			if ev.Numbered {
				if w.lost && highest == 0 && ev.From == machines.None && ev.Version == w.above+1 {
					base = ev.Version // nothing is left of what was restored of it, so nobody knows that it was there
				}
				if wholly && ev.Version > 0 {
					reconciled, wholly = max(reconciled, ev.Version-1), false
				}
				has[ev.Version], highest = true, max(highest, ev.Version)
			}
		}
		if v == nil { // a value that is lost as a whole is told by the next command, and none has come
			continue
		}
		if highest > v.Version {
			return fmt.Sprintf("%s is at version %d, below its event of version %d", x, v.Version, highest)
		}
		for version := base; version <= v.Version; version++ {
			if !has[version] && reconciled < version && w.outside.Told(x.Machine.Name, x.Key) < version { // a provider that has seen a higher fence makes it go on above that
				return fmt.Sprintf("%s is at version %d, no event is of version %d, and none tells that it was lost", x, v.Version, version)
			}
		}
	}
	return ""
}

// indexed: what a node's index says of an entity never falls back.
func indexed(w *World) string {
	for _, p := range w.places {
		n := p.now
		if n == nil || n.all == nil {
			continue
		}
		for i, m := range w.opts.Machines {
			ix := n.all.Get(m.Name)
			if ix == nil || ix.Revision() == n.read[i] {
				continue
			}
			n.read[i] = ix.Revision()
			for _, key := range w.keys[m.Name] {
				it, _ := ix.Get(key)
				id := m.Name + "/" + key
				if before := n.saw[id]; it.Revision < before && !w.opts.Drops && !w.forgets(w.entityOf(m, key), before) { // what is dropped is not there any more
					return fmt.Sprintf("the index of %s has %s at revision %d after %d", n.nonce, id, it.Revision, before)
				}
				n.saw[id] = it.Revision
			}
		}
	}
	return ""
}

// forgets: indexes list what has ended for as long as they are told to, by the clocks of their nodes, which may be wrong.
func (w *World) forgets(x *seen.Entity, revision uint64) bool {
	return w.opts.Skew && slices.ContainsFunc(x.Values, func(v seen.Value) bool {
		s, ok := x.Machine.State(v.State)
		return v.Seq == revision && ok && s.Terminal
	})
}

// current: the indexes have what is stored.
func current(w *World) string {
	for _, p := range w.places {
		for _, x := range w.history.order {
			v := x.Last()
			if p.now == nil || p.now.all == nil || v == nil || v.Dropped || w.forgets(x, v.Seq) {
				continue
			}
			if it, _ := p.now.all.Get(x.Machine.Name).Get(x.Key); it.Revision != v.Seq || it.State != v.State {
				return fmt.Sprintf("the index of %s has %s %s at revision %d, it is %s at %d", p.now.nonce, x, it.State, it.Revision, v.State, v.Seq)
			}
		}
	}
	return ""
}

// superseded: the attempt that an entity waits for is not older than one of that effect that the outside has seen.
func (w *World) superseded(t machines.Task, before uint64) {
	if x := w.history.entities[t.Machine+"/"+t.Key()]; !w.lost && x != nil && x.Last() != nil && x.Last().Effects[t.Effect].ID == t.Attempt {
		w.fail("I7", "attempt %s of %s of %s, which is waited for, has fence %d, and %d was there before", t.Attempt, t.Effect, x, t.Fence, before)
	}
}

// released: what the outside was made to hold for a thing is gone when the thing is closed, unless a client has made the report up that it was released.
func released(w *World) string {
	for _, x := range w.history.order {
		lied := func(ev seen.Event) bool { return ev.To == "closed" && x.MadeUp(ev) }
		if v := x.Last(); x.Machine == orders.Things && v != nil && v.State == "closed" && !x.Torn && !slices.ContainsFunc(x.Events, lied) && w.outside.Holds(x.Machine.Name, x.Key) {
			return fmt.Sprintf("%s is closed, and the outside still holds what its work has made", x)
		}
	}
	return ""
}
