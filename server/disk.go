package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// disk watches whether the stream store takes writes. A stream whose disk was full gives no answers and
// stays dead after there is room again until its server restarts; so a write that is not answered makes the program
// refuse commands with 503, and the embedded server is restarted when there is room; one that cannot be restarted takes the process with it. Before the disk, or the limit of the
// store, is reached, commands are refused as well: what is under way still has room then.
type disk struct {
	server  *embedded.Server // nil when attached: somebody else's server is not restarted
	at      string           // where the server is, for messages
	member  bool             // of a cluster: a stream that has no leader for a while is none that is dead
	nc      *nats.Conn
	room    func(context.Context) (streams.Room, error)
	share   func(context.Context, int64) error // tells the streams how much room there is; nil where that is set
	subject string
	every   time.Duration
	stuck   func(error) // ends the process: no restart of the embedded server helps
	log     *slog.Logger

	reason atomic.Pointer[string]
	has    atomic.Pointer[streams.Room] // nil: it is not known
	shared int64                        // the most room that the streams were told of
	untold string                       // why they could not be told of more, the last time
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
		if lack := d.lacksRoom(ctx); lack != "" {
			d.say(lack)
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
		if errors.Is(err, embedded.ErrStuck) || errors.Is(err, embedded.ErrSlow) {
			continue // the next look tells
		}
		if missed++; missed < 2 {
			continue
		}
		if ctx.Err() == nil {
			d.say(d.lacks(err))
		}
		if publish.OutOfRoom(err) { // it answers: it is not dead
			continue
		}
		if d.server != nil && ctx.Err() == nil && time.Since(restarted) >= pause {
			restarted, pause = time.Now(), min(max(2*pause, 5*time.Second), 2*time.Minute)
			d.log.Warn("restarting the embedded NATS server, whose store is dead")
			if err := d.server.Restart(); errors.Is(err, embedded.ErrStuck) {
				d.stuck(err)
			} else if err != nil {
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

// lacksRoom says that the disk or the store is full but for a reserve, or nothing.
func (d *disk) lacksRoom(ctx context.Context) string {
	asked, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	room, err := d.room(asked)
	d.has.Store(nil) // an old number would be believed
	switch {
	case errors.Is(err, embedded.ErrStuck):
		d.stuck(err)
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
	return full(room)
}

// full says that only the reserve is left, of what, and what to do.
func full(room streams.Room) string {
	if room.Disk {
		return fmt.Sprintf("the disk of the streams is full: they have %s, and only a reserve is left. Make room on it, or purge what is not needed (nats stream report)", bytesOf(room.Used))
	}
	return fmt.Sprintf("the store of the streams is full: they have %s of %s. Purge what is not needed (nats stream report), lower store.events, or give it more (store.max)", bytesOf(room.Used), bytesOf(room.Limit))
}

// follow lets shares of the store grow with it while the server runs, by no small changes: others fill the disk, and make room on it.
func (d *disk) follow(ctx context.Context, room int64) {
	if d.share == nil || room-d.shared <= d.shared/5 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := d.share(ctx, room); err != nil {
		if d.untold != err.Error() {
			d.log.Warn("the streams cannot be told how much room there is; trying again", "error", err)
		}
		d.untold = err.Error()
		return
	}
	d.shared, d.untold = room, ""
}

// storeWarns is the part of a store from which on somebody should look.
const storeWarns = 0.8

// check is what readiness says of it.
func (d *disk) check() admin.Check {
	c := admin.Check{Name: "disk", OK: true, Detail: "takes writes"}
	room := d.has.Load()
	switch err := d.err(); {
	case err != nil:
		c.OK, c.Detail = false, err.Error()
	case room != nil && room.Limit > 0:
		c.Warn = float64(room.Used) > storeWarns*float64(room.Limit)
		c.Detail = fmt.Sprintf("takes writes; the streams have %s of %s", bytesOf(room.Used), bytesOf(room.Limit))
	}
	return c
}

// bytesOf is a number of bytes for people.
func bytesOf(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

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
	if err != nil && d.member && d.nc.IsConnected() {
		return nil // others may have no leader for a while, and tell
	}
	if err != nil {
		return err
	}
	return publish.AckError(m)
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

var (
	storeDesc = prometheus.NewDesc("instar_store_bytes", "What all streams of the embedded server, or of the account, have.", nil, nil)
	limitDesc = prometheus.NewDesc("instar_store_limit_bytes", "What they may have. Commands are refused there.", nil, nil)
	downDesc  = prometheus.NewDesc("instar_store_unavailable", "1 while commands are refused because nothing can be stored.", nil, nil)
)

// Describe and Collect make it a collector.
func (d *disk) Describe(ch chan<- *prometheus.Desc) { ch <- storeDesc; ch <- limitDesc; ch <- downDesc }

// Collect shows the last look.
func (d *disk) Collect(ch chan<- prometheus.Metric) {
	down := 0.0
	if d.err() != nil {
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

// startDisk watches the store.
func (a *app) startDisk(ctx context.Context) error {
	nc, js, err := a.connect("probe")
	if err != nil {
		return err
	}
	a.disk = &disk{
		server: a.server, at: streams.WithoutSecrets(a.natsURL()), room: func(ctx context.Context) (streams.Room, error) { return a.room(ctx, js) },
		member: a.cfg.Cluster.On(), nc: nc, subject: a.deps.Names.Probe(), every: 2 * time.Second, log: a.log,
		stuck: a.stuck,
	}
	if a.server != nil && a.plan.Store == 0 {
		a.disk.share = func(ctx context.Context, room int64) error {
			plan := a.plan
			plan.Store = room
			return a.tellDiffs(streams.Rebound(ctx, js, plan))
		}
	}
	a.disk.say(a.disk.lacksRoom(ctx)) // before the first command
	if room := a.disk.has.Load(); room != nil && room.Limit >= 0 {
		a.log.Info("the streams", "have", bytesOf(room.Used), "may have", bytesOf(room.Limit))
	}
	a.goes(ctx, "the disk probe", a.disk.Run)
	return nil
}

// stuck ends the process, whose stream store no restart of the embedded server brings back.
func (a *app) stuck(err error) {
	a.dog.cut("the process ends, so that the next one can store again", "error", err)
}

// room is what the store has. The account of a server that is attached may have to hold other streams, too: it has no shares.
func (a *app) room(ctx context.Context, js jetstream.JetStream) (streams.Room, error) {
	if a.server != nil {
		return a.server.Store()
	}
	return streams.AccountRoom(ctx, js, a.cfg.NATS.Replicas)
}
