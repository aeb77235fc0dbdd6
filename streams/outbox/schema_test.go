package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestAppendInSQL(t *testing.T) {
	t.Parallel()
	for mode, table := range map[Mode]string{Claim: "outbox_event", Log: "outbox_log"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			_, conn := setup(t, mode)
			id := one[uuid.UUID](t, conn, `select outbox_append('order', '4711', 'order.paid', '{"amount": 12}', '{"tenant": "a"}')`)
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			require.WithinDuration(t, time.Now(), time.Unix(id.Time().UnixTime()), time.Minute)
			require.JSONEq(t, `{"amount": 12}`, one[string](t, conn, `select convert_from(payload, 'UTF8') from `+table+` where event_id = $1 and headers ->> 'tenant' = 'a' and content_type = 'application/json'`, id))
			require.Equal(t, "NEW", one[string](t, conn, `select status from outbox_event_status where event_id = $1`, id))
			run(t, conn, `select outbox_append_bytes('order', '4711', 'order.paid', '\x00ff', 'application/x-protobuf')`)
			require.Equal(t, []byte{0, 255}, one[[]byte](t, conn, `select payload from `+table+` where content_type = 'application/x-protobuf'`))

			for _, bad := range []string{
				`select outbox_append('or.der', '1', 'order.paid', '{}')`,
				`select outbox_append('order', 'a b', 'order.paid', '{}')`,
				`select outbox_append('order', '*', 'order.paid', '{}')`,
				`select outbox_append('order', '', 'order.paid', '{}')`,
				`select outbox_append('order', null, 'order.paid', '{}')`,
				`select outbox_append('order', '1', 'order..paid', '{}')`,
				`select outbox_append('order', '1', '>', '{}')`,
				`select outbox_append('order', '1', 'order.paid', null)`,
				`select outbox_append('order', '1', 'order.paid', '{}', '[]')`,
				`select outbox_append_bytes('order', '1', 'order.paid', convert_to(repeat('x', 1040385), 'UTF8'), 'text/plain')`,
			} {
				_, err := conn.Exec(t.Context(), bad)
				require.Error(t, err, bad)
			}
			run(t, conn, `select outbox_append_bytes('order', '1', 'order.paid', convert_to(repeat('x', 1040384), 'UTF8'), 'text/plain')`)
			require.Equal(t, 3, one[int](t, conn, `select count(*)::int from `+table))
		})
	}
}

func TestIDsOfSQLRise(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	ids := one[[]string](t, conn, `select array_agg(outbox_uuid_v7()::text order by n) from generate_series(1, 20000) n`)
	last, falls := "", 0
	for _, id := range ids {
		if id[:18] < last {
			falls++
		}
		last = id[:18] // time and microseconds
	}
	require.Zero(t, falls)
}

func TestShardIsTheSameInGo(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	used := map[int]bool{}
	for _, n := range []int{1, 4, 7, 64} {
		for _, id := range []string{"1", "4711", "a-b_c", strings.Repeat("x", 128), uuid.NewString(), uuid.NewString()} {
			got := ShardOf("order", id, n)
			require.Equal(t, one[int](t, conn, `select outbox_shard('order', $1, $2)::int`, id, n), got)
			used[got] = true
		}
	}
	require.Greater(t, len(used), 4)
}

