package relay

import (
	"testing"

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
