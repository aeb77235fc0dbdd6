package outbox

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// fail marks the first row of each of these aggregates as failed, for good or not, and gives the others back.
func fail(t *testing.T, s *Store, final bool, aggregates ...string) {
	t.Helper()
	b := s.claim(t, 1000)
	wanted := map[string]bool{}
	for _, a := range aggregates {
		wanted[a] = true
	}
	var failures []Failure
	var back []uuid.UUID
	for _, r := range b.Rows {
		if wanted[r.AggregateID] {
			delete(wanted, r.AggregateID)
			failures = append(failures, Failure{ID: r.ID, Error: "no", Final: final})
			continue
		}
		back = append(back, r.ID)
	}
	_, lost, err := s.MarkFailed(t.Context(), b, failures)
	require.NoError(t, err)
	require.Empty(t, lost)
	lost, err = s.Release(t.Context(), b, back)
	require.NoError(t, err)
	require.Empty(t, lost)
}

func audits(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return one[string](t, conn, `select coalesce(string_agg(actor || ' ' || action || ' ' || filter || ' ' || affected || ' ' || cardinality(events), '; ' order by id), '') from outbox_audit`)
}

func TestRedriveAndDiscardInModeClaim(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	var ids []uuid.UUID
	for _, a := range []string{"a", "a", "b", "b", "c"} {
		ids = append(ids, add(t, conn, a))
	}
	fail(t, s, true, "a", "b")
	fail(t, s, false, "c")
	require.Equal(t, "a:DEAD a:NEW b:DEAD b:NEW c:FAILED", states(t, conn))
	require.Empty(t, s.claim(t, 10).Rows)

	n, err := s.Redrive(t.Context(), Filter{IDs: []uuid.UUID{ids[0], ids[1], uuid.New()}}, "eve")
	require.NoError(t, err)
	require.Equal(t, int64(1), n, "only what failed")
	b := s.claim(t, 10)
	require.Equal(t, ids[:2], b.IDs(), "with what was waiting")
	require.Equal(t, 1, b.Rows[0].Attempts)
	require.Equal(t, 1, b.Rows[0].Redrives)
	_, err = s.MarkSent(t.Context(), b, b.IDs())
	require.NoError(t, err)

	n, err = s.Discard(t.Context(), Filter{AggregateType: "order", AggregateID: "b"}, "eve")
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.Equal(t, ids[3:4], s.claim(t, 10).IDs())
	n, err = s.Redrive(t.Context(), Filter{EventType: "order.sent"}, "eve")
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = s.Redrive(t.Context(), Filter{All: true}, "adam")
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	require.Equal(t, ids[4:5], s.claim(t, 10).IDs())
	require.Equal(t, `eve redrive {"ids": ["`+ids[0].String()+`", "`+ids[1].String()+`", "`+one[string](t, conn, `select filter #>> '{ids,2}' from outbox_audit where id = 1`)+`"]} 1 1; `+
		`eve discard {"aggregateId": "b", "aggregateType": "order"} 1 1; adam redrive {"all": true} 1 1`, audits(t, conn))
}

func TestFilterThatMeansNothing(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	for _, f := range []Filter{
		{},
		{AggregateID: "1"},
		{AggregateID: "1", EventType: "x"},
		{All: true, EventType: "x"},
		{All: true, IDs: []uuid.UUID{{}}},
		{IDs: []uuid.UUID{{}}, AggregateType: "order"},
	} {
		_, err := s.Redrive(t.Context(), f, "eve")
		require.ErrorIs(t, err, ErrFilter)
		_, err = s.Discard(t.Context(), f, "eve")
		require.ErrorIs(t, err, ErrFilter)
	}
	require.Empty(t, audits(t, conn))
}