func TestInitIsRepeatable(t *testing.T) {
	t.Parallel()
	dsn := pg.Database(t)
	done := make(chan error)
	for range 4 {
		go func() {
			done <- Init(t.Context(), dsn, "events", Settings{Mode: Claim, Shards: 8, Retention: time.Hour, MaxLag: 10})
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	require.NoError(t, Init(t.Context(), dsn, "events", Settings{}), "what is zero stays")
	conn := dial(t, dsn)
	require.Equal(t, "claim 8 01:00:00 10", one[string](t, conn, `select mode || ' ' || shards || ' ' || retention || ' ' || max_lag from events.outbox_settings`))
	// From another search path, and with a temporary table of the same name, it is still that schema.
	run(t, conn, `create temp table outbox_settings (mode text)`)
	run(t, conn, `select events.outbox_append('order', '1', 'order.paid', '{}')`)
	require.Equal(t, 1, one[int](t, conn, `select count(*)::int from events.outbox_event`))

	require.ErrorIs(t, Init(t.Context(), dsn, "events", Settings{Mode: Log}), ErrRowsWait)
	require.ErrorIs(t, Init(t.Context(), dsn, "events", Settings{Shards: 2}), ErrRowsWait)
	require.NoError(t, Init(t.Context(), dsn, "events", Settings{MaxLag: -1, Shards: 8}))
	run(t, conn, `delete from events.outbox_event`)
	require.NoError(t, Init(t.Context(), dsn, "events", Settings{Mode: Log}))
	run(t, conn, `select events.outbox_append('order', '1', 'order.paid', '{}')`)
	require.ErrorIs(t, Init(t.Context(), dsn, "events", Settings{Mode: Claim}), ErrRowsWait)

	require.ErrorContains(t, Init(t.Context(), dsn, `x"; drop`, Settings{}), "no name of a schema")
	require.ErrorContains(t, Init(t.Context(), "postgres://user:secret@/x?port=x", "", Settings{}), "cannot read the DSN")
}

func TestDays(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	days := func() int {
		return one[int](t, conn, `select count(*)::int from pg_inherits where inhparent = 'outbox_log'::regclass`)
	}
	require.Equal(t, 5, days(), "today, three to come, and the default")
	add := func(day string) {
		run(t, conn, `insert into outbox_log (day, shard, event_id, aggregate_type, aggregate_id, event_type, payload)
			values ((clock_timestamp() at time zone 'UTC')::date + $1::int, 0, outbox_uuid_v7(), 'order', '1', 'order.paid', '{}')`, day)
	}
	of := func(part string) int {
		return one[int](t, conn, `select count(*)::int from outbox_log where tableoid::regclass::text = $1`, part)
	}
	// Rows of days that nobody made are in the default partition until somebody does.
	for _, day := range []string{"0", "1", "3", "4", "-20", "-20", "-1"} {
		add(day)
	}
	require.Equal(t, 4, of("outbox_log_default"))
	before := one[string](t, conn, `select string_agg(seq::text, ',' order by seq) from outbox_log`)
	run(t, conn, `select outbox_maintain()`)
	require.Zero(t, of("outbox_log_default"))
	require.Equal(t, before, one[string](t, conn, `select string_agg(seq::text, ',' order by seq) from outbox_log`))
	require.Equal(t, 8, days(), "and in 4 days, yesterday, and 20 days ago, which was not sent")

	// An old day goes when all of it was sent, nothing of it is parked, and nobody writes into it.
	run(t, conn, `insert into outbox_cursor (shard, seq) select n, 100 from generate_series(0, 3) n`)
	run(t, conn, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state) select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, 'DEAD' from outbox_log where seq = 5`)
	run(t, conn, `select outbox_maintain()`)
	require.Equal(t, 8, days())
	run(t, conn, `delete from outbox_parked`)
	writer := dial(t, conn.Config().ConnString())
	tx, err := writer.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into outbox_log (day, shard, event_id, aggregate_type, aggregate_id, event_type, payload)
		select day, 0, outbox_uuid_v7(), 'order', '1', 'order.paid', '{}' from outbox_log where seq = 5`)
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, conn, `select postponed from outbox_maintain()`))
	require.NoError(t, tx.Rollback(t.Context()))
	// A writer of today does not keep the space from being given back.
	tx, err = writer.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select outbox_append('order', '1', 'order.paid', '{}')`)
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, conn, `select postponed from outbox_maintain()`))
	require.Zero(t, one[int](t, conn, `select count(*)::int from outbox_log where seq in (5, 6)`))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, one[int](t, conn, `select dropped from outbox_maintain()`))
	require.Equal(t, 7, days())
}

// settled waits as a reader does: until those who wrote when the mark was taken have ended.
func settled(t *testing.T, conn *pgx.Conn, writers []string) bool {
	t.Helper()
	return !one[bool](t, conn, `select outbox_writers() && $1`, writers)
}

func TestFence(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	fence := func() (mark int64, writers []string) {
		require.NoError(t, conn.QueryRow(t.Context(), `select mark, writers from outbox_fence()`).Scan(&mark, &writers))
		return
	}
	mark, writers := fence()
	require.Zero(t, mark)
	require.Empty(t, writers)
	slow, err := dial(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	_, err = slow.Exec(t.Context(), `select outbox_append('order', '1', 'order.paid', '{}')`)
	require.NoError(t, err)
	run(t, conn, `select outbox_append('order', '2', 'order.paid', '{}')`)
	mark, writers = fence()
	require.Equal(t, int64(2), mark)
	require.Len(t, writers, 1)
	require.False(t, settled(t, conn, writers))
	require.WithinDuration(t, time.Now(), one[time.Time](t, conn, `select outbox_oldest_writer()`), time.Minute)
	require.NoError(t, slow.Commit(t.Context()))
	require.True(t, settled(t, conn, writers))

	// A transaction that is prepared is still the same one.
	preparing := dial(t, dsn)
	run(t, preparing, `begin`)
	run(t, preparing, `select outbox_append('order', '3', 'order.paid', '{}')`)
	_, writers = fence()
	require.Len(t, writers, 1)
	run(t, preparing, `prepare transaction 'held'`)
	_, again := fence()
	require.Equal(t, writers, again)
	require.False(t, settled(t, conn, writers))
	require.WithinDuration(t, time.Now(), one[time.Time](t, conn, `select outbox_oldest_writer()`), time.Minute)
	run(t, preparing, `commit prepared 'held'`)
	require.True(t, settled(t, conn, writers))
	require.Nil(t, one[*time.Time](t, conn, `select outbox_oldest_writer()`))
}

// An application's role needs to write, not to read what others wrote.
func TestRoleOfAnApplication(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	role := "app_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	run(t, conn, `create role `+role)
	run(t, conn, `grant select on outbox_settings, outbox_pressure to `+role)
	run(t, conn, `grant insert on outbox_log, outbox_event, outbox_inbox to `+role)
	app := dial(t, dsn)
	run(t, app, `set role `+role)
	for _, mode := range []string{"log", "claim"} {
		run(t, conn, `update outbox_settings set mode = $1, max_lag = 5`, mode)
		run(t, app, `select outbox_append('order', '1', 'order.paid', '{}')`)
		require.NoError(t, pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
			m := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid"}
			if _, err := (&Appender{}).Append(t.Context(), tx, m, m); err != nil {
				return err
			}
			_, err := Inbox{}.Handle(t.Context(), tx, "event/"+mode, "mail", func() error { return nil })
			return err
		}))
	}
	require.Equal(t, 6, one[int](t, conn, `select count(*)::int from outbox_event_status`))
	_, err := app.Exec(t.Context(), `select * from outbox_log`)
	require.ErrorContains(t, err, "permission denied")
	run(t, conn, `drop owned by `+role)
	run(t, app, `reset role`)
	run(t, conn, `drop role `+role)
}
