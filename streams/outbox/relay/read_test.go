package relay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A relay that sees every number looks at no locks and waits for nobody; it does so only before a number that is missing.
func TestLocksAreLookedAtOnlyBeforeAMissingNumber(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	d, err := newReader(t.Context(), s.pool, s.relay(outbox.Log))
	require.NoError(t, err)
	defer d.close()
	at := int64(0)
	next := func() (numbers []int64, waits bool) {
		got := d.read(t.Context(), request{from: at, shards: 15}, []int{0, 1, 2, 3}, 4)
		require.NoError(t, got.err)
		for _, r := range got.rows {
			numbers, at = append(numbers, r.num), r.num
		}
		return numbers, got.wait > 0
	}
	for n := range 3 {
		s.add("o-1", n)
	}
	open, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), `select outbox_append('order', 'o-2', 'order.paid', '{}')`)
	require.NoError(t, err)
	s.add("o-1", 5)

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
	require.Eventually(t, func() bool { numbers, _ = next(); return len(numbers) > 0 }, waitFor, tick)
	require.Equal(t, []int64{5}, numbers)
	fences := d.fences
	for n := range 20 {
		s.add("o-1", n)
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
	s := openShop(t, outbox.Log)
	d, err := newReader(t.Context(), s.pool, s.relay(outbox.Log))
	require.NoError(t, err)
	defer d.close()
	open, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }() // the pool waits for it
	_, err = open.Exec(t.Context(), `select outbox_append('order', 'o-2', 'order.paid', '{}')`)
	require.NoError(t, err)
	still, err := s.pool.Begin(t.Context()) // waits for the one above, and all that would read wait for it
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
		require.NoError(t, s.pool.QueryRow(t.Context(), `select count(*) from pg_locks where not granted and relation = 'outbox_log'::regclass`).Scan(&n))
		return n > 0
	}, waitFor, tick)

	began := time.Now()
	got := d.read(t.Context(), request{shards: 1}, []int{0}, 4)
	require.NoError(t, got.err)
	require.ErrorContains(t, <-waiting, "55P03")
	require.Equal(t, 1, d.fences)
	require.Greater(t, time.Since(began), 300*time.Millisecond)
	require.Positive(t, got.wait)
	require.LessOrEqual(t, time.Until(d.again), time.Second)
}
