package relays

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
)

// relayEngine is the relay of one source for the provider. A relay runs once, so each run has one of its own; DSN and
// settings are read again for it.
type relayEngine struct {
	make  func(context.Context) (*relay.Relay, error)
	store *outbox.Store

	mu  sync.Mutex
	r   *relay.Relay // of this run or the last one
	ran bool
}

// open makes the engine of a source with its first relay, so that it can be looked at before it runs.
func (o *outboxes) open(ctx context.Context, s config.OutboxSource) (provider.Engine, error) {
	e := &relayEngine{make: func(ctx context.Context) (*relay.Relay, error) {
		relayed, err := o.config(s)
		if err != nil {
			return nil, err
		}
		if err := settingsOf(ctx, &relayed, s); err != nil {
			return nil, err
		}
		return &relay.Relay{
			Config: relayed, NC: o.nc, JS: o.js, Names: o.h.Deps.Names, Replicas: o.h.Replicas,
			Fsync: embedded.Profile(o.h.Config.Durability) == embedded.Fsync && !o.h.Deps.Appender.Syncs(), Sync: func(ctx context.Context, stream string) error { return o.h.Deps.Appender.Sync(ctx, stream) }, Node: o.h.Node, Meter: o.sent[s.Name], Gate: o.h.Writable, Log: o.h.Log,
			Leases: &shard.NATSLeases{JS: o.js, Names: o.h.Deps.Names, Source: s.Name, Node: o.h.Node, Life: relayed.Lease / 3, Log: o.h.Log},
		}, nil
	}}
	r, err := e.make(ctx)
	if err != nil {
		return nil, err
	}
	e.r = r
	e.store, err = outbox.Open(ctx, r.Config.DSN, r.Config.Schema)
	return e, err
}

func (e *relayEngine) current() *relay.Relay {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.r
}

// next is the relay of the next run.
func (e *relayEngine) next(ctx context.Context) (*relay.Relay, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ran {
		r, err := e.make(ctx)
		if err != nil {
			return nil, err
		}
		e.r = r
	}
	e.ran = true
	return e.r, nil
}

func (e *relayEngine) Run(ctx context.Context) error {
	r, err := e.next(ctx)
	if err != nil {
		return err
	}
	if err = r.Run(ctx); errors.Is(err, relay.ErrDrained) {
		return provider.ErrDrained
	}
	return err
}

func (e *relayEngine) Drain(ctx context.Context) error { return e.current().Drain(ctx) }

// Status is what the database says, and what only the relay knows.
func (e *relayEngine) Status(ctx context.Context) (outbox.Status, error) {
	own := e.current().Status()
	st, err := e.store.Status(ctx)
	if errors.Is(err, outbox.ErrSchema) {
		return own, &relay.PermanentError{Err: err}
	}
	if err != nil {
		return own, err
	}
	if err := e.ahead(ctx, &own, &st); err != nil {
		return own, err
	}
	if own.Problem == relay.ErrDrained.Error() { // it was meant
		own.Problem = ""
	}
	st.Problem, st.Rate, st.FenceWait = own.Problem, own.Rate, max(own.FenceWait, st.FenceWait)
	return st, nil
}

// keptAside is how many rows wait behind one that failed, and those that are tried again.
func keptAside(st *outbox.Status) int64 {
	n := st.Rows[outbox.StateFailed]
	for _, p := range st.Parked {
		n += p.Waiting
	}
	return n
}

// counted is up to how many rows are counted one by one, as the store does it.
const counted = 10000

// ahead corrects what the database says by what this relay knows: it writes down where it stands only every few seconds,
// and in those it may have relayed a hundred thousand rows. It can do so when it holds all shards.
func (e *relayEngine) ahead(ctx context.Context, own, st *outbox.Status) error {
	if st.Mode != outbox.Log || len(own.Shards) < len(st.Shards) || len(own.Shards) == 0 {
		return nil
	}
	var shards []int16
	var positions []int64
	for _, h := range own.Shards {
		at, err := strconv.ParseInt(h.Position, 10, 64)
		if err != nil {
			return fmt.Errorf("shard %d stands at %q, which is no number of a row: %w", h.Number, h.Position, err)
		}
		shards, positions = append(shards, int16(h.Number)), append(positions, at) // at most 64
	}
	var seen, behind int64
	var oldest float64
	err := e.store.Pool.QueryRow(ctx, `
		with ahead as (select seq, shard, created_at from outbox_log where seq > $3 order by seq limit $4),
			behind as (select a.created_at from ahead a join unnest($1::smallint[], $2::bigint[]) as c (shard, seq) using (shard) where a.seq > c.seq)
		select (select count(*) from ahead), count(*), coalesce(extract(epoch from now() - min(created_at)), 0)::float8 from behind`,
		shards, positions, slices.Min(positions), counted).Scan(&seen, &behind, &oldest)
	if err != nil || seen >= counted {
		return err
	}
	parked := keptAside(st)
	st.Rows[outbox.StateSent] += max(0, min(st.Rows[outbox.StateNew]+st.Rows[outbox.StateSending], counted)-behind) // so many the store had left out
	st.Rows[outbox.StateNew], st.Rows[outbox.StateSending] = behind, 0
	st.Lag = behind + parked
	if parked == 0 {
		st.Oldest = max(0, oldest)
	}
	st.Shards = own.Shards
	return nil
}

// Remove takes away what was said of the lag, which would refuse what is appended for ever. Leases end by themselves.
func (e *relayEngine) Remove(ctx context.Context) error {
	return e.store.Unpublish(ctx, e.current().Config.Name)
}

func (e *relayEngine) Close() { e.store.Pool.Close() }
