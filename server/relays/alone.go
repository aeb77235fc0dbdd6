package relays

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/publish"
)

// Alone relays one outbox into NATS without a server. Several of them, with nodes of their own, may relay one database: each shard has
// one active relay at a time.
type Alone struct {
	Source   config.OutboxSource
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Node     string        // name of this relay
	Replicas int           // of a stream that is created
	MaxAge   time.Duration // of its messages; 0 is the default of the relay
	Fsync    bool          // the NATS server syncs every write
	HTTP     string        // address for metrics and health; empty has none
	Log      *slog.Logger
}

// Run relays until ctx ends, and then returns nil, or until it cannot go on: with a [*relay.PermanentError] trying again does not help.
// When the database changes its mode, it goes on with that.
func (a *Alone) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &relayWatch{source: a.Source.Name, count: &sentRows{}}
	w.engine = &relayEngine{make: func(ctx context.Context) (*relay.Relay, error) { return a.make(ctx, w.count) }}
	if w.engine.r, err = w.engine.make(ctx); err != nil {
		return err
	}
	relayed := w.engine.r.Config
	if w.engine.store, err = outbox.Open(ctx, relayed.DSN, relayed.Schema); err != nil {
		return err
	}
	defer w.engine.Close()
	if a.HTTP != "" {
		if err := w.serve(ctx, a.HTTP); err != nil {
			return err
		}
	}
	for {
		err := w.engine.Run(ctx)
		switch {
		case errors.Is(err, relay.ErrChanged):
			a.Log.Info("continuing with the new settings of the database", "source", w.source)
			continue
		case errors.Is(err, provider.ErrDrained):
			return nil
		}
		return err
	}
}

// make fills in what the database says now of mode and shards.
func (a *Alone) make(ctx context.Context, count *sentRows) (_ *relay.Relay, err error) {
	r := &relay.Relay{NC: a.NC, JS: a.JS, Names: a.Names, Replicas: a.Replicas, MaxAge: a.MaxAge, Fsync: a.Fsync, Node: a.Node, Meter: count, Log: a.Log}
	r.Sync = (&publish.SyncClient{NC: r.NC, Names: r.Names}).Sync
	if r.Config, err = a.Source.Relayed(); err != nil {
		return nil, err
	}
	if err := settingsOf(ctx, &r.Config, a.Source); err != nil {
		return nil, err
	}
	if r.Leases, err = leasesFor(ctx, r.JS, r, r.Log); err != nil {
		return nil, err
	}
	r.Log.Info("relaying", "source", a.Source.Name, "mode", r.Config.Mode, "database", config.RedactDSN(r.Config.DSN), "nats", r.NC.ConnectedUrlRedacted())
	return r, nil
}

// leasesFor shares the shards with other relays through the bucket of owners, which is made where there is no server.
// Without it two relays would take the shards from each other again and again: harmless, but slow.
func leasesFor(ctx context.Context, js jetstream.JetStream, r *relay.Relay, log *slog.Logger) (shard.Leases, error) {
	bucket := streams.BucketStream(r.Names.Bucket(streams.OwnersBucket))
	for _, stream := range (streams.Plan{Names: r.Names, Replicas: r.Replicas}).Configs() {
		if stream.Name != bucket {
			continue
		}
		_, err := js.Stream(ctx, bucket)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = js.CreateStream(ctx, stream)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot open the bucket of leases: %w", err)
		}
	}
	return &shard.NATSLeases{JS: js, Names: r.Names, Source: r.Config.Name, Node: r.Node, Life: r.Config.Lease / 3, Log: log}, nil
}
