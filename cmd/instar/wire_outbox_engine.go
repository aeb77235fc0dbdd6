package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/relay"
	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
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
			Config: relayed, NC: o.nc, JS: o.js, Names: o.a.deps.Names, Replicas: o.a.plan.Replicas,
			Fsync: streams.Profile(o.a.cfg.Durability) == streams.Fsync, Node: o.a.node, Meter: o.sent[s.Name], Gate: o.a.disk.err, Log: o.a.log,
			Leases: &relay.NATSLeases{JS: o.js, Names: o.a.deps.Names, Source: s.Name, Node: o.a.node, Life: relayed.Lease / 3, Log: o.a.log},
			Wanted: func(ctx context.Context) error { return o.wanted(ctx, s.Name) },
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

// wanted says why the entity of a source wants nothing relayed, as the leader of its bucket knows it.
func (o *outboxes) wanted(ctx context.Context, source string) error {
	bucket, err := kv.Open(ctx, o.js, o.a.deps.Names.Bucket(machine.Machine.Plural), kv.JSON[struct{ State string }]())
	if err != nil {
		return err
	}
	e, err := bucket.Get(ctx, machines.Key(relayNamespace, "", source))
	if err != nil {
		return err
	}
	if provider.WishOf(e.Value.State) == provider.Stand {
		return fmt.Errorf("the relay %s is %s", source, e.Value.State)
	}
	return nil
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
	own, err := e.current().Status(ctx)
	if err != nil {
		return own, err
	}
	st, err := e.store.Status(ctx)
	if err != nil {
		return own, err
	}
	if err := e.ahead(ctx, &own, &st); err != nil {
		return own, err
	}
	if unread, oldest, ok := e.current().Unread(); ok && st.Mode == outbox.WAL && len(own.Shards) > 0 {
		e.read(&st, unread, oldest)
	}
	if own.Problem == relay.ErrDrained.Error() { // it was meant
		own.Problem = ""
	}
	st.Problem, st.Rate, st.FenceWait = own.Problem, own.Rate, max(own.FenceWait, st.FenceWait)
	return st, nil
}

// read corrects what the database says of mode wal in the same way.
func (e *relayEngine) read(st *outbox.Status, unread int64, oldest time.Duration) {
	parked := keptAside(st)
	st.Lag = unread + parked
	st.Rows[outbox.StateNew] = max(0, st.Lag-st.Rows[outbox.StateFailed])
	if parked == 0 {
		st.Oldest = oldest.Seconds()
	}
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
			return nil //nolint:nilerr // not a number of a row: the database's word holds
		}
		shards, positions = append(shards, int16(h.Number)), append(positions, at) //nolint:gosec // at most 64
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

// Remove drops the replication slot, which would keep the log of the database for ever, and what was said of the lag, which would
// refuse what is appended for ever. Leases end by themselves. The database knows its mode and its slot, whatever was configured since.
func (e *relayEngine) Remove(ctx context.Context, force bool) error {
	relayed := e.current().Config
	if err := outbox.DropSlot(ctx, relayed.DSN, relayed.Schema, relay.Slot(relayed), force); err != nil {
		return err
	}
	return e.store.Unpublish(ctx, relayed.Name)
}

func (e *relayEngine) Close() { e.store.Pool.Close() }

// sentRows counts what the relay of a source does here.
type sentRows struct {
	rows, parked, restarts atomic.Int64
	tries                  atomic.Int64 // of all of them
	after                  [len(triesUpTo)]atomic.Int64
}

// triesUpTo are the buckets of tries.
var triesUpTo = [...]int{1, 2, 3, 5, 10}

var _ relay.Meter = (*sentRows)(nil)

func (s *sentRows) Sent(rows int, _ time.Duration) { s.rows.Add(int64(rows)) }
func (s *sentRows) Tried(tries, rows int) {
	s.tries.Add(int64(tries) * int64(rows))
	for i, most := range triesUpTo {
		if tries <= most {
			s.after[i].Add(int64(rows))
		}
	}
}

