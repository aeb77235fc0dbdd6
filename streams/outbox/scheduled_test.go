package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What waits for its time makes no outbox old.
func TestStatusOfScheduledRows(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Log, Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dsn, conn := setup(t, mode)
			store, err := Open(t.Context(), dsn, "")
			require.NoError(t, err)
			t.Cleanup(store.Pool.Close)
			_, err = conn.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.reminded', '{}', not_before => now() + interval '1 day')`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `update outbox_event set created_at = now() - interval '1 hour'`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `insert into outbox_parked (shard, seq, event_id, aggregate_type, aggregate_id, event_type, state, next_retry_at, not_before, parked_at)
				select shard, seq, event_id, aggregate_type, aggregate_id, event_type, 'NEW', not_before, not_before, now() - interval '1 hour' from outbox_log`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `insert into outbox_cursor (shard, seq, reading) select shard, seq, seq from outbox_log`)
			require.NoError(t, err)
			st, err := store.Status(t.Context())
			require.NoError(t, err)
			require.Zero(t, st.Oldest)
			require.EqualValues(t, 1, st.Rows[StateNew])
		})
	}
}
