// Package disk watches whether the store of the streams takes writes, and has room.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// Watch watches whether the stream store takes writes. A stream whose disk was full gives no answers and
// stays dead after there is room again until its server restarts; so a write that is not answered makes the program
// refuse commands with 503, and the embedded server is restarted when there is room; one that cannot be restarted takes the process with it. Before the disk, or the limit of the
// store, is reached, commands are refused as well: what is under way still has room then.
type Watch struct {
	Server  *embedded.Server // nil when attached: somebody else's server is not restarted
	At      string           // where the server is, for messages
	Member  bool             // of a cluster: a stream that has no leader for a while is none that is dead
	NC      *nats.Conn
	Room    func(context.Context) (streams.Room, error)
	Share   func(context.Context, int64) error // tells the streams how much room there is; nil where that is set
	Subject string                             // that is written to
	Every   time.Duration
	Stuck   func(error) // ends the process: no restart of the embedded server helps
	Log     *slog.Logger

	reason atomic.Pointer[string]
	has    atomic.Pointer[streams.Room] // nil: it is not known
	shared int64                        // the most room that the streams were told of
	untold string                       // why they could not be told of more, the last time
}

// Err is why nothing can be written, or nil. It is the gate of all commands: publish.Commands asks it before it stores one.
func (d *Watch) Err() error {
	if r := d.reason.Load(); r != nil {
		return errors.New(*r)
	}
	return nil
}

// Begin looks how much room there is, before the first command.
func (d *Watch) Begin(ctx context.Context) {
	d.setRefusal(d.lacksRoom(ctx))
	if room := d.has.Load(); room != nil && room.Limit >= 0 {
		d.Log.Info("the streams", "have", amount(room.Used), "may have", amount(room.Limit))
	}
}

// Run probes until ctx ends.
func (d *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(d.Every)
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
		if lack := d.lacksRoom(ctx); lack != "" {
			d.setRefusal(lack)
			continue
		}
		err := d.dead()
		if err == nil {
			err = d.probe(ctx)
		}
		if err == nil {
			missed, pause = 0, 0
			d.setRefusal("")
			continue
		}
		if errors.Is(err, embedded.ErrStuck) || errors.Is(err, embedded.ErrSlow) {
			continue // the next look tells
		}
		if missed++; missed < 2 {
			continue
		}
		if ctx.Err() == nil {
			d.setRefusal(d.lacks(err))
		}
		if publish.OutOfRoom(err) { // it answers: it is not dead
			continue
		}
		if d.Server != nil && ctx.Err() == nil && time.Since(restarted) >= pause {
			restarted, pause = time.Now(), min(max(2*pause, 5*time.Second), 2*time.Minute)
			d.Log.Warn("restarting the embedded NATS server: its store has failed")
			if err := d.Server.Restart(); errors.Is(err, embedded.ErrStuck) {
				d.Stuck(err)
			} else if err != nil {
				d.Log.Error("cannot restart the embedded NATS server; retrying", "error", err)
			}
			missed = 0
		}
	}
}

// lacks says why a probe failed.
func (d *Watch) lacks(err error) string {
	if d.Server == nil && !d.NC.IsConnected() {
		return "there is no connection to NATS at " + d.At + ", so nothing can be stored"
	}
	return "the stream store does not take writes: " + err.Error()
}

// lacksRoom says that the disk or the store is full but for a reserve, or nothing.
func (d *Watch) lacksRoom(ctx context.Context) string {
	asked, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	room, err := d.Room(asked)
	d.has.Store(nil) // an old number would be believed
	switch {
	case errors.Is(err, embedded.ErrStuck):
		d.Stuck(err)
		return err.Error()
	case errors.Is(err, embedded.ErrSlow):
		return err.Error() // a restart would wait as long
	case err != nil:
		return "" // the probe tells
	}
	if d.has.Store(&room); !room.Full() {
		d.follow(ctx, room.Limit)
		return ""
	}
	return Full(room)
}

// Full says that only the reserve is left, of what, and what to do.
func Full(room streams.Room) string {
	if room.Disk {
		return fmt.Sprintf("the disk of the streams is full: they have %s, and only a reserve is left. Make room on it, or purge what is not needed (nats stream report)", amount(room.Used))
	}
	return fmt.Sprintf("the store of the streams is full: they have %s of %s. Purge what is not needed (nats stream report), lower store.events, or give it more (store.max)", amount(room.Used), amount(room.Limit))
}

// follow lets shares of the store grow with it while the server runs, by no small changes: others fill the disk, and make room on it.
func (d *Watch) follow(ctx context.Context, room int64) {
	if d.Share == nil || room-d.shared <= d.shared/5 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := d.Share(ctx, room); err != nil {
		if d.untold != err.Error() {
			d.Log.Warn("the limits of the streams cannot be set; retrying", "error", err)
		}
		d.untold = err.Error()
		return
	}
	d.shared, d.untold = room, ""
}

// storeWarns is the part of a store from which on somebody should look.
const storeWarns = 0.8

// Check is what readiness says of it.
func (d *Watch) Check() admin.Check {
	c := admin.Check{Name: "disk", OK: true, Detail: "takes writes"}
	room := d.has.Load()
	switch err := d.Err(); {
	case err != nil:
		c.OK, c.Detail = false, err.Error()
	case room != nil && room.Limit > 0:
		c.Used, c.Limit = room.Used, room.Limit
		c.Warn = float64(room.Used) > storeWarns*float64(room.Limit)
		c.Detail = fmt.Sprintf("takes writes; the streams have %s of %s", amount(room.Used), amount(room.Limit))
	}
	return c
}

// amount is a number of bytes for people.
func amount(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// dead is why the embedded server's store does not work: each stream dies on its own, and the probe has only one.
func (d *Watch) dead() error {
	if d.Server == nil {
		return nil
	}
	return d.Server.Health()
}

func (d *Watch) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := d.NC.RequestWithContext(ctx, d.Subject, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	if err != nil && d.Member && d.NC.IsConnected() {
		return nil // others may have no leader for a while, and tell
	}
	if err != nil {
		return err
	}
	return publish.AckError(m)
}

func (d *Watch) setRefusal(reason string) {
	had := d.reason.Load()
	if reason == "" {
		if had != nil {
			d.Log.Info("the stream store accepts writes again")
		}
		d.reason.Store(nil)
		return
	}
	if had == nil || *had != reason {
		d.Log.Error("commands get 503: the stream store takes no writes", "reason", reason)
	}
	d.reason.Store(&reason)
}

var (
	storeDesc = prometheus.NewDesc("instar_store_bytes", "Bytes of all streams of the embedded server, or of the account.", nil, nil)
	limitDesc = prometheus.NewDesc("instar_store_limit_bytes", "Limit of instar_store_bytes, at which commands are refused.", nil, nil)
	downDesc  = prometheus.NewDesc("instar_store_unavailable", "1 while commands are refused because nothing can be stored.", nil, nil)
)

// Describe and Collect make it a collector.
func (d *Watch) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeDesc
	ch <- limitDesc
	ch <- downDesc
}

// Collect shows the last look.
func (d *Watch) Collect(ch chan<- prometheus.Metric) {
	down := 0.0
	if d.Err() != nil {
		down = 1
	}
	ch <- prometheus.MustNewConstMetric(downDesc, prometheus.GaugeValue, down)
	room := d.has.Load()
	if room == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(storeDesc, prometheus.GaugeValue, float64(room.Used))
	if room.Limit >= 0 {
		ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(room.Limit))
	}
}