// park puts a row of outbox_log aside, as a relay does.
func park(t *testing.T, conn *pgx.Conn, seq int, state string, due string) {
	t.Helper()
	run(t, conn, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, attempts, next_retry_at, last_error)
		select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, $2, 1, $3::timestamptz, 'no' from outbox_log where seq = $1`, seq, state, due)
}

func TestRedriveDiscardStatusAndTailInModeLog(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	s := open(t, dsn)
	st, err := s.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, Status{
		Mode: Log, Rows: map[string]int64{"NEW": 0, "SENDING": 0, "SENT": 0, "FAILED": 0, "DEAD": 0}, Parked: []Parked{},
		Shards: []Shard{{Number: 0}, {Number: 1}, {Number: 2}, {Number: 3}}, At: st.At,
	}, st)
	var ids []uuid.UUID
	for _, a := range []string{"a", "b", "c", "a", "d", "d", "d"} {
		ids = append(ids, add(t, conn, a))
	}
	park(t, conn, 1, StateDead, "infinity")
	park(t, conn, 2, StateFailed, "2030-01-01Z")
	park(t, conn, 4, StateNew, "2030-01-01Z")
	run(t, conn, `update outbox_parked set next_retry_at = null where seq = 4`)
	run(t, conn, `insert into outbox_cursor (source, shard, seq, reading, owner) select 'main', n, 5, 6, 'node' || n from generate_series(0, 3) n`)
	run(t, conn, `update outbox_log set created_at = now() - interval '1 hour' where seq = 6`)
	writer, err := dial(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = writer.Exec(t.Context(), `select outbox_append('order', 'e', 'order.paid', '{}')`)
	require.NoError(t, err)

	st, err = s.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"NEW": 2, "SENDING": 1, "SENT": 2, "FAILED": 1, "DEAD": 1}, st.Rows)
	require.Equal(t, int64(4), st.Lag)
	require.InDelta(t, 3600, st.Oldest, 60)
	require.Greater(t, st.FenceWait, 0.0)
	require.Equal(t, Shard{Number: 2, Owner: "node2", Position: "5"}, st.Shards[2])
	for i := range st.Parked {
		st.Parked[i].NextTry = st.Parked[i].NextTry.UTC()
	}
	require.Equal(t, []Parked{
		{AggregateType: "order", AggregateID: "a", EventID: ids[0].String(), State: StateDead, Attempts: 1, Error: "no", Waiting: 1},
		{AggregateType: "order", AggregateID: "b", EventID: ids[1].String(), State: StateFailed, Attempts: 1, Error: "no", NextTry: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)},
	}, st.Parked)
	require.NoError(t, writer.Rollback(t.Context()))

	seen := func(after string, n int) (got string) {
		list, err := s.Tail(t.Context(), after, n)
		require.NoError(t, err)
		for _, e := range list {
			require.Equal(t, ids[e.Seq-1], e.ID)
			got += e.Cursor + e.AggregateID + e.State + " "
		}
		return got
	}
	require.Equal(t, "5dSENT 6dSENDING 7dNEW ", seen("", 3))
	require.Equal(t, "1aDEAD 2bFAILED 3cSENT ", seen("0", 3))
	require.Empty(t, seen("7", 3))
	_, err = s.Tail(t.Context(), "x", 3)
	require.ErrorContains(t, err, "is none of this outbox")
	require.Equal(t, "DEAD FAILED SENT NEW SENT SENDING NEW", one[string](t, conn, `select string_agg(status, ' ' order by seq) from outbox_event_status`))

	n, err := s.Redrive(t.Context(), Filter{AggregateType: "order"}, "eve")
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	require.Equal(t, "1NEW0 1, 2NEW0 1, 4NEW1 0", one[string](t, conn, `select string_agg(seq || state || attempts || ' ' || redrives, ', ' order by seq) from outbox_parked`))
	run(t, conn, `update outbox_parked set state = 'DEAD' where seq < 4`)
	n, err = s.Discard(t.Context(), Filter{IDs: ids}, "eve")
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	require.Equal(t, 1, one[int](t, conn, `select count(*)::int from outbox_parked`))
	require.Contains(t, audits(t, conn), "eve discard")
	require.Equal(t, "DISCARDED DISCARDED SENT NEW SENT SENDING NEW", one[string](t, conn, `select string_agg(status, ' ' order by seq) from outbox_event_status`))
	require.Equal(t, "1aDISCARDED 2bDISCARDED 3cSENT ", seen("0", 3))
}

// What was discarded is known for as long as it may be read once more.
func TestDiscardsAreKept(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	const days = 20
	add(t, conn, "a")
	add(t, conn, "b")
	run(t, conn, `update outbox_log set day = day - $1::int`, days)
	run(t, conn, `select outbox_maintain()`)
	late := func() string {
		return one[string](t, conn, `select coalesce(string_agg(seq::text, ' ' order by seq), '') from outbox_late`)
	}
	run(t, conn, `insert into outbox_cursor (source, shard, seq, reading, updated_at) select 'main', n, 2, 2, now() - $1::int * interval '1 day' from generate_series(0, 3) n`, days+1)
	run(t, conn, `insert into outbox_late (shard, seq, event_id, day, marker, sent_at) select shard, seq, event_id, day, case seq when 2 then 7 end, now() - $1::int * interval '1 day' from outbox_log`, days)
	park(t, conn, 2, StateDead, "infinity") // which keeps the day
	run(t, conn, `update outbox_parked set day = (select day from outbox_log where seq = 2)`)
	run(t, conn, `select outbox_maintain()`)
	require.Equal(t, "1", late(), "its day is there")
	run(t, conn, `delete from outbox_parked`)
	run(t, conn, `select outbox_maintain()`)
	require.Empty(t, late())
	require.Zero(t, one[int](t, conn, `select count(*)::int from outbox_log`))
}

func TestStatusTailAndPurgeInModeClaim(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	var ids []uuid.UUID
	for _, a := range []string{"a", "a", "b", "b", "c", "d"} {
		ids = append(ids, add(t, conn, a))
	}
	fail(t, s, true, "a")
	fail(t, s, false, "b")
	b := s.claim(t, 10)
	require.Equal(t, ids[4:], b.IDs())
	_, err := s.MarkSent(t.Context(), b, b.IDs()[:1])
	require.NoError(t, err)
	run(t, conn, `update outbox_event set created_at = now() - interval '1 hour' where aggregate_id = 'a'`)
	st, err := s.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"NEW": 2, "SENDING": 1, "SENT": 1, "FAILED": 1, "DEAD": 1}, st.Rows)
	require.Equal(t, int64(4), st.Lag)
	require.InDelta(t, 3600, st.Oldest, 60)
	require.Len(t, st.Parked, 2)
	require.False(t, st.Parked[1].NextTry.IsZero())
	st.Parked[1].NextTry = time.Time{}
	require.Equal(t, []Parked{
		{AggregateType: "order", AggregateID: "a", EventID: ids[0].String(), State: StateDead, Attempts: 1, Error: "no", Waiting: 1},
		{AggregateType: "order", AggregateID: "b", EventID: ids[2].String(), State: StateFailed, Attempts: 1, Error: "no", Waiting: 1},
	}, st.Parked)

	list, err := s.Tail(t.Context(), "", 2)
	require.NoError(t, err)
	require.Equal(t, ids[4:], []uuid.UUID{list[0].ID, list[1].ID})
	list, err = s.Tail(t.Context(), ids[0].String(), 2)
	require.NoError(t, err)
	require.Equal(t, ids[1:3], []uuid.UUID{list[0].ID, list[1].ID})
	require.Equal(t, "FAILED no 1", list[1].State+" "+list[1].Error+" "+string(rune('0'+list[1].Attempts)))
	_, err = s.Tail(t.Context(), "5", 2)
	require.ErrorContains(t, err, "is none of this outbox")

	p, err := s.Purge(t.Context(), "eve")
	require.NoError(t, err)
	require.Zero(t, p)
	run(t, conn, `update outbox_event set sent_at = now() - interval '8 days' where status = 'SENT'`)
	p, err = s.Purge(t.Context(), "eve")
	require.NoError(t, err)
	require.Equal(t, Purged{Rows: 1}, p)
	require.Equal(t, "eve purge {} 1 0", audits(t, conn))
	require.Equal(t, 5, one[int](t, conn, `select count(*)::int from outbox_event`))
}
