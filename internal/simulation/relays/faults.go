package relays

// What the faults of a schedule do.

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/shop"
)

// mishap lets happen what is due.
func (w *World) mishap() {
	for i, f := range w.o.Faults {
		if !w.happened[i] && f.At == "" && f.Step <= w.trace.Steps {
			w.happened[i] = true
			w.strike(f, nil)
		}
	}
}

// seize lets a fault strike that has waited for what somebody sends, and reports whether that does not go on its way now.
func (w *World) seize(c choice) bool {
	if !w.calmAt.IsZero() {
		return false
	}
	for i, f := range w.o.Faults {
		if f.At == "" || w.happened[i] || f.Step > w.trace.Steps || !c.is(f.At) {
			continue
		}
		if w.passed[i]++; w.passed[i] <= f.Nth {
			continue
		}
		w.happened[i] = true
		if !f.Lose && f.Kind != "stall" && f.Kind != "zombie" { // it takes effect, and its answer does not arrive
			w.do(c)
		}
		w.strike(f, c.x)
		return true
	}
	return false
}

// strike lets a fault happen, to a connection or to somebody, and counts it where there is one.
func (w *World) strike(f schedule.Fault, x *wire) {
	w.trace.Step("FAULT", f.Kind, f.String(), nil)
	if x == nil {
		x = w.someWire(f)
	}
	p := w.someRelay(f.Who)
	if x != nil && x.p != nil && f.At != "" {
		p = x.p
	}
	var struck bool
	switch f.Kind {
	case "crash", "stop", "zombie", "step":
		if struck = p != nil; struck {
			w.strikeRelay(f, p)
		}
	case "cut", "linger", "stall":
		if struck = x != nil; struck {
			w.strikeWire(f, x)
		}
	default:
		struck = w.strikeServers(f)
	}
	if struck {
		w.wrong[f.Kind]++
		if shop.CutsOff(f.Kind) {
			w.judge.Cuts++
		}
	}
}

func (w *World) strikeRelay(f schedule.Fault, p *process) {
	switch f.Kind {
	case "crash":
		p.place.again = time.Now().Add(f.For)
		w.crash(p, f.Lose)
	case "stop": // as an operator stops it
		p.cancel()
		p.place.again = time.Now().Add(f.For)
	case "zombie":
		w.holdProcess(p, f.For+4*time.Second)
	case "step":
		p.place.clock.Offset += w.sign(f)
	}
}

func (w *World) strikeWire(f schedule.Fault, x *wire) {
	if f.Kind == "stall" {
		x.held = time.Now().Add(f.For)
		return
	}
	w.cut(x, f.Lose, f.Kind == "linger")
	w.lingerUntil = time.Now().Add(f.For)
}

func (w *World) sign(f schedule.Fault) int64 { return int64(f.For) * int64(1-2*(f.Who/8%2)) * 4 }

// strikeServers lets a fault happen to the database or to the NATS server, and reports whether it could.
func (w *World) strikeServers(f schedule.Fault) bool {
	switch f.Kind {
	case "step-db":
		w.clock.Offset += w.sign(f)
		w.judge.Stepped = true
	case "drop":
		out := w.server.Outbound()
		if len(out) == 0 {
			return false
		}
		w.server.Drop(out[f.Who%len(out)].Conn)
	case "elect":
		all := w.server.Streams()
		if len(all) == 0 || w.o.Replicas == 1 || !w.electAt.IsZero() {
			return false
		}
		w.elects, w.electAt = all[f.Who%len(all)], time.Now().Add(f.For/2)
		w.server.LoseLeader(w.elects)
	case "restart":
		w.server.Restart()
		w.forget(false)
		w.serverBack = time.Now().Add(f.For / 4)
	case "full":
		w.server.SetFull(true)
		w.fullUntil = time.Now().Add(f.For)
	case "crash-db":
		w.db.Crash(func(flushed, written uint64) uint64 {
			w.trace.Note("FAULT", "the log of the database is on disk up to %d of %d", flushed, written)
			return flushed + w.r.Uint64N(written-flushed+1)
		})
		w.forget(true)
		w.dbBack = time.Now().Add(f.For / 4)
	case "set-back":
		written := w.db.Written()
		to := written - w.r.Uint64N(written/uint64(2+f.Who%20)+1) // #nosec G115 -- positive
		w.trace.Note("FAULT", "the database is set back to %d of %d", to, written)
		w.db.SetBack(to)
		w.judge.SetBack = true
		w.forget(true)
		w.dbBack = time.Now().Add(f.For / 4)
	}
	return true
}

// forget drops the connections to a server that has ended them.
func (w *World) forget(db bool) {
	w.dials.Lock()
	defer w.dials.Unlock()
	w.wires = slices.DeleteFunc(w.wires, func(x *wire) bool { return x.db == db })
}

// ease ends what has lasted long enough.
func (w *World) ease() {
	now := time.Now()
	if !w.fullUntil.IsZero() && now.After(w.fullUntil) {
		w.fullUntil = time.Time{}
		w.server.SetFull(false)
	}
	if !w.electAt.IsZero() && now.After(w.electAt) {
		w.electAt = time.Time{}
		w.server.Elect(w.elects)
	}
	if !w.lingerUntil.IsZero() && now.After(w.lingerUntil) {
		w.lingerUntil = time.Time{}
		w.db.End()
	}
}

// calm ends everything that is wrong.
func (w *World) calm() {
	w.calmAt = time.Now()
	before := w.calmAt.Add(-1)
	if !w.fullUntil.IsZero() {
		w.fullUntil = before
	}
	if !w.electAt.IsZero() {
		w.electAt = before
	}
	w.lingerUntil = before
	w.dbBack, w.serverBack = before, before
	for _, x := range w.wires {
		x.held = time.Time{}
	}
	for _, at := range w.places {
		at.again = time.Time{}
		if at.now != nil {
			at.now.held = time.Time{}
		}
	}
	w.ease()
	w.trace.Note("FAULT", "nothing goes wrong from now on")
}

func (w *World) someRelay(who int) *process {
	var up []*process
	for _, at := range w.places {
		if at.now != nil {
			up = append(up, at.now)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[who%len(up)]
}

// someWire is a connection; one that lingers is one to the database.
func (w *World) someWire(f schedule.Fault) *wire {
	all := slices.DeleteFunc(slices.Clone(w.wires), func(x *wire) bool { return f.Kind == "linger" && !x.db })
	if len(all) == 0 {
		return nil
	}
	return all[f.Who%len(all)]
}

func (w *World) wiresOf(p *process) []*wire {
	w.dials.Lock()
	defer w.dials.Unlock()
	return slices.DeleteFunc(slices.Clone(w.wires), func(x *wire) bool { return x.p != p })
}

// holdProcess stops a process: what it has sent goes on its way later, when others may have taken its place.
func (w *World) holdProcess(p *process, d time.Duration) {
	p.held = time.Now().Add(d)
	for _, x := range w.wiresOf(p) {
		x.held = p.held
	}
}

// cut breaks a connection.
func (w *World) cut(x *wire, lose, linger bool) {
	if x.db {
		w.db.Kill(x.id, lose, linger)
	} else {
		w.server.Kill(x.id, lose)
	}
	w.dials.Lock()
	defer w.dials.Unlock()
	w.wires = slices.DeleteFunc(w.wires, func(y *wire) bool { return y == x })
}
