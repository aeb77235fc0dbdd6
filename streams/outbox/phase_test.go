package outbox

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Rows in every state are counted, claimed, purged and redriven as their state says.
func TestRowsInEveryState(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	for _, aggregate := range []string{"sent", "new", "sending", "failed", "dead"} {
		add(t, conn, aggregate)
	}
	run(t, conn, `update outbox_event set status = 'SENT', sent_at = now() - interval '8 days' where aggregate_id = 'sent'`)
	run(t, conn, `update outbox_event set status = 'SENDING', attempts = 1, locked_by = 'w', locked_until = now() - interval '1 s', lease_token = gen_random_uuid() where aggregate_id = 'sending'`)
	run(t, conn, `update outbox_event set status = 'FAILED', attempts = 1, last_error = 'no' where aggregate_id = 'failed'`)
	run(t, conn, `update outbox_event set status = 'DEAD', attempts = 10, next_retry_at = 'infinity', last_error = 'no' where aggregate_id = 'dead'`)

	st, err := s.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{StateNew: 1, StateSending: 1, StateSent: 1, StateFailed: 1, StateDead: 1}, st.Rows)
	b := s.claim(t, 10)
	require.Len(t, b.Rows, 3)
	require.Equal(t, "sent:SENT new:SENDING sending:SENDING failed:SENDING dead:DEAD", states(t, conn))
	require.Equal(t, []int{1, 2, 2}, []int{b.Rows[0].Attempts, b.Rows[1].Attempts, b.Rows[2].Attempts})
	lost, err := s.MarkSent(t.Context(), b, b.IDs())
	require.NoError(t, err)
	require.Empty(t, lost)
	purged, err := s.Purge(t.Context(), "me")
	require.NoError(t, err)
	require.EqualValues(t, 1, purged.Rows)
	n, err := s.Redrive(t.Context(), Filter{AggregateType: "order", AggregateID: "dead"}, "me")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Len(t, s.claim(t, 10).Rows, 1)

	_, err = conn.Exec(t.Context(), `insert into outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, shard) values (gen_random_uuid(), 'or.der', '1', 'x', '', 0)`)
	require.ErrorContains(t, err, "aggregate_type", "what comes in is checked")
}

// A claim alone ends the row that has ended its relay each time, and what follows it waits.
func TestAClaimEndsWhatWasTriedOftenEnough(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	s.Lease, s.Attempts = 50*time.Millisecond, 2
	add(t, conn, "a")
	add(t, conn, "a")
	tries := 0
	require.Eventually(t, func() bool {
		b := s.claim(t, 1)
		tries += len(b.Rows)
		return len(b.Rows) == 0 && states(t, conn) == "a:DEAD a:NEW"
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, 2, tries)
	require.Equal(t, "the lease of w has ended", one[string](t, conn, `select last_error from outbox_event where status = 'DEAD'`))
	require.Empty(t, s.claim(t, 10).Rows)
}

// What a worker marked is undone by a crash of the database until it has flushed; its connection tells that there was one.
func TestAWorkerNoticesACrash(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	add(t, conn, "a")
	w := &Worker{Store: s, Name: "w"}
	require.NoError(t, w.Open(t.Context()))
	b, _, err := w.Turn(t.Context(), nil, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, b.Rows, 1)
	next, lost, err := w.Turn(t.Context(), b, b.IDs(), nil, 10)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Empty(t, next.Rows)
	require.Equal(t, "a:SENT", states(t, conn))
	_, lost, err = w.Turn(t.Context(), b, []uuid.UUID{b.Rows[0].ID}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, Lost(b.IDs()), lost)
	before := one[string](t, conn, `select pg_current_wal_insert_lsn()::text`)
	require.NoError(t, w.Flush(t.Context()))
	require.True(t, one[bool](t, conn, `select pg_current_wal_flush_lsn() >= $1::pg_lsn`, before))
	require.Equal(t, "on", one[string](t, conn, `select current_setting('synchronous_commit')`))
	run(t, conn, `select pg_terminate_backend($1)`, int(w.conn.Conn().PgConn().PID()))
	_, _, err = w.Turn(t.Context(), nil, nil, nil, 10)
	require.Error(t, err)
	require.Error(t, w.Flush(t.Context()), "it does not connect again by itself")
	w.Close()
}
