package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/machines"
)

// AddMachine adds a machine to the server while it runs, or before it acts, as from [Options.Open]. When it returns, commands are taken, effects are
// performed by p, and HTTP, NATS, documents, lists and watches have the machine as if it had been in [Options.Machines]; what is under way
// meanwhile goes on. A machine is never taken away.
//
// After an error nothing has changed, but that buckets may be there, which are taken next time: when another machine has its name or a
// bucket or consumer of it, when its bucket is one of the server, when nobody performs its effects, when its bodies cannot be documented, when its provider cannot be opened, when the
// streams cannot be made before ctx ends, and when the server stops.
//
// Each process has machines of its own, so it is to be called on every node of a cluster, and after a restart again, before commands, results and timers
// of the machine come to that node: one that does not know the machine refuses a command with the code not-found, and keeps it as a dead
// letter, which redrive puts back; tasks and views wait while the process that has that role does not know it. What Options.Open adds is
// there before the node takes anything. A provider that is being opened cannot add machines: by a host of before it waits for itself until ctx ends. What it
// has asked [Host.Serving] for can.
func (h *Host) AddMachine(ctx context.Context, m *machines.Machine, p Provider) error {
	if m == nil {
		return errors.New("there is no machine to add")
	}
	err := errors.New("its provider is still being opened, which cannot add another one")
	if !h.opening.Load() {
		err = h.app.add(ctx, m, p)
	}
	if err != nil {
		return fmt.Errorf("cannot add machine %s: %w", m.Name, err)
	}
	return nil
}

// add adds a machine in its turn, and has its provider do what needs an API that listens when the turn is another one's: that may be to add a machine.
func (a *app) add(ctx context.Context, m *machines.Machine, p Provider) error {
	ctx, cancel := a.untilStopped(ctx)
	defer cancel()
	h := a.host(&steps{broken: make(chan error, 8)})
	begins, err := a.addInTurn(ctx, h, m, p)
	if errors.Is(err, context.Canceled) && a.told() {
		return errStops
	}
	if !begins {
		return err
	}
	defer a.beginning.Done()
	if err := h.begin(context.WithoutCancel(ctx), a.url); err != nil {
		a.breaks(err)
	}
	return nil
}

// addInTurn makes everything ready for a machine before anybody sees it, and then lets all see it: first those who take its commands, then those
// who take them in. Where the API listens its host begins then, which the stop of the server waits for.
func (a *app) addInTurn(ctx context.Context, h *Host, m *machines.Machine, p Provider) (begins bool, err error) {
	leave, err := a.takeTurn(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	if err := errors.Join(a.machines.Check(m), usable(m, p)); err != nil {
		return false, err
	}
	added := false
	defer func() {
		if !added { // also after a panic of its provider
			err = errors.Join(err, a.forget(ctx, h, m))
		}
	}()
	serve, err := a.prepare(ctx, h, m, p)
	if err != nil {
		return false, err
	}
	if err := a.machines.Add(m); err != nil {
		return false, err
	}
	added = true
	go a.passOn(h.steps)
	a.added.onStop("the machine "+m.Name, func(ctx context.Context) error { return h.steps.stopAll(ctx, a.dog.at) })
	a.mu.Lock()
	a.hosts = append(a.hosts, h)
	a.mu.Unlock()
	a.log.Info("a machine was added", "machine", m.Name)
	if a.api == nil {
		return false, nil
	}
	serve()
	a.beginning.Add(1)
	return true, nil
}

// passOn ends the server with what ends of a machine that was added, until it stops.
func (a *app) passOn(s *steps) {
	for {
		select {
		case err := <-s.broken:
			a.breaks(err)
		case <-a.stopped:
			return
		}
	}
}

// prepare makes what a machine needs: its buckets, its index, its provider, its routes. What it starts, the steps of its host stop.
func (a *app) prepare(ctx context.Context, h *Host, m *machines.Machine, p Provider) (serve func(), err error) {
	a.mu.Lock()
	a.providers[m.Name] = p
	a.mu.Unlock()
	if err := a.tellDiffs(a.ensure(ctx, a.deps.NC, a.deps.JS, a.plan(m))); err != nil {
		return nil, err
	}
	ix := a.startIndex(context.WithoutCancel(ctx), h.steps, m)
	select {
	case <-ix.Ready():
	case <-ctx.Done():
		return nil, fmt.Errorf("its entities are not read yet: %w", ctx.Err())
	}
	h.opening.Store(true)
	err = cmp.Or(a.open(ctx, h, m), ctx.Err()) // it may not look at ctx, which what it has started has ended with
	h.opening.Store(false)
	if w := a.workOf(m.Name); err == nil && len(m.Effects) > 0 && w.Performer == nil {
		err = errors.New("its provider performs no effects")
	}
	if err != nil || a.api == nil {
		return nil, err
	}
	if len(h.doors) > 0 {
		return nil, errors.New("its provider has settings of the API, which are those of the start: put the machine into Options.Machines, or add it in Options.Open")
	}
	return a.api.Prepare(ctx, m)
}

// forget stops what was made for a machine that is not added after all.
func (a *app) forget(ctx context.Context, h *Host, m *machines.Machine) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := h.steps.stopAll(ctx, func(string) {})
	a.indexes.Set(m.Name, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.providers, m.Name)
	delete(a.work, m.Name)
	return err
}

// takeTurn lets one machine be added at a time, and none when the server stops.
func (a *app) takeTurn(ctx context.Context) (leave func(), err error) {
	if a.told() {
		return nil, errStops
	}
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-a.stopped:
		return nil, errStops
	case <-ctx.Done():
		return nil, fmt.Errorf("another one is still being added: %w", ctx.Err())
	}
}

var errStops = errors.New("the server stops")

// begin does what needs an API that listens.
func (h *Host) begin(ctx context.Context, url string) error {
	h.mu.Lock()
	serving := slices.Clone(h.serving)
	h.serving = nil
	h.mu.Unlock()
	for _, do := range serving {
		if err := h.app.during(ctx, func(ctx context.Context) error { return do(ctx, url) }); err != nil {
			return err
		}
	}
	return nil
}

// during calls what a provider brings, with a context that ends when ctx ends or the process is told to stop, but only while it is called: what
// it starts with that context outlives it.
func (a *app) during(ctx context.Context, call func(context.Context) error) error {
	given, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ctx, end := a.untilStopped(ctx)
	defer end()
	defer context.AfterFunc(ctx, cancel)()
	return call(given)
}
