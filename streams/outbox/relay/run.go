package relay

// The attempts of a relay. Run, called by server/relays, repeats attempt with backoff until ctx ends or an error is permanent (lasting). An attempt ensures the stream, opens the
// database, connects the publisher (sink), and starts the loop of the mode beside the maintenance of the tables (relay, maintain.go); package log or claim then brings the rows
// into the stream. What was settled or not when an attempt failed is found out when the next one opens the shards.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/claim"
	"github.com/bcc94042/instar/streams/outbox/relay/log"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// errSettings ends an attempt: the next one begins with the new ones.
var errSettings = errors.New("relay: the settings of the database were changed")

// Run relays until ctx ends or Drain is done. Faults of Postgres and NATS are waited out: each time the shards are
// opened again, which settles what was stored and what was not. It returns a *PermanentError when trying again makes no
// sense: a position that belongs to another database, or a stream that cannot carry an outbox; ErrDrained and ErrChanged
// are other ends. It runs once.
func (r *Relay) Run(ctx context.Context) error {
	r.init()
	defer close(r.ended)
	sub, err := r.NC.Subscribe(WakeSubject(r.Names, r.Config.Name), func(*nats.Msg) { r.Wake() })
	if err != nil {
		return fmt.Errorf("relay: cannot listen for wake-ups: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	shards := &shard.Set{Leases: r.Leases, Rest: r.Config.Lease / 3, Log: r.Log}
	defer shards.Release()
	pause, good := 50*time.Millisecond, time.Now()
	for {
		began := time.Now()
		err := lasting(r.attempt(ctx, shards))
		var permanent *PermanentError
		switch {
		case errors.As(err, &permanent), errors.Is(err, ErrDrained), errors.Is(err, ErrChanged):
			r.control.Problem(err)
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errSettings):
			r.Log.Info("the settings of the database were changed: the relay goes on with the new ones")
			continue
		}
		r.control.Problem(err)
		r.restarts.Add(1)
		r.Meter.Restarted(reason(err))
		r.Log.Warn("restarting the relay", "error", err)
		if time.Since(began) > 10*time.Second {
			pause, good = 50*time.Millisecond, time.Now()
		}
		if time.Since(good) > r.Config.Lease { // others may reach what this relay does not
			shards.Release()
			good = time.Now()
		}
		if !wait.For(ctx, pause) {
			return nil
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// lasting wraps errors as a PermanentError where trying again does not help.
func lasting(err error) error {
	for _, kind := range []error{outbox.ErrPooler, outbox.ErrSchema, session.ErrForeign, session.ErrStreamRegressed, log.ErrRegressed, errNamed} {
		if errors.Is(err, kind) {
			return &PermanentError{err}
		}
	}
	var unfit *sink.UnfitError
	if errors.As(err, &unfit) {
		return &PermanentError{err}
	}
	return err
}

// reason is a word for a metric.
func reason(err error) string {
	switch {
	case errors.Is(err, sink.ErrFenced):
		return "fenced"
	case errors.Is(err, sink.ErrUnknown):
		return "doubt"
	}
	return "fault"
}

// attempt connects, opens what it holds and serves until something fails.
func (r *Relay) attempt(ctx context.Context, shards *shard.Set) error {
	stream := sink.Stream{Name: r.Config.Stream, Prefix: r.Config.Prefix, Replicas: r.Replicas, MaxAge: r.MaxAge}
	can, err := stream.Ensure(ctx, r.JS)
	if err != nil {
		return err
	}
	if can.Replicas < r.Replicas {
		r.Log.Warn("the stream has fewer replicas than configured: losing a server loses events or stops the relay", "stream", stream.Name, "replicas", can.Replicas, "try", fmt.Sprintf("nats stream edit %s --replicas %d", stream.Name, r.Replicas))
	}
	store, err := outbox.OpenThrough(ctx, r.Config.DSN, r.Config.Schema, r.Dial)
	if err != nil {
		return &PermanentError{fmt.Errorf("relay: %s: %w", r.Config.Name, err)}
	}
	defer store.Pool.Close()
	store.Lease, store.Attempts, store.BaseBackoff, store.MaxBackoff = r.Config.Lease, r.Config.Attempts, r.Config.BaseBackoff, r.Config.MaxBackoff
	cluster, how, err := r.ask(ctx, store)
	if err != nil {
		return err
	}
	pub := &sink.Publisher{NC: r.NC, Can: can, Fsync: r.Fsync, Prefix: stream.Prefix, Source: r.Config.Name, Structured: r.Config.Structured, Types: r.Config.Types, Gate: r.Gate}
	if r.Sync != nil {
		pub.Sync = func(ctx context.Context) error { return r.Sync(ctx, stream.Name) }
	}
	if r.tamper != nil {
		r.tamper(pub)
	}
	if err := pub.Start(); err != nil {
		return err
	}
	defer pub.Close()
	shards.Opener = &session.Opener{JS: r.JS, Pub: pub, Stream: stream, Source: r.Config.Name, Renamed: how.renamed, Mode: string(r.Config.Mode), Node: r.Node, Cluster: cluster, Pool: store.Pool}
	defer func() {
		shards.Close()
		r.control.Stands(nil)
	}()
	if err := shards.Opener.Alone(ctx); err != nil {
		return err
	}
	if err := r.nameSource(ctx, store.Pool); err != nil {
		return err
	}
	how.source = r.Config.Name
	return r.serve(ctx, store, shards, how, can.MaxAge)
}

// serve relays in the mode of the database, until something fails or its settings change.
func (r *Relay) serve(ctx context.Context, store *outbox.Store, shards *shard.Set, how settings, streamAge time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.maintain(ctx, store, streamAge, func() {
			switch now, err := readSettings(ctx, store.Pool); {
			case err != nil: // whoever uses the database reports it
			case now.mode != how.mode:
				cancel(ErrChanged)
			case now != how:
				cancel(errSettings)
			}
		})
	}()
	defer func() { cancel(nil); <-done }()
	err := r.relay(ctx, store, shards, how)
	if cause := context.Cause(ctx); errors.Is(cause, ErrChanged) || errors.Is(cause, errSettings) {
		return cause
	}
	return err
}

// relay runs the loop of the mode until it ends.
func (r *Relay) relay(ctx context.Context, store *outbox.Store, shards *shard.Set, how settings) error {
	if r.Config.Mode == outbox.Log {
		shards.Count, shards.Live = how.read, how.shards
		loop := &log.Loop{Control: r.control, Config: r.Config, Pool: store.Pool, Shards: shards}
		if err := loop.Run(ctx); err != nil {
			return err
		}
		return ErrDrained
	}
	shards.Count, shards.Live = 1, 1 // one reader: claims of an aggregate follow each other
	lanes := &claim.Lanes{Control: r.control, Config: r.Config, Node: r.Node, Store: store, Shards: shards, Parts: how.read}
	if err := lanes.Run(ctx); err != nil {
		return err
	}
	now, err := readSettings(ctx, store.Pool)
	switch {
	case err != nil:
		return err
	case now.read > how.read: // rows of former shards, which no lane claims, were made NEW again meanwhile
		return errSettings
	}
	return ErrDrained
}
