package shop

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

const (
	source = "shop"

	// Stream is where events go.
	Stream = "OUTBOX"

	// attempts are how often a row is tried.
	attempts = 2

	// url is what messages call the NATS server; how it is reached is up to who dials.
	url = "nats://127.0.0.1:4222"
)

// Relay is one relay, as it is in a program, on connections of its own.
type Relay struct {
	Options Options
	Name    string
	DSN     string
	Dial    pgconn.DialFunc   // to the database
	NATS    nats.CustomDialer // to the NATS server
	Log     *slog.Logger
}

// Run returns when it has ended.
func (r *Relay) Run(ctx context.Context) error {
	nc, err := streams.Connect(streams.ConnectOptions{Name: r.Name, Log: r.Log, URL: url, Dial: func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(url, append(opts, nats.SetCustomDialer(r.NATS), nats.RetryOnFailedConnect(true))...)
	}})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := streams.JetStream(nc)
	if err != nil {
		return err
	}
	return (&relay.Relay{
		Config: r.config(), NC: nc, JS: js, Replicas: r.Options.Replicas, Fsync: r.Options.Fsync, Node: r.Name, Log: r.Log, Dial: r.Dial,
		Leases: &shard.NATSLeases{JS: js, Source: source, Node: r.Name, Life: r.Options.short(3 * time.Second), Log: r.Log},
	}).Run(ctx)
}

func (r *Relay) config() outbox.Config {
	o := r.Options
	c := outbox.Config{
		Name: source, DSN: r.DSN, Mode: o.Mode, Batch: o.Batch, Poll: o.short(300 * time.Millisecond), Lease: 6 * time.Second,
		Attempts: attempts, BaseBackoff: o.short(200 * time.Millisecond), MaxBackoff: o.short(time.Second),
	}
	if o.Strange {
		c.Types = &outbox.Types{Names: []string{"order.>"}, Unknown: outbox.ParkUnknown}
	}
	return c
}

// Prepare makes what a NATS server has when relays start: the bucket of their leases, and the stream, where it is not as a relay makes it.
func Prepare(ctx context.Context, nc *nats.Conn, o Options) error {
	js, err := streams.JetStream(nc)
	if err != nil {
		return err
	}
	if err := streams.EnsureBucket(ctx, js, streams.Names{}.Bucket(streams.OwnersBucket), "owners", 0, o.Replicas); err != nil || !o.Forgets {
		return err
	}
	c := sink.Stream{Name: Stream, Prefix: "outbox", Replicas: o.Replicas}.Config()
	c.Duplicates = 100 * time.Millisecond
	_, err = js.CreateStream(ctx, c)
	return err
}
