package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines/task"
)

// backlog queues many tasks while none may start, and prints what they cost: memory, the time of a start, and until the first of them is started after that.
func (o *options) backlog(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	c, err := o.instarAlone(ctx, o.binary, "interval")
	if c != nil {
		defer c.close()
	}
	if err != nil {
		return err
	}
	empty, err := c.server.Memory()
	if err != nil {
		return err
	}
	if err := c.post("/v1/queues/cluster/pause", map[string]string{}); err != nil {
		return err
	}
	began := time.Now()
	if err := c.enqueue(ctx, 0, o.queued, time.Time{}); err != nil {
		return err
	}
	if err := c.waits(ctx, o.queued); err != nil {
		return err
	}
	took := time.Since(began)
	full, err := c.server.Memory()
	if err != nil {
		return err
	}
	c.nc.Close()
	if err := c.server.Stop(ctx); err != nil {
		return err
	}
	began = time.Now()
	if err := c.start(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if err := c.waits(ctx, o.queued); err != nil {
		return err
	}
	known := time.Since(began)
	if c.taskWorker, err = startWorker("nats://"+c.nats, c.o.workers); err != nil {
		return err
	}
	resumed := time.Now()
	if err := c.post("/v1/queues/cluster/resume", map[string]string{}); err != nil {
		return err
	}
	if err := c.comes(ctx, task.Succeeded, 1); err != nil {
		return err
	}
	first := time.Since(resumed)
	again, err := c.server.Memory()
	if err != nil {
		return err
	}
	const mb = 1 << 20
	fmt.Printf("\n%d queued tasks (interval, load %s): stored at %.0f/s; memory %d MB empty, %d MB with them, %d MB after a start; ready %.1f s after a start, all known after %.1f s, the first done %.2f s after resume\n",
		o.queued, load(), float64(o.queued)/took.Seconds(), empty/mb, full/mb, again/mb, ready.Seconds(), known.Seconds(), first.Seconds())
	return nil
}

// waits waits until so many tasks are queued, or were started before the pause was seen.
func (c *instarTasks) waits(ctx context.Context, n int) error {
	var queued, running int
	err := until(ctx, func() (done bool, err error) {
		if queued, err = c.count(task.Queued); err == nil {
			running, err = c.count(task.Running)
		}
		return queued+running >= n, err
	})
	if err != nil {
		err = fmt.Errorf("%d are queued and %d run of %d tasks: %w", queued, running, n, err)
	}
	return err
}

// comes waits until at least so many tasks are in a state.
func (c *instarTasks) comes(ctx context.Context, state string, n int) error {
	return until(ctx, func() (bool, error) {
		have, err := c.count(state)
		return have >= n, err
	})
}
