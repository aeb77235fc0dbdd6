package deliver

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// deliverer holds the leases of so many shards, of which none is open.
func deliverer(t *testing.T, shards int) (*Deliverer, *pgxpool.Pool) {
	t.Helper()
	g, pool, log := relaytest.Setup(t, embedded.OS), relaytest.Pool(t), slog.New(slog.DiscardHandler)
	set := &shard.Set{Leases: shard.Alone{}, Log: log, Opener: g.Opener("a", g.Can, false), Count: shards, Live: shards}
	_, err := set.Tend(t.Context())
	require.NoError(t, err)
	config := outbox.Config{Poll: 20 * time.Millisecond, Batch: 1000, Attempts: 10, BaseBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond}
	return &Deliverer{Control: control.New(control.NoMeter{}, log), Config: config, Pool: pool, Shards: set}, pool
}

// load opens a shard at position 5 that earlier sessions have stored these rows of.
func load(t *testing.T, d *Deliverer, n int, seen map[string]session.Stored) *session.Session {
	t.Helper()
	s, err := d.Shards.Opener.Open(t.Context(), n, 5)
	require.NoError(t, err)
	if seen != nil {
		s.Seen, s.SeenTo = seen, 1
	}
	if d.opened == nil {
		d.opened = map[int]*history{}
	}
	d.opened[n] = &history{Session: s}
	require.NoError(t, d.Load(t.Context(), n))
	d.Shards.Opened(s)
	return s
}

// What waits to be read again leaves room for what is due.
func TestWhatIsReadAgainLeavesRoom(t *testing.T) {
	t.Parallel()
	d, pool := deliverer(t, 1)
	relaytest.Exec(t, pool, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select 0, n, gen_random_uuid(), current_date, 'order', 'o-' || n, 'order.paid', 'FAILED', now() - n * interval '1 second' from generate_series(1, $1::int) as n`, dueAtOnce+10)
	d.Shards.Opener.Pool = pool
	opened := load(t, d, 0, nil)
	require.NoError(t, d.look(t.Context()))
	var due []string
	for _, p := range d.due {
		due = append(due, p.agg.ID)
	}
	require.Equal(t, "o-5 o-4 o-3 o-2 o-1", strings.Join(due, " "))
	require.LessOrEqual(t, time.Until(d.next), d.Config.Poll, "when it is looked again")
	opened.Pos = 500 // it has read those
	require.NoError(t, d.look(t.Context()))
	require.Len(t, d.due, 500)

	// A look that took long is not the reason that an operator's change is seen much later.
	relaytest.Exec(t, pool, `delete from outbox_parked where seq = 1`)
	d.took, d.loaded = time.Minute, time.Now().Add(-lookWithin)
	require.Contains(t, d.parked, sink.Aggregate{Type: "order", ID: "o-1"})
	_, err := d.Retry(t.Context())
	require.NoError(t, err)
	require.NotContains(t, d.parked, sink.Aggregate{Type: "order", ID: "o-1"})
}

// A row whose time comes while it is looked what is due waits for the next look, and not for ever: nothing else may be parked that would make one.
func TestWhatBecomesDueDuringALookIsSeenByTheNext(t *testing.T) {
	t.Parallel()
	d, pool := deliverer(t, 1)
	d.Shards.Opener.Pool = pool
	load(t, d, 0, nil)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }() // the pool waits for it
	d.next = time.Now()
	require.NoError(t, d.look(t.Context())) // the connection knows the statements now
	relaytest.Exec(t, pool, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, not_before, next_retry_at)
		select 0, 1, gen_random_uuid(), current_date, 'order', 'o-1', 'order.paid', 'NEW', at, at from (select now() + interval '1 second' as at) as a`)
	_, err = other.Exec(t.Context(), `lock table outbox_parked in access exclusive mode`)
	require.NoError(t, err)
	d.next = time.Now()
	looked := make(chan error, 1)
	go func() { looked <- d.look(t.Context()) }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, other.QueryRow(t.Context(), `select count(*) from pg_locks l join pg_database d on d.oid = l.database
			where not l.granted and l.relation = 'outbox_parked'::regclass and d.datname = current_database()`).Scan(&n))
		return n > 0
	}, relaytest.Within, relaytest.Every)
	_, err = other.Exec(t.Context(), `select pg_sleep_until(next_retry_at) from outbox_parked`)
	require.NoError(t, err)
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, <-looked)
	require.Eventually(t, func() bool {
		require.NoError(t, d.look(t.Context()))
		return len(d.due) > 0
	}, relaytest.Within, relaytest.Every, "its turn is in %s", time.Until(d.next))
}

// Rows that were published and left parked in a former shard leave those of their aggregate that are in another one, whichever of the
// shards is opened first: they go on.
func TestWhatWasPublishedInAFormerShardLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{1, 3}, {3, 1}} {
		d, pool := deliverer(t, 4)
		relaytest.Exec(t, pool, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at) values
			(3, 1, $1, current_date, 'order', 'o-1', 'order.paid', 'FAILED', now()), (3, 2, gen_random_uuid(), current_date, 'order', 'o-2', 'order.paid', 'FAILED', 'infinity'),
			(1, 4, gen_random_uuid(), current_date, 'order', 'o-1', 'order.paid', 'NEW', null)`, uuid.Nil)
		for _, n := range order {
			var seen map[string]session.Stored
			if n == 3 {
				seen = map[string]session.Stored{"1": {ID: uuid.Nil.String(), At: 7}}
			}
			load(t, d, n, seen)
		}
		require.NoError(t, d.look(t.Context()))
		require.Len(t, d.due, 1)
		require.Equal(t, sink.Position(4), d.due[0].pos)
		require.Equal(t, 1, relaytest.Count(t, pool, `select count(*) from outbox_late where shard = 3 and seq = 1 and marker = 7`))
		require.Equal(t, 2, relaytest.Count(t, pool, `select count(*) from outbox_parked`))
	}
}
