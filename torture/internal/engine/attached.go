package engine

import (
	"fmt"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// pair is two instars on one NATS server that is a process of its own, and clients of both.
type pair struct {
	*part.T
	nats    *rig.NATS
	instars []*rig.Instar
	journal *load.Journal
	crowd   *load.Crowd
}

// pair starts everything; the two share the partitions.
func newPair(t *part.T, profile string) (*pair, error) {
	n, err := rig.NewNATS(t.Dir+"-"+profile+"-nats", profile)
	if err != nil {
		return nil, err
	}
	t.OnEnd(func() {
		if n.Process != nil {
			n.Kill()
		}
	})
	if err := n.Start(t.Ctx); err != nil {
		return nil, err
	}
	p := &pair{T: t, nats: n, journal: &load.Journal{}}
	var bases []string
	for _, name := range []string{"one", "two"} {
		i, err := t.Instar(profile+"-"+name, n.URL(), append([]string{"--durability", profile}, Restless...)...)
		if err != nil {
			return nil, err
		}
		if err := i.Start(""); err != nil {
			return nil, err
		}
		if err := i.Alive(t.Ctx, 30*time.Second); err != nil {
			return nil, err
		}
		p.instars, bases = append(p.instars, i), append(bases, "http://"+i.HTTP)
	}
	if err := rig.Shared(t.Ctx, 30*time.Second, p.instars); err != nil {
		return nil, err
	}
	p.crowd = &load.Crowd{Name: "c", Clients: 8, Entities: 100, Bases: bases, NATS: n.URL(), Seed: t.Seed, Think: 20 * time.Millisecond, Patience: 3, Journal: p.journal}
	return p, p.crowd.Start(t.Ctx)
}

// one is one of the two that runs.
func (p *pair) one() *rig.Instar { return p.instars[p.Rand.IntN(2)] }

// taken waits until an instar takes the commands of all partitions, and gives the time that it took.
func (p *pair) taken(by *rig.Instar, most time.Duration) (time.Duration, error) {
	began := time.Now()
	err := rig.Until(p.Ctx, most, by.HTTP+" takes all partitions", func() bool { return by.Takes() == 32 })
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
	r, err := p.Reader(p.nats.URL())
	if err != nil {
		return err
	}
	return p.SettleAndJudge(r, p.journal, 75*time.Second, func(h *check.History) { h.Late = 40 * time.Second })
}

// answered waits for the next command that is acknowledged, and gives the time that it took since something was done.
func (p *pair) answered(since time.Time, next <-chan time.Time, most time.Duration) (time.Duration, error) {
	select {
	case at := <-next:
		return at.Sub(since), nil
	case <-time.After(most):
		return 0, fmt.Errorf("no command was acknowledged within %s", most)
	case <-p.Ctx.Done():
		return 0, p.Ctx.Err()
	}
}

// Attached restarts and kills the NATS server, and kills one of two instars.
func Attached(t *part.T) error {
	profiles := []string{"fsync"}
	if t.Long {
		profiles = append(profiles, "interval")
	}
	for _, profile := range profiles {
		if err := attachedUnder(t, profile); err != nil {
			return err
		}
	}
	return nil
}

func attachedUnder(t *part.T, profile string) error {
	p, err := newPair(t, profile)
	if err != nil {
		return err
	}
	var outages, takeovers part.Times
	for n := range t.Amount(4, 10) {
		took, err := p.breakNATS(n%3 == 2)
		if err != nil {
			return err
		}
		outages = append(outages, took)
	}
	for range t.Amount(2, 5) {
		took, err := p.killOne()
		if err != nil {
			return err
		}
		takeovers = append(takeovers, took)
	}
	if err := p.finish(); err != nil {
		return err
	}
	t.Say("durability %s: %d kills and restarts of NATS, until the next acknowledged command: %s", profile, len(outages), outages)
	t.Say("%d kills of an instar, until the other took over: %s", len(takeovers), takeovers)
	for _, i := range p.instars {
		i.Kill()
	}
	p.nats.Kill()
	return nil
}

// breakNATS ends the NATS server, by kill -9 or politely, and starts it again a moment later.
func (p *pair) breakNATS(politely bool) (time.Duration, error) {
	if !wait.For(p.Ctx, p.Between(500*time.Millisecond, 1500*time.Millisecond)) {
		return 0, p.Ctx.Err()
	}
	if politely {
		p.nats.Stop()
	} else {
		p.nats.Kill()
	}
	wait.For(p.Ctx, p.Between(50*time.Millisecond, 1500*time.Millisecond))
	if err := p.nats.Start(p.Ctx); err != nil {
		return 0, err
	}
	return p.answered(time.Now(), p.journal.NextAnswer(), 30*time.Second)
}

// killOne kills one of the two, waits until the other one takes all commands, and starts the dead one again.
func (p *pair) killOne() (time.Duration, error) {
	if !wait.For(p.Ctx, p.Between(500*time.Millisecond, 1500*time.Millisecond)) {
		return 0, p.Ctx.Err()
	}
	if err := rig.Shared(p.Ctx, 30*time.Second, p.instars); err != nil {
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
	return took, i.Alive(p.Ctx, 30*time.Second)
}

// Paused stops an instar for longer than its key lives, and lets it go on when the other one has taken over: it does not
// know yet that it is no owner any more.
func Paused(t *part.T) error {
	p, err := newPair(t, "interval")
	if err != nil {
		return err
	}
	var takeovers part.Times
	for range t.Amount(1, 4) {
		if !wait.For(t.Ctx, t.Between(time.Second, 2*time.Second)) {
			return t.Ctx.Err()
		}
		i := p.one()
		i.Signal(syscall.SIGSTOP)
		took, err := p.taken(p.other(i), 60*time.Second)
		if err != nil {
			return err
		}
		takeovers = append(takeovers, took)
		wait.For(t.Ctx, t.Between(500*time.Millisecond, 2*time.Second))
		i.Signal(syscall.SIGCONT)
		if err := rig.Shared(t.Ctx, 20*time.Second, p.instars); err != nil {
			return err
		}
	}
	if err := p.finish(); err != nil {
		return err
	}
	t.Say("%d times an instar stood still beyond the life of its key, until the other took over: %s", len(takeovers), takeovers)
	return nil
}
