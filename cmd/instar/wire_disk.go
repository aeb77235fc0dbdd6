package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// disk watches whether the stream store takes writes. A single-replica stream whose disk was full gives no answers and
// stays dead after there is room again until its server restarts; so a write that is not answered makes the program
// refuse commands with 503, and the embedded server is restarted when there is room.
type disk struct {
	dir     string
	server  *streams.Server // nil when attached: somebody else's server is not restarted
	at      string          // where the server is, for messages
	member  bool            // of a cluster: a stream that has no leader for a while is none that is dead
	nc      *nats.Conn
	subject string
	every   time.Duration
	log     *slog.Logger

	reason atomic.Pointer[string]
}

// err is why nothing can be written, or nil.
func (d *disk) err() error {
	if r := d.reason.Load(); r != nil {
		return errors.New(*r)
	}
	return nil
}

// Run probes until ctx ends.
func (d *disk) Run(ctx context.Context) error {
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	missed := 0
	var pause time.Duration // before the next restart, so that a store that stays dead does not keep all others from working
	var restarted time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if short, free := d.short(); short {
			d.say(fmt.Sprintf("the disk of the data directory is full: %d KiB are left", free>>10))
			continue
		}
		if d.member {
			d.say("")
			continue
		}
		err := d.dead()
		if err == nil {
			err = d.probe(ctx)
		}
		if err == nil {
			missed, pause = 0, 0
			d.say("")
			continue
		}
		if missed++; missed < 2 {
			continue
		}
		if ctx.Err() == nil {
			d.say(d.lacks(err))
		}
		if d.server != nil && ctx.Err() == nil && time.Since(restarted) >= pause {
			restarted, pause = time.Now(), min(max(2*pause, 5*time.Second), 2*time.Minute)
			d.log.Warn("restarting the embedded NATS server, whose store is dead")
			if err := d.server.Restart(); err != nil {
				d.log.Error("cannot restart the embedded NATS server; trying again", "error", err)
			}
			missed = 0
		}
	}
}

// lacks says why a probe failed.
func (d *disk) lacks(err error) string {
	if d.server == nil && !d.nc.IsConnected() {
		return "there is no connection to NATS at " + d.at + ", so nothing can be stored"
	}
	return "the stream store does not take writes: " + err.Error()
}

// short reports whether less than 2 % of the disk is left, or less than 64 MiB of a large one.
func (d *disk) short() (bool, uint64) {
	if d.server == nil {
		return false, 0
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		return false, 0 // the probe tells
	}
	size := uint64(s.Bsize) //nolint:gosec // a block size is positive
	free, total := s.Bavail*size, s.Blocks*size
	return free < min(total/50, 64<<20), free
}

// dead is why the embedded server's store does not work: each stream dies on its own, and the probe has only one.
func (d *disk) dead() error {
	if d.server == nil {
		return nil
	}
	return d.server.Health()
}

func (d *disk) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := d.nc.RequestWithContext(ctx, d.subject, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	if err != nil {
		return err
	}
	return streams.AckError(m)
}

func (d *disk) say(reason string) {
	had := d.reason.Load()
	if reason == "" {
		if had != nil {
			d.log.Info("the stream store takes writes again")
		}
		d.reason.Store(nil)
		return
	}
	if had == nil || *had != reason {
		d.log.Error("commands are refused", "reason", reason)
	}
	d.reason.Store(&reason)
}