// attempts shows how many tries rows took.
func (s *sentRows) attempts(source string) prometheus.Metric {
	buckets := map[float64]uint64{}
	for i, most := range triesUpTo {
		buckets[float64(most)] = uint64(s.after[i].Load()) //nolint:gosec // rises from 0
	}
	return prometheus.MustNewConstHistogram(outboxAttempts, uint64(s.rows.Load()), float64(s.tries.Load()), buckets, source) //nolint:gosec // likewise
}

func (s *sentRows) Parked(string)           { s.parked.Add(1) }
func (s *sentRows) Restarted(string)        { s.restarts.Add(1) }
func (s *sentRows) FenceWait(time.Duration) {}
func (s *sentRows) Lag(int64)               {}

var (
	outboxRows      = prometheus.NewDesc("instar_outbox_rows", "Rows of an outbox by state, as seen at the last look.", []string{"source", "state"}, nil)
	outboxOldest    = prometheus.NewDesc("instar_outbox_oldest_seconds", "Age of the oldest row that is not sent.", []string{"source"}, nil)
	outboxLag       = prometheus.NewDesc("instar_outbox_lag", "Rows behind.", []string{"source"}, nil)
	outboxFence     = prometheus.NewDesc("instar_outbox_fence_wait_seconds", "How long the oldest open writer holds the relay back.", []string{"source"}, nil)
	outboxParked    = prometheus.NewDesc("instar_outbox_parked", "Aggregates that wait behind a row that cannot be published; counted up to 100.", []string{"source"}, nil)
	outboxUnread    = prometheus.NewDesc("instar_outbox_unread_bytes", "Log of the database that a relay of mode wal has not confirmed.", []string{"source"}, nil)
	outboxSlot      = prometheus.NewDesc("instar_outbox_slot_bytes", "Log that the database keeps for the replication slot.", []string{"source"}, nil)
	outboxPublished = prometheus.NewDesc("instar_outbox_published_total", "Rows that this node has brought into the stream.", []string{"source"}, nil)
	outboxAttempts  = prometheus.NewDesc("instar_outbox_attempts", "Tries that rows took which this node has brought into the stream.", []string{"source"}, nil)
	outboxRestarts  = prometheus.NewDesc("instar_outbox_restarts_total", "How often the relay opened its shards again after a fault.", []string{"source"}, nil)
)

// Describe is that of a prometheus.Collector.
func (o *outboxes) Describe(ch chan<- *prometheus.Desc) { describeOutbox(ch) }

// Collect shows what was seen last: scraping asks no database.
func (o *outboxes) Collect(ch chan<- prometheus.Metric) {
	for _, name := range o.provider.Sources() {
		s, at := o.provider.Last(name)
		if at.IsZero() {
			collectOutbox(ch, name, o.sent[name], nil)
			continue
		}
		collectOutbox(ch, name, o.sent[name], &s)
	}
}

func describeOutbox(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{outboxRows, outboxOldest, outboxLag, outboxFence, outboxParked, outboxSlot, outboxUnread, outboxPublished, outboxAttempts, outboxRestarts} {
		ch <- d
	}
}

// collectOutbox shows one source; s is nil before the first look.
func collectOutbox(ch chan<- prometheus.Metric, name string, count *sentRows, s *outbox.Status) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(outboxPublished, prometheus.CounterValue, float64(count.rows.Load()), name)
	ch <- count.attempts(name)
	ch <- prometheus.MustNewConstMetric(outboxRestarts, prometheus.CounterValue, float64(count.restarts.Load()), name)
	if s == nil {
		return
	}
	for state, n := range s.Rows {
		gauge(outboxRows, float64(n), name, state)
	}
	gauge(outboxOldest, s.Oldest, name)
	gauge(outboxLag, float64(s.Lag), name)
	gauge(outboxFence, s.FenceWait, name)
	gauge(outboxParked, float64(len(s.Parked)), name)
	gauge(outboxSlot, float64(s.SlotBytes), name)
	gauge(outboxUnread, float64(s.Unread), name)
}
