package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// Relay brings the rows of one database into the stream. Its fields are set before Run and not changed after.
type Relay struct {
	Config   outbox.Config
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Replicas int                                            // of the stream, when it has to be made; 1
	MaxAge   time.Duration                                  // likewise; 7 days
	Fsync    bool                                           // the NATS server syncs every write: batches are atomic then, one sync for each
	Sync     func(ctx context.Context, stream string) error // returns when what a stream has acknowledged is on disk; nil where an ack says so
	Leases   shard.Leases                                   // nil is [shard.Alone]
	Node     string                                         // shown as the owner of its shards
	Meter    control.Meter                                  // nil measures nothing
	Gate     func() error                                   // why nothing is to be stored now; nil, or a nil error, is that it may be
	Dial     pgconn.DialFunc                                // makes connections to the database; nil makes those that the DSN says
	Log      *slog.Logger                                   // nil says nothing

	once    sync.Once
	control *control.Control
	ended   chan struct{} // Run has ended

	tamper   func(*sink.Publisher) // a test loses answers with this
	restarts atomic.Int64
}

// ErrDrained is what Run returns after [Relay.Drain].
var ErrDrained = errors.New("relay: drained")

// ErrChanged is what Run returns when the mode of the database was changed under it: another relay has to go on.
var ErrChanged = errors.New("relay: the mode of the database was changed")

// PermanentError is a reason to stop that does not go away by trying again.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *PermanentError) Unwrap() error { return e.Err }

func (r *Relay) init() {
	r.once.Do(func() {
		r.ended = make(chan struct{})
		r.Config = withDefaults(r.Config)
		if r.Leases == nil {
			r.Leases = shard.Alone{}
		}
		if r.Meter == nil {
			r.Meter = control.NoMeter{}
		}
		if r.Log == nil {
			r.Log = slog.New(slog.DiscardHandler)
		}
		r.Log = r.Log.With("source", r.Config.Name)
		r.control = control.New(r.Meter, r.Log)
	})
}

func withDefaults(c outbox.Config) outbox.Config {
	c.Schema, c.Stream, c.Prefix = cmp.Or(c.Schema, "public"), cmp.Or(c.Stream, "OUTBOX"), cmp.Or(c.Prefix, "outbox")
	c.Mode = cmp.Or(c.Mode, outbox.Log)
	most := 1000
	if c.Mode == outbox.Claim {
		most = 100
	}
	c.Batch = min(cmp.Or(c.Batch, most), sink.MaxAtomic-8) // with markers, as a rule
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.BaseBackoff, c.MaxBackoff = cmp.Or(c.BaseBackoff, time.Second), cmp.Or(c.MaxBackoff, 300*time.Second)
	c.Retention = cmp.Or(c.Retention, 7*24*time.Hour)
	c.Attempts = cmp.Or(c.Attempts, 10)
	return c
}

// Wake tells the relay that rows were committed. It never blocks, and may be called before Run.
func (r *Relay) Wake() {
	r.init()
	r.control.Wake()
}

// WakeSubject is where core NATS messages wake the relay of a source; what they hold is not looked at.
func WakeSubject(n streams.Names, source string) string {
	return cmp.Or(n.Prefix, streams.DefaultPrefix) + ".outbox.wake." + source
}

// Pause stops reading and publishing; what is under way is finished. Shards stay with this relay.
func (r *Relay) Pause() {
	r.init()
	r.control.Pause(true)
}

// Resume goes on after Pause.
func (r *Relay) Resume() {
	r.init()
	r.control.Pause(false)
}

// Drain publishes what is committed now, then ends Run with ErrDrained. It waits for that, or for ctx. A paused relay
// goes on for it.
func (r *Relay) Drain(ctx context.Context) error {
	r.init()
	r.control.Drain()
	r.control.Wake()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("relay: not drained: %w", ctx.Err())
	}
}

// Status is how the relay itself stands; [outbox.Store.Status] adds what the database counts. Shards are those that this
// relay holds, with the positions of their last rows in the stream.
func (r *Relay) Status() outbox.Status {
	r.init()
	st := r.control.Status(r.Node)
	st.Mode = r.Config.Mode
	return st
}
