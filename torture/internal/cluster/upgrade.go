package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/engine"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// Upgraded replaces the nodes of a cluster of the last release by those of this program, one after another, goes back, and forward again, under
// load: whatever one version has stored, begun or promised, the other goes on with. Both take the flags that are given.
func Upgraded(t *part.T) error {
	began := time.Now()
	old, err := rig.BuildRelease(t.Ctx, t.Dir+"-release")
	if errors.Is(err, rig.ErrNoRelease) && t.Ctx.Err() == nil {
		return part.Skipped(err.Error())
	}
	if err != nil {
		return err
	}
	t.Say("the last release (%s) was built in %s", rig.LastRelease[:7], part.Since(began))
	x, err := newTrio(t, []string{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, func(c *rig.Cluster) {
		for _, i := range c.Instars {
			i.Bin = old
		}
	})
	if err != nil {
		return err
	}
	deadlines := engine.Clockwork(t, x.Instars[0], x.journal, 4*time.Second)
	watches, stop := x.watched()
	defer stop()
	found, err := x.registered()
	if err != nil {
		return err
	}
	defer found.end()
	if err := x.load(x.Instars...); err != nil {
		return err
	}
	for _, to := range []struct{ what, bin string }{{"upgraded", t.Bin}, {"taken back", old}, {"upgraded again", t.Bin}} {
		if err := x.replace(to.what, to.bin, found); err != nil {
			return err
		}
	}
	if err := x.settled(deadlines, watches); err != nil {
		return err
	}
	return found.judge()
}

// replace gives each node another program, one after another and in any order; some are killed. Before the last one both work side by side for a
// while.
func (x *trio) replace(what, bin string, found *registered) error {
	began, ends := time.Now(), ""
	for n, which := range x.Rand.Perm(len(x.Instars)) {
		if n == len(x.Instars)-1 {
			if err := found.change(what); err != nil {
				return err
			}
			if !wait.For(x.Ctx, x.Between(2*time.Second, 4*time.Second)) {
				return x.Ctx.Err()
			}
		}
		i, how := x.Instars[which], syscall.SIGTERM
		if x.Rand.IntN(3) == 0 {
			how = syscall.SIGKILL
		}
		ends += fmt.Sprintf(" %s (%s)", i.Name, how)
		i.Signal(how)
		if err := i.Wait(x.Ctx, 25*time.Second); err != nil {
			return err
		}
		i.Bin = bin
		if err := i.Start(""); err != nil {
			return err
		}
		if err := i.Ready(x.Ctx, 60*time.Second); err != nil {
			return fmt.Errorf("%s, %s: %w", what, i.Name, err)
		}
		if err := x.shared(60 * time.Second); err != nil {
			return fmt.Errorf("%s, %s: %w", what, i.Name, err)
		}
		x.parked(what)
	}
	x.Say("%s in %s:%s", what, part.Since(began), ends)
	return nil
}

// parked asks every node, whatever its version, whether it can read all values.
func (x *trio) parked(what string) {
	for _, i := range x.Instars {
		for _, machine := range []string{"service", "instance", "preservation", "relay"} {
			n, err := i.Parked(x.Ctx, machine)
			if err != nil || n > 0 {
				x.Violations++
				x.Say("VIOLATION parked: %s, at %s: %d values of the machine %s cannot be read (%v)", what, i.Name, n, machine, err)
			}
		}
	}
}

// watched follows all services until it is stopped, from each of the nodes to begin with.
func (x *trio) watched() (list []*load.Watch, stop func()) {
	var bases []string
	for _, i := range x.Instars {
		bases = append(bases, "http://"+i.HTTP)
	}
	ctx, cancel := context.WithCancel(x.Ctx)
	var running sync.WaitGroup
	for n := range bases {
		w := &load.Watch{Bases: append(slices.Clone(bases[n:]), bases[:n]...)}
		list = append(list, w)
		running.Go(func() { w.Run(ctx) })
	}
	return list, func() { cancel(); running.Wait() }
}

// settled waits for the clients, and judges all that was done and told.
func (x *trio) settled(deadlines map[string]time.Duration, watches []*load.Watch) error {
	x.crowd.Finish(40 * time.Second)
	r, err := x.Reader(x.URLs())
	if err != nil {
		return err
	}
	return x.SettleAndJudge(r, x.journal, 90*time.Second, func(h *check.History) {
		h.Late, h.Deadlines = 40*time.Second, deadlines
		for _, c := range h.Commands {
			if c.Code == "entity-parked" {
				x.Violations++
				x.Say("VIOLATION parked: %s of %s was refused with %s", c.Name, c.Key, c.Code)
			}
		}
		for n, w := range watches {
			x.watchedAll(n, w, h)
		}
	})
}

// watchedAll waits until a watch has told all that there is.
func (x *trio) watchedAll(n int, w *load.Watch, h *check.History) {
	var lacks []string
	if err := rig.Until(x.Ctx, 10*time.Second, "a watch has told everything", func() bool {
		lacks = w.Lacks(h.Values)
		return len(lacks) == 0
	}); err != nil {
		x.Violations++
		x.Say("VIOLATION watch: %d of %d: %s", len(lacks), len(h.Values), lacks[:min(len(lacks), 3)])
	}
	streams, resets := w.Figures()
	x.Say("watch %d of everything went on over %d connections, and began anew %d times", n+1, streams, resets)
}
