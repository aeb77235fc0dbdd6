package relay

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Rows of nearly 1 MiB, in all modes.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		s.begin(mode)
		s.exec(`select outbox_append_bytes('order', 'o-' || n % 2, 'order.paid', convert_to(repeat(chr(64 + n), $1::int), 'UTF8'), 'text/plain') from generate_series(1, 24) as n`, outbox.MaxPayload)
		s.eventually(24)
		last := map[string]byte{}
		for _, m := range s.events() {
			require.Len(t, m.Data, outbox.MaxPayload)
			require.Equal(t, "text/plain", m.Header.Get("content-type"))
			require.Greater(t, m.Data[0], last[m.Subject])
			last[m.Subject] = m.Data[0]
		}
		require.Len(t, last, 2)
	})
}

// A batch is read by the indexes of the days, in their order.
func TestBatchesAreReadInTheOrderOfTheIndexes(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.exec(`insert into outbox_log (day, shard, event_id, aggregate_type, aggregate_id, event_type, payload)
		select current_date + (n % 3)::int, n % 4, outbox_uuid_v7(), 'order', 'o-' || n % 5000, 'order.paid', '{}' from generate_series(1, 20000) as n`)
	store, err := outbox.Open(s.ctx, s.dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	for _, statistics := range []string{"without", "with"} {
		for query, args := range map[string][]any{
			sqlRead:       {10000, 500},
			sqlReadShards: {10000, 500, []int{1, 2}},
		} {
			rows, err := store.Pool.Query(s.ctx, "explain (costs off) "+query, args...)
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
		_, err := store.Pool.Exec(context.WithoutCancel(s.ctx), `analyze`)
		require.NoError(t, err)
	}
}
