package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
)

// Relay brings the rows of one database into the stream. Its fields are set before Run and not changed after.
type Relay struct {
	Config   outbox.Config
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Replicas int           // of the stream, when it has to be made; 1
	MaxAge   time.Duration // likewise; 7 days
	Fsync    bool          // the NATS server syncs every write: batches are atomic then, one sync for each
	Leases   Leases        // nil is Alone
	Node     string        // shown as the owner of its shards
	Meter    Meter         // nil measures nothing
	Gate     func() error  // why nothing is to be stored now; nil, or a nil error, is that it may be
	Log      *slog.Logger  // nil says nothing

	once  sync.Once
	wake  chan struct{}
	ended chan struct{} // Run has ended

	mu       sync.Mutex
	paused   bool
	draining bool
	changed  chan struct{} // closed when paused or draining change
	state    status

	hook     func(at string)  // a test stops the relay here
	tamper   func(*publisher) // and loses answers with this
	restarts atomic.Int64
}

// ErrDrained is what Run returns after [Relay.Drain].
var ErrDrained = errors.New("relay: drained")

// ErrChanged is what Run returns when the mode of the database was changed under it: another relay has to go on.
var ErrChanged = errors.New("relay: the mode of the database was changed")

// errSettings ends an attempt: the next one begins with the new ones.
var errSettings = errors.New("relay: the settings of the database were changed")

// PermanentError is a reason to stop that does not go away by trying again.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *PermanentError) Unwrap() error { return e.Err }

func permanent(err error) error { return &PermanentError{err} }

func (r *Relay) init() {
	r.once.Do(func() {
		r.wake, r.changed, r.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		r.Config = withDefaults(r.Config)
		if r.Leases == nil {
			r.Leases = Alone{}
		}
		if r.Meter == nil {
			r.Meter = noMeter{}
		}
		if r.Log == nil {
			r.Log = slog.New(slog.DiscardHandler)
		}
		r.Log = r.Log.With("source", r.Config.Name)
		r.state.rate.start = time.Now()
	})
}

func withDefaults(c outbox.Config) outbox.Config {
	set := func(s *string, to string) {
		if *s == "" {
			*s = to
		}
	}
	set(&c.Schema, "public")
	set(&c.Stream, "OUTBOX")
	set(&c.Prefix, "outbox")
	if c.Mode == "" {
		c.Mode = outbox.Log
	}
	if c.Batch == 0 {
		c.Batch = 1000
		if c.Mode == outbox.Claim {
			c.Batch = 100
		}
	}
	c.Batch = min(c.Batch, maxAtomic-8) // with markers, as a rule
	duration := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	duration(&c.Poll, time.Second)
	duration(&c.Lease, 30*time.Second)
	duration(&c.BaseBackoff, time.Second)
	duration(&c.MaxBackoff, 300*time.Second)
	duration(&c.Retention, 7*24*time.Hour)
	if c.Attempts == 0 {
		c.Attempts = 10
	}
	return c
}

