package shop

// What the faults of a schedule do in the real world.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/streams"
)

// subjects are the moments of a schedule that are messages, and how these begin.
var subjects = map[string]string{"event": "outbox.", "marker": "outbox-pos.", "lease": streams.BucketSubject(streams.Names{}.Bucket(streams.OwnersBucket), "")}

// mishap lets happen what is due.
func (w *world) mishap() {
	for i, f := range w.o.Faults {
		w.mu.Lock()
		due := !w.calm && !w.struck[i] && f.At == "" && f.Step <= w.steps
		w.struck[i] = w.struck[i] || due
		w.mu.Unlock()
		if due {
			w.strike(f, nil)
		}
	}
}

// passes counts what passes on a connection, and returns a fault that has waited for it.
func (w *world) passes(moments []string) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps++
	if w.calm {
		return nil
	}
	for i, f := range w.o.Faults {
		if f.At == "" || w.struck[i] || f.Step > w.steps || !slices.Contains(moments, f.At) {
			continue
		}
		if w.passed[i]++; w.passed[i] > f.Nth {
			w.struck[i] = true
			return &f
		}
	}
	return nil
}

// strike lets a fault happen, to a connection or to somebody, and counts it where there is one.
func (w *world) strike(f Fault, x *wire) {
	p := w.someRelay(f.Who)
	if x != nil && x.p != nil {
		p = x.p
	}
	if all := w.wiresOf(nil); x == nil && len(all) > 0 {
		x = all[f.Who%len(all)]
	}
	struck := true
	switch f.Kind {
	case "crash":
		if struck = p != nil; struck {
			w.crash(p, f.For)
		}
	case "stop":
		if struck = p != nil; struck {
			w.later(p, f.For)
			p.cancel()
		}
	case "zombie":
		if struck = p != nil; struck {
			w.holdProcess(p, time.Now().Add(f.For+2*time.Second)) // its leases end meanwhile
		}
	case "cut", "linger":
		if struck = x != nil; struck {
			late := time.Duration(0)
			if f.Kind == "linger" {
				late = f.For
			}
			x.end(late)
		}
	case "stall":
		if struck = x != nil; struck {
			x.hold(time.Now().Add(f.For))
		}
	case "restart":
		struck = w.once(f.Kind, w.server.Restart)
	case "crash-db":
		struck = w.once(f.Kind, func() error {
			if err := w.cluster.Kill(); err != nil {
				return err
			}
			return w.cluster.Restart(context.Background())
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if struck {
		fmt.Fprintln(&w.notes, "FAULT", f)
		w.wrong[f.Kind]++
		if CutsOff(f.Kind) {
			w.cuts++
		}
	}
}

// once does something to a server, unless that is being done.
func (w *world) once(what string, do func() error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[what] || w.calm {
		return false
	}
	w.busy[what] = true
	w.under.Go(func() {
		if err := do(); err != nil {
			w.t.Errorf("%s: %v", what, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy[what] = false
	})
	return true
}

func (w *world) after(d time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		do()
		return
	}
	w.under.Go(func() {
		<-time.After(d)
		do()
	})
}

func (w *world) someRelay(who int) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	up := slices.DeleteFunc(slices.Clone(w.places), func(p *process) bool { return p.dead || p.ended() })
	if len(up) == 0 {
		return nil
	}
	return up[who%len(up)]
}

// later lets the next process start in its place after a time.
func (w *world) later(p *process, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.again = time.Now().Add(d)
}

// crash ends a process at once: nothing that it does afterwards reaches anybody.
func (w *world) crash(p *process, d time.Duration) {
	w.mu.Lock()
	p.dead, p.again = true, time.Now().Add(d)
	w.mu.Unlock()
	p.cancel()
	for _, x := range w.wiresOf(p) {
		x.end(0)
	}
}

// holdProcess stops a process until then: what it has sent goes on its way later, when others may have taken its place.
func (w *world) holdProcess(p *process, until time.Time) {
	w.mu.Lock()
	p.held = until
	w.mu.Unlock()
	for _, x := range w.wiresOf(p) {
		x.hold(until)
	}
}

// soothe ends everything that is wrong.
func (w *world) soothe() {
	w.mu.Lock()
	w.calm = true
	for _, p := range w.places {
		p.held, p.again = time.Time{}, time.Time{}
	}
	w.mu.Unlock()
	for _, x := range w.wiresOf(nil) {
		x.hold(time.Time{})
	}
	w.under.Wait()
}
