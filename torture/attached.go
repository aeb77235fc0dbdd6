package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// pair is two instars on one NATS server that is a process of its own, and clients of both.
type pair struct {
	*T
	nats    *rig.NATS
	instars []*rig.Instar
	journal *load.Journal
	crowd   *load.Crowd
}

// pair starts everything; the two share the partitions.
func newPair(t *T, profile string) (*pair, error) {
	n, err := rig.NewNATS(t.dir+"-"+profile+"-nats", profile)
	if err != nil {
		return nil, err
	}
	t.onEnd(func() {
		if n.Process != nil {
			n.Kill()
		}
	})
	if err := n.Start(t.ctx); err != nil {
		return nil, err
	}
	p := &pair{T: t, nats: n, journal: &load.Journal{}}
	var bases []string
	for _, name := range []string{"one", "two"} {
		i, err := t.instar(profile+"-"+name, n.URL(), append([]string{"--durability", profile}, restless...)...)
		if err != nil {
			return nil, err
		}
		if err := i.Start(""); err != nil {
			return nil, err
		}
		if err := i.Alive(t.ctx, 30*time.Second); err != nil {
			return nil, err
		}
		p.instars, bases = append(p.instars, i), append(bases, "http://"+i.HTTP)
	}
	if err := rig.Shared(t.ctx, 30*time.Second, p.instars); err != nil {
		return nil, err
	}
	p.crowd = &load.Crowd{Name: "c", Clients: 8, Entities: 100, Bases: bases, NATS: n.URL(), Seed: t.seed, Think: 20 * time.Millisecond, Patience: 3, Journal: p.journal}
	return p, p.crowd.Start(t.ctx)
}

// one is one of the two that runs.
func (p *pair) one() *rig.Instar { return p.instars[p.rand.IntN(2)] }

// taken waits until an instar takes the commands of all partitions, and gives the time that it took.
func (p *pair) taken(by *rig.Instar, most time.Duration) (time.Duration, error) {
	began := time.Now()
	err := rig.Until(p.ctx, most, by.HTTP+" takes all partitions", func() bool { return by.Takes() == 32 })
	return time.Since(began), err
}

func (p *pair) other(i *rig.Instar) *rig.Instar {
	if p.instars[0] == i {
		return p.instars[1]
	}
	return p.instars[0]
}

// finish waits for the clients and judges. What a dead or stopped owner left in the hands of its consumers comes again
// when its time is over, so rest takes longer here.
func (p *pair) finish() error {
	p.crowd.Finish(40 * time.Second)
	r, err := p.reader(p.nats.URL())
	if err != nil {
		return err
	}
	return p.settleAndJudge(r, p.journal, 75*time.Second, func(h *check.History) { h.Late = 40 * time.Second })
}

// answered waits for the next command that is acknowledged, and gives the time that it took since something was done.
func (p *pair) answered(since time.Time, next <-chan time.Time, most time.Duration) (time.Duration, error) {
	select {
	case at := <-next:
		return at.Sub(since), nil
	case <-time.After(most):
		return 0, fmt.Errorf("no command was acknowledged within %s", most)
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

// attached restarts and kills the NATS server, and kills one of two instars.
func attached(t *T) error {
	profiles := []string{"fsync"}
	if t.long {
		profiles = append(profiles, "interval")
	}
	for _, profile := range profiles {
		if err := attachedUnder(t, profile); err != nil {
			return err
		}
	}
	return nil
}

func attachedUnder(t *T, profile string) error {
	p, err := newPair(t, profile)
	if err != nil {
		return err
	}
	var outages, takeovers times
	for n := range t.amount(4, 10) {
		took, err := p.breakNATS(n%3 == 2)
		if err != nil {
			return err
		}
		outages = append(outages, took)
	}
	for range t.amount(2, 5) {
		took, err := p.killOne()
		if err != nil {
			return err
		}
		takeovers = append(takeovers, took)
	}
	if err := p.finish(); err != nil {
		return err
	}
	t.say("durability %s: %d kills and restarts of NATS, until the next acknowledged command: %s", profile, len(outages), outages)
	t.say("%d kills of an instar, until the other took over: %s", len(takeovers), takeovers)
	for _, i := range p.instars {
		i.Kill()
	}
	p.nats.Kill()
	return nil
}

// breakNATS ends the NATS server, by kill -9 or politely, and starts it again a moment later.
func (p *pair) breakNATS(politely bool) (time.Duration, error) {
	if !rig.Sleep(p.ctx, p.between(500*time.Millisecond, 1500*time.Millisecond)) {
		return 0, p.ctx.Err()
	}
	if politely {
		p.nats.Stop()
	} else {
		p.nats.Kill()
	}
	rig.Sleep(p.ctx, p.between(50*time.Millisecond, 1500*time.Millisecond))
	if err := p.nats.Start(p.ctx); err != nil {
		return 0, err
	}
	return p.answered(time.Now(), p.journal.NextAnswer(), 30*time.Second)
}

// killOne kills one of the two, waits until the other one takes all commands, and starts the dead one again.
func (p *pair) killOne() (time.Duration, error) {
	if !rig.Sleep(p.ctx, p.between(500*time.Millisecond, 1500*time.Millisecond)) {
		return 0, p.ctx.Err()
	}
	if err := rig.Shared(p.ctx, 30*time.Second, p.instars); err != nil {
		return 0, err
	}
	i := p.one()
	i.Kill()
	took, err := p.taken(p.other(i), 40*time.Second)
	if err != nil {
		return 0, err
	}
	if err := i.Start(""); err != nil {
		return 0, err
	}
	return took, i.Alive(p.ctx, 30*time.Second)
}

// paused stops an instar for longer than its key lives, and lets it go on when the other one has taken over: it does not
// know yet that it is no owner any more.
func paused(t *T) error {
	p, err := newPair(t, "interval")
	if err != nil {
		return err
	}
	var takeovers times
	for range t.amount(1, 4) {
		if !rig.Sleep(t.ctx, t.between(time.Second, 2*time.Second)) {
			return t.ctx.Err()
		}
		i := p.one()
		i.Signal(syscall.SIGSTOP)
		took, err := p.taken(p.other(i), 60*time.Second)
		if err != nil {
			return err
		}
		takeovers = append(takeovers, took)
		rig.Sleep(t.ctx, t.between(500*time.Millisecond, 2*time.Second))
		i.Signal(syscall.SIGCONT)
		if err := rig.Shared(t.ctx, 20*time.Second, p.instars); err != nil {
			return err
		}
	}
	if err := p.finish(); err != nil {
		return err
	}
	t.say("%d times an instar stood still beyond the life of its key, until the other took over: %s", len(takeovers), takeovers)
	return nil
}
