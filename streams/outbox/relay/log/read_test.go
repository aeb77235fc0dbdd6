package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// add appends an event and commits it.
func add(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	relaytest.Exec(t, pool, `select outbox_append('order', 'o-1', 'order.paid', $1::jsonb)`, fmt.Sprintf(`{"n": %d}`, n))
}

// A relay that sees every number looks at no locks and waits for nobody; it does so only before a number that is missing.
func TestLocksAreLookedAtOnlyBeforeAMissingNumber(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	d, err := newReader(t.Context(), pool, outbox.Config{Batch: 1000}, control.New(control.NoMeter{}, slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer d.close()
	at := int64(0)
	next := func() (numbers []int64, waits bool) {
		got := d.read(t.Context(), request{from: at, shards: 15}, []int{0, 1, 2, 3}, 4)
		require.NoError(t, got.err)
		for _, r := range got.rows {
			at = int64(r.Pos)
			numbers = append(numbers, at)
		}
		return numbers, got.wait > 0
	}
	for n := range 3 {
		add(t, pool, n)
	}
	open, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), `select outbox_append('order', 'o-2', 'order.paid', '{}')`)
	require.NoError(t, err)
	add(t, pool, 5)

	numbers, waits := next()
	require.Equal(t, []int64{1, 2, 3}, numbers)
	require.False(t, waits)
	require.Zero(t, d.fences)
	numbers, waits = next()
	require.Empty(t, numbers)
	require.True(t, waits)
	require.Equal(t, 1, d.fences)
	for range 10 { // at once: it does not look at the locks that often
		_, waits = next()
		require.True(t, waits)
	}
	require.Less(t, d.fences, 6)

	require.NoError(t, open.Rollback(t.Context()))
	require.Eventually(t, func() bool { numbers, _ = next(); return len(numbers) > 0 }, relaytest.Within, relaytest.Every)
	require.Equal(t, []int64{5}, numbers)
	fences := d.fences
	for n := range 20 {
		add(t, pool, n)
		numbers, waits = next()
		require.Len(t, numbers, 1)
		require.False(t, waits)
	}
	numbers, waits = next()
	require.Empty(t, numbers)
	require.False(t, waits)
	require.Equal(t, fences, d.fences)
}

// A look at the locks that took long, because the relay or its database stood still meanwhile, is not made up for by a long wait: a relay
// that was stopped for ten seconds published nothing for two hundred.
func TestASlowLookAtTheLocksDoesNotHoldUpTheNext(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	d, err := newReader(t.Context(), pool, outbox.Config{Batch: 1000}, control.New(control.NoMeter{}, slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer d.close()
	open, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }() // the pool waits for it
	_, err = open.Exec(t.Context(), `select outbox_append('order', 'o-2', 'order.paid', '{}')`)
	require.NoError(t, err)
	still, err := pool.Begin(t.Context()) // waits for the one above, and all that would read wait for it
	require.NoError(t, err)
	_, err = still.Exec(t.Context(), `set local lock_timeout = '1s'`)
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := still.Exec(context.WithoutCancel(t.Context()), `lock table outbox_log in access exclusive mode`)
		waiting <- errors.Join(err, still.Rollback(context.WithoutCancel(t.Context())))
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from pg_locks where not granted and relation = 'outbox_log'::regclass`).Scan(&n))
		return n > 0
	}, relaytest.Within, relaytest.Every)

	began := time.Now()
	got := d.read(t.Context(), request{shards: 1}, []int{0}, 4)
	require.NoError(t, got.err)
	require.ErrorContains(t, <-waiting, "55P03")
	require.Equal(t, 1, d.fences)
	require.Greater(t, time.Since(began), 300*time.Millisecond)
	require.Positive(t, got.wait)
	require.LessOrEqual(t, time.Until(d.again), time.Second)
}

// A batch is read by the indexes of the days, in their order.
func TestBatchesAreReadInTheOrderOfTheIndexes(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	relaytest.Exec(t, pool, `insert into outbox_log (day, shard, event_id, aggregate_type, aggregate_id, event_type, payload)
		select current_date + (n % 3)::int, n % 4, outbox_uuid_v7(), 'order', 'o-' || n % 5000, 'order.paid', '{}' from generate_series(1, 20000) as n`)
	for _, statistics := range []string{"without", "with"} {
		for query, args := range map[string][]any{
			sqlRead:       {10000, 500},
			sqlReadShards: {10000, 500, []int{1, 2}},
		} {
			rows, err := pool.Query(t.Context(), "explain (costs off) "+query, args...)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			require.NotContains(t, plan, "Seq Scan on outbox_", statistics+" statistics: "+query+"\n"+plan)
			if strings.Contains(query, "from outbox_log where") {
				require.Contains(t, plan, "Merge Append", plan) // of the days, each by its index
				require.NotContains(t, plan, "->  Sort", plan)
			}
		}
		relaytest.Exec(t, pool, `analyze`)
	}
}

func TestNoReadOfTheLogReadsAWholeTable(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	relaytest.Crowd(t, pool)
	relaytest.Explain(t, pool, []relaytest.Query{
		{Name: "read", Query: sqlRead, Rows: 1100, Args: []string{"20000", "1000"}},
		{Name: "read of shards", Query: sqlReadShards, Rows: 5000, Args: []string{"20000", "1000", `'{0,1}'`}},
	})
}