// Wake tells the relay that rows were committed. It never blocks, and may be called before Run.
func (r *Relay) Wake() {
	r.init()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// WakeSubject is where core NATS messages wake the relay of a source; what they hold is not looked at.
func WakeSubject(n streams.Names, source string) string {
	prefix := n.Prefix
	if prefix == "" {
		prefix = streams.DefaultPrefix
	}
	return prefix + ".outbox.wake." + source
}

// Pause stops reading and publishing; what is under way is finished. Shards stay with this relay.
func (r *Relay) Pause() { r.switchTo(true) }

// Resume goes on after Pause.
func (r *Relay) Resume() { r.switchTo(false) }

func (r *Relay) switchTo(paused bool) {
	r.init()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != paused {
		r.paused = paused
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// Drain publishes what is committed now, then ends Run with ErrDrained. It waits for that, or for ctx. A paused relay
// goes on for it.
func (r *Relay) Drain(ctx context.Context) error {
	r.init()
	r.mu.Lock()
	if !r.draining {
		r.draining, r.paused = true, false
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	r.Wake()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("relay: not drained: %w", ctx.Err())
	}
}

// switches says what is asked of the relay now, and how to hear of the next change.
func (r *Relay) switches() (paused, draining bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused, r.draining, r.changed
}

// engine finds what is to be published in one of the modes.
type engine interface {
	// serve publishes until ctx ends, something fails, or everything is drained (ErrDrained). It ends with markers that
	// say so when it can.
	serve(ctx context.Context) error
}

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
	s := &shards{r: r, held: map[int]*shard{}, rest: map[int]time.Time{}}
	defer s.releaseAll()
	pause, good := 50*time.Millisecond, time.Now()
	for {
		began := time.Now()
		err := r.attempt(ctx, s)
		var fatal *PermanentError
		switch {
		case errors.As(err, &fatal), errors.Is(err, ErrDrained), errors.Is(err, ErrChanged):
			r.problem(err)
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errSettings):
			r.Log.Info("the settings of the database were changed: the relay goes on with the new ones")
			continue
		}
		r.problem(err)
		r.restarts.Add(1)
		r.Meter.Restarted(reason(err))
		r.Log.Warn("the relay starts again", "error", err)
		if time.Since(began) > 10*time.Second {
			pause, good = 50*time.Millisecond, time.Now()
		}
		if time.Since(good) > r.Config.Lease { // others may reach what this relay does not
			s.releaseAll()
			good = time.Now()
		}
		if !wait.For(ctx, pause) {
			return nil
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// reason is a word for a metric.
func reason(err error) string {
	switch {
	case errors.Is(err, errFenced):
		return "fenced"
	case errors.Is(err, errDoubt):
		return "doubt"
	}
	return "fault"
}

// attempt connects, opens what it holds and serves until something fails.
func (r *Relay) attempt(ctx context.Context, s *shards) error {
	stream := Stream{Name: r.Config.Stream, Prefix: r.Config.Prefix, Replicas: r.Replicas, MaxAge: r.MaxAge}.withDefaults()
	can, err := stream.ensure(ctx, r.JS)
	if err != nil {
		var unfit *unfitError
		if errors.As(err, &unfit) {
			return permanent(err)
		}
		return err
	}
	if can.replicas < r.Replicas {
		r.Log.Warn("the stream has fewer replicas than it would be made with: who loses a server loses events or stands still", "stream", stream.Name, "replicas", can.replicas, "try", fmt.Sprintf("nats stream edit %s --replicas %d", stream.Name, r.Replicas))
	}
	store, err := outbox.Open(ctx, r.Config.DSN, r.Config.Schema)
	if err != nil {
		return permanent(fmt.Errorf("relay: %s: %w", r.Config.Name, err))
	}
	pool := store.Pool
	defer pool.Close()
	store.Lease, store.Attempts, store.BaseBackoff, store.MaxBackoff = r.Config.Lease, r.Config.Attempts, r.Config.BaseBackoff, r.Config.MaxBackoff
	cluster, err := identify(ctx, pool)
	if err != nil {
		return err
	}
	if err := store.CheckSchema(ctx); errors.Is(err, outbox.ErrSchema) {
		return permanent(fmt.Errorf("relay: %s: %w", r.Config.Name, err))
	} else if err != nil {
		return err
	}
	how, err := readSettings(ctx, pool)
	if err != nil {
		return err
	}
	if how.mode != r.Config.Mode {
		return permanent(fmt.Errorf("relay: %s is configured for a database in mode %s, it is in mode %s: change one of them (instar outbox init)", r.Config.Name, r.Config.Mode, how.mode))
	}
	if s.count, s.live = 1, 1; r.Config.Mode == outbox.Log { // the other one has one reader: claims of an aggregate follow each other
		s.count, s.live = how.read, how.shards
	}
	pub := &publisher{nc: r.NC, gate: r.Gate, can: can, fsync: r.Fsync, wait: 5 * time.Second, enc: newEncoder(stream.Prefix, r.Config.Name, can.maxBytes)}
	pub.enc.structured = r.Config.Structured
	if r.tamper != nil {
		r.tamper(pub)
	}
	if err := pub.start(); err != nil {
		return err
	}
	defer pub.close()
	s.o = &opener{js: r.JS, pub: pub, stream: stream, source: r.Config.Name, renamed: how.renamed, mode: string(r.Config.Mode), node: r.Node, cluster: cluster, clock: time.Now, pool: pool}
	defer s.close()
	if err := s.o.alone(ctx); err != nil {
		return err
	}
	if how.source, err = nameSource(ctx, pool, r.Config.Name); err != nil {
		return err
	}
	if how.source != r.Config.Name {
		return permanent(fmt.Errorf("%w: it is %s, this relay is called %s. Call it %s; or, to rename it on purpose, end its relay and, in the database: select outbox_rename_source('%s')",
			errNamed, how.source, r.Config.Name, how.source, r.Config.Name))
	}
	var e engine
	switch r.Config.Mode {
	case outbox.Log:
		e = &logEngine{r: r, pool: pool, shards: s, pub: pub, settings: how}
	case outbox.Claim:
		e = &claimEngine{r: r, store: store, shards: s, pub: pub, parts: how.read}
	default:
		return permanent(fmt.Errorf("relay: mode %q of %s is neither log nor claim", r.Config.Mode, r.Config.Name))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.housekeep(ctx, store, can.maxAge, func() {
			switch now, err := readSettings(ctx, pool); {
			case err != nil: // whoever works with the database tells
			case now.mode != how.mode:
				cancel(ErrChanged)
			case now != how:
				cancel(errSettings)
			}
		})
	}()
	defer func() { cancel(nil); <-done }()
	err = e.serve(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, ErrChanged) || errors.Is(cause, errSettings) {
		return cause
	}
	return err
}

// fits refuses what can never be published, and what the application does not know.
func (r *Relay) fits(e *encoder, w *row) error {
	if r.Config.Types.Park(w.EventType) {
		return fmt.Errorf("event type %q: %w", w.EventType, outbox.ErrUnknownType)
	}
	return e.fits(w)
}

// identify names the cluster, the database and the schema that positions belong to. It refuses a standby: rows appear there in
// another order than they were fenced in.
func identify(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var cluster string
	var standby bool
	err := pool.QueryRow(ctx, `select (select system_identifier from pg_control_system()) || '/' || current_database() || '/' || (select oid from pg_database where datname = current_database()) || '/' || coalesce(current_schema(), ''), pg_is_in_recovery()`).Scan(&cluster, &standby)
	if err := outbox.Pooled(err); errors.Is(err, outbox.ErrPooler) {
		return "", permanent(err)
	}
	if err != nil {
		return "", fmt.Errorf("relay: cannot ask the database who it is: %w", err)
	}
	if standby {
		return "", errors.New("relay: the database is a standby; the relay reads the primary")
	}
	return cluster, nil
}

func (r *Relay) at(point string) {
	if r.hook != nil {
		r.hook(point)
	}
}
