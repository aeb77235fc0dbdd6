package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/instance"
)

// slow makes one server slow: it gets fewer calls.
func (d *discoveryDemo) slow(ctx context.Context) error {
	anna := d.servers[0]
	d.callers.begin()
	if err := wait.Pause(ctx, d.watch); err != nil {
		return err
	}
	before := d.callers.begin()
	anna.delay.Store(int64(100 * time.Millisecond))
	if err := wait.Pause(ctx, d.watch); err != nil {
		return err
	}
	anna.delay.Store(0)
	after := d.callers.begin()
	d.tell("anna is slow (100 ms): her part of the calls goes from %.0f %% to %.0f %%", 100*before.part("anna"), 100*after.part("anna"))
	return nil
}

// restart restarts all servers, one after the other: drained, shut down, started again at the same address.
func (d *discoveryDemo) restart(ctx context.Context) error {
	d.callers.begin()
	for _, s := range d.servers {
		began := time.Now()
		if err := s.drain(ctx); err != nil {
			return err
		}
		drained := time.Since(began)
		if err := s.start(ctx); err != nil {
			return err
		}
		if _, err := d.until(ctx, s.name+" is found again", func(names []string) bool { return !without(s.name)(names) }); err != nil {
			return err
		}
		d.tell("%s is restarted: drained in %s (all watchers have confirmed, nothing under way), found again after %s, generation %d",
			s.name, round(drained), round(time.Since(began)), s.lease.Generation())
	}
	d.restarts = d.callers.begin()
	d.tell("%d calls during five restarts, %d failed", d.restarts.calls, d.restarts.failed)
	return nil
}

// flap lets the health of one server change all the time.
func (d *discoveryDemo) flap(ctx context.Context) error {
	dora := d.servers[3]
	d.callers.begin()
	began := time.Now()
	dora.flaps.Store(true)
	if _, err := d.until(ctx, "dora is held down", without("dora")); err != nil {
		return err
	}
	out := time.Since(began)
	if err := Await(ctx, "the hold-down", func() error {
		state, until, err := d.stateOf(ctx, dora)
		if err == nil && state != instance.Flapping {
			err = fmt.Errorf("dora is %s", state)
		}
		d.held = time.Until(until)
		return err
	}); err != nil {
		return err
	}
	n := d.callers.begin()
	d.tell("dora fails three probes and passes two, in turn: held down after %s, for %s; %d calls, %d failed", round(out), round(d.held), n.calls, n.failed)
	dora.flaps.Store(false)
	return nil
}

// freeze is a process that is stopped: it takes calls and says nothing, neither to them nor to the registry.
func (d *discoveryDemo) freeze(ctx context.Context) error {
	bert := d.servers[1]
	d.callers.begin()
	began := time.Now()
	bert.freeze()
	at, err := d.until(ctx, "the frozen bert is not found", without("bert"))
	if err != nil {
		return err
	}
	d.silent, d.silentMost = at.Sub(began), d.ttl+d.grace+d.slack
	n := d.callers.begin()
	d.tell("bert freezes: not found any more after %s; %d calls, %d timed out meanwhile", round(d.silent), n.calls, n.failed)
	return nil
}

// die is a process that is killed: its connections break, and new ones are refused.
func (d *discoveryDemo) die(ctx context.Context) error {
	emil := d.servers[4]
	if err := wait.Pause(ctx, demoTimeout); err != nil { // what still waits for bert is over
		return err
	}
	d.callers.begin()
	began := time.Now()
	emil.kill()
	at, err := d.until(ctx, "the dead emil is not found", without("emil"))
	if err != nil {
		return err
	}
	// Three failures in a row: the first comes within an interval, and from then on they come at half of it.
	d.hard, d.hardMost = at.Sub(began), 2*d.interval+d.interval/10+d.slack
	n := d.callers.begin()
	d.tell("emil is killed: not found any more after %s; %d calls, %d failed (refused ones went elsewhere)", round(d.hard), n.calls, n.failed)
	return nil
}

// drain ends one server for good.
func (d *discoveryDemo) drain(ctx context.Context) error {
	cleo := d.servers[2]
	d.callers.begin()
	began := time.Now()
	if err := cleo.drain(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := wait.Pause(ctx, d.watch/2); err != nil {
		return err
	}
	d.drains = d.callers.begin()
	d.tell("cleo is drained in %s and ends: %d calls, %d failed", round(took), d.drains.calls, d.drains.failed)
	return nil
}
