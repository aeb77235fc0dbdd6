package tasks

import (
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// role is that of the node which schedules.
const role = "orchestrator"

// TakenOver ends by kill -9, again and again, that of three nodes which schedules, while tasks run on it, on the others, and elsewhere.
func TakenOver(t *part.T) error {
	w, err := startThree(t)
	if err != nil {
		return err
	}
	if err := w.limit(); err != nil {
		return err
	}
	var died []time.Time
	var others part.Times
	for k := range t.Amount(3, 10) {
		if err := w.queue(fmt.Sprintf("k%d-", k)); err != nil {
			return err
		}
		if !wait.For(t.Ctx, t.Between(100*time.Millisecond, time.Second)) {
			return t.Ctx.Err()
		}
		i, err := w.killScheduler()
		if err != nil {
			return err
		}
		died = append(died, time.Now())
		if _, err := w.scheduler(); err != nil {
			return err
		}
		others = append(others, time.Since(died[k]))
		if err := w.rejoin(i); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := w.completed(); err != nil {
		return err
	}
	t.Say("everything was done %s after the last node was back; kill -9 of who schedules, until another one does: %s", part.Since(began), others)
	log, err := w.log()
	if err != nil {
		return err
	}
	for _, at := range died {
		took := outlived(log, at).Round(time.Millisecond)
		t.Say("the last attempt that ran at the moment of a kill ended %s later", took)
		w.within(took)
	}
	if err := w.back(func() error { _, err := w.killScheduler(); return err }); err != nil {
		return err
	}
	return w.judge()
}

func startThree(t *part.T) (*world, error) {
	file, err := configured(t)
	if err != nil {
		return nil, err
	}
	c, err := rig.NewCluster(t.Bin, t.Dir, slices.Repeat([]string{"127.0.0.1"}, 3), "--durability", "interval", "--config", file, "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	w := &world{T: t, nodes: c.Instars, workers: map[string]*rig.Process{}}
	t.OnEnd(func() {
		for _, i := range w.nodes {
			if i.Process != nil {
				i.Kill()
			}
		}
		for _, p := range w.workers {
			p.Kill()
		}
	})
	for _, i := range w.nodes {
		if err := i.Start(""); err != nil {
			return nil, err
		}
	}
	if err := rig.Shared(t.Ctx, 2*time.Minute, w.nodes); err != nil {
		return nil, err
	}
	return w, w.worker("first")
}

// scheduler waits until a node that is not away schedules.
func (w *world) scheduler() (found *rig.Instar, err error) {
	err = rig.Until(w.Ctx, time.Minute, "a node schedules", func() bool {
		for _, asked := range w.nodes {
			if asked.Away {
				continue
			}
			nodes, _, _ := asked.Nodes()
			for _, n := range nodes {
				at := slices.IndexFunc(w.nodes, func(i *rig.Instar) bool { return i.Name == n.Name && !i.Away })
				if at >= 0 && slices.Contains(n.Roles, role) {
					found = w.nodes[at]
					return true
				}
			}
		}
		return false
	})
	return found, err
}

func (w *world) killScheduler() (*rig.Instar, error) {
	i, err := w.scheduler()
	if err == nil {
		i.Kill()
		i.Away = true
	}
	return i, err
}

// rejoin starts a node again, and waits until it has its share.
func (w *world) rejoin(i *rig.Instar) error {
	i.Away = false
	if err := i.Start(""); err != nil {
		return err
	}
	return rig.Shared(w.Ctx, 2*time.Minute, w.nodes)
}
