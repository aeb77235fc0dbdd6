package outbox

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slot that was read and is not there any more may have held what nobody has read: nothing else has it, so neither the mode nor the slot is
// given up by the way.
func TestASlotThatIsGoneIsNotGivenUpByTheWay(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, WAL)
	slot := one[string](t, conn, `select 'g' || left(md5(current_database()), 20)`)
	noted := func(slot string) {
		run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', $1) on conflict (source, mode, shard) do update set slot = excluded.slot`, slot)
	}
	noted(slot)
	run(t, conn, `update outbox_settings set wal_slot = $1`, slot)
	for range 3 {
		run(t, conn, `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	}
	for _, set := range []Settings{{Mode: Log}, {Mode: Claim}, {Shards: 7}} {
		err := Init(t.Context(), dsn, "", set)
		require.ErrorIs(t, err, ErrRowsWait)
		require.ErrorContains(t, err, "the slot "+slot+" of source main is gone")
		require.ErrorContains(t, err, "up to 3 events")
	}
	require.ErrorIs(t, DropSlot(t.Context(), dsn, "", slot+"_2", false), ErrRowsWait)
	run(t, conn, `select outbox_append('order', 'o-1', 'order.paid', '{}')`) // nothing has changed
	require.NoError(t, DropSlot(t.Context(), dsn, "", slot, true))
	require.Empty(t, one[string](t, conn, `select slot from outbox_stream`))
	_, err := conn.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.ErrorContains(t, err, "OB002")
	require.NoError(t, DropSlot(t.Context(), dsn, "", slot, false), "it was given up")
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))

	// What an init that was killed has left is shown in every mode.
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	noted("?" + slot)
	run(t, conn, `select pg_logical_emit_message(false, 'fill', repeat('x', 100000))`)
	for _, mode := range []Mode{Log, Claim} {
		run(t, conn, `update outbox_settings set mode = $1`, mode)
		st, err := open(t, dsn).Status(t.Context())
		require.NoError(t, err)
		require.Greater(t, st.SlotBytes, int64(50_000), mode)
	}
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Claim}))
	st, err := open(t, dsn).Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.SlotBytes)
}

// A relay that begins to read a slot after it was given up, and before it could be dropped, keeps it.
func TestASlotStaysThatIsReadAgainBeforeItIsDropped(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, WAL)
	pool := open(t, dsn).Pool
	slot := one[string](t, conn, `select 'r' || left(md5(current_database()), 20)`)
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', $1)`, slot)
	writer, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = writer.Exec(t.Context(), `lock table outbox_settings in access share mode`)
	require.NoError(t, err)
	dropped := make(chan error, 1)
	go func() { dropped <- DropSlot(t.Context(), dsn, "", slot, true) }()
	blocked(t, pool, 1)
	behind := dial(t, dsn)
	locked := make(chan error, 1)
	go func() {
		_, err := behind.Exec(t.Context(), `begin; lock table outbox_settings in access exclusive mode`)
		locked <- err
	}()
	blocked(t, pool, 2)
	require.NoError(t, writer.Commit(t.Context()))
	require.NoError(t, <-locked)
	blocked(t, pool, 1)
	run(t, behind, `update outbox_stream set slot = $1`, slot)
	run(t, behind, `update outbox_settings set wal_slot = $1`, slot)
	run(t, behind, `commit`)
	require.ErrorContains(t, <-dropped, "again")
	require.Equal(t, 1, one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot))
	require.NoError(t, DropSlot(t.Context(), dsn, "", slot, true))
	require.Zero(t, one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot))
}

// A name that is configured, or noted, counts only where no other outbox of the database has claimed the slot.
func TestASlotThatAnotherOutboxHasClaimedStays(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, WAL)
	require.NoError(t, Init(t.Context(), dsn, "other", Settings{Mode: WAL}))
	slot := one[string](t, conn, `select 'c' || left(md5(current_database()), 20)`)
	there := func() int {
		return one[int](t, conn, `select count(*)::int from pg_replication_slots where slot_name = $1`, slot)
	}
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	run(t, conn, `create publication `+slot+`_none`)
	run(t, conn, `comment on publication `+slot+`_none is '`+SlotClaim+`other'`)
	run(t, conn, `select nextval(pg_get_serial_sequence('outbox_log', 'seq'))`)
	for _, noted := range []string{"", "?", slot} {
		run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', $1) on conflict (source, mode, shard) do update set slot = excluded.slot`, strings.Replace(noted, "?", "?"+slot, 1))
		if noted == slot {
			require.ErrorIs(t, DropSlot(t.Context(), dsn, "", slot, false), ErrRowsWait, "what was emitted here is not in it")
		}
		require.NoError(t, DropSlot(t.Context(), dsn, "", slot, true))
		require.Equal(t, 1, there())
		require.Empty(t, one[string](t, conn, `select slot from outbox_stream`))
	}
	run(t, conn, `drop schema other cascade`)
	for _, of := range []string{"other", "other' is the comment of nobody"} { // a schema that is gone, and another program
		run(t, conn, `comment on publication `+slot+`_none is '`+SlotClaim+strings.ReplaceAll(of, "'", "''")+`'`)
		for _, force := range []bool{false, true} {
			require.NoError(t, DropSlot(t.Context(), dsn, "", slot, force))
			require.Equal(t, 1, there(), "it is not known whose it is")
		}
	}
	run(t, conn, `comment on publication `+slot+`_none is '`+SlotClaim+`public'`)
	require.NoError(t, DropSlot(t.Context(), dsn, "", slot, false))
	require.Zero(t, there())
}

// What was accounted for was read, so nothing has gone with the slot. What was not is given up by force, or by hand as the documentation says.
func TestASlotThatIsGoneIsGivenUp(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, WAL)
	run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster) values ('main', 'wal', 0, '', '', 1, '')`)
	run(t, conn, `insert into outbox_cursor (source, shard, system_identifier) values ('main', 0, '')`)
	begin := func(read int) {
		run(t, conn, `update outbox_settings set mode = 'wal', wal_slot = 'away'`)
		run(t, conn, `update outbox_stream set slot = 'away'`)
		run(t, conn, `select outbox_append('order', 'o-1', 'order.paid', '{}') from generate_series(1, 3)`)
		run(t, conn, `update outbox_cursor set seq = pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')) - 3 + $1`, read)
	}
	left := func() {
		require.Equal(t, "log", one[string](t, conn, `select mode from outbox_settings`))
		require.NotEqual(t, "away", one[string](t, conn, `select slot from outbox_stream`))
		require.True(t, one[bool](t, conn, `select seq = pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')) from outbox_cursor`))
	}
	begin(3)
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log}))
	left()
	begin(2)
	err := Init(t.Context(), dsn, "", Settings{Mode: Log})
	require.ErrorIs(t, err, ErrRowsWait)
	require.ErrorContains(t, err, "up to 1 events")
	require.ErrorContains(t, err, "instar outbox init --mode log --force")
	require.ErrorIs(t, Init(t.Context(), dsn, "", Settings{Shards: 7, Force: true}), ErrRowsWait, "the mode stays")
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Log, Force: true}))
	left()
	begin(2)
	text, err := os.ReadFile("../../docs/outbox.md")
	require.NoError(t, err)
	_, by, _ := strings.Cut(string(text), "begin;\nlock table outbox_settings")
	by, _, _ = strings.Cut(by, "```")
	run(t, conn, "begin;\nlock table outbox_settings"+by)
	left()
	run(t, conn, `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
}

// What a slot keeps may take longer to decode than its deletion may: then it is told as something that nobody has read, and not tried again.
func TestALongBacklogIsNotLookedThrough(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, WAL)
	slot := one[string](t, conn, `select 'l' || left(md5(current_database()), 20)`)
	run(t, conn, `create publication `+slot+`_none`)
	run(t, conn, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	t.Cleanup(func() { _ = DropSlot(context.Background(), dsn, "", slot, true) })
	run(t, conn, `insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('main', 'wal', 0, '', '', 1, '', $1)`, slot)
	run(t, conn, `select count(pg_logical_emit_message(false, 'x', 'x')) from generate_series(1, 300000)`)
	drop := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return DropSlot(ctx, dsn, "", slot, false)
	}
	err, within := drop(0), 100*time.Millisecond
	for ; err != nil && !errors.Is(err, ErrRowsWait); within *= 2 { // until it comes so far
		err = drop(within)
	}
	require.ErrorIs(t, err, ErrRowsWait)
	require.ErrorContains(t, err, "takes too long")
}

// Timeouts that a role or a database has by default are not those of an outbox.
func TestNoTimeoutsByDefault(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	database := one[string](t, conn, `select current_database()`)
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"} {
		run(t, conn, `alter database "`+database+`" set `+timeout+` = '77min'`)
		require.Equal(t, "77min", one[string](t, dial(t, dsn), `select current_setting($1)`, timeout))
		var is string
		require.NoError(t, open(t, dsn).Pool.QueryRow(t.Context(), `select current_setting($1)`, timeout).Scan(&is))
		require.Equal(t, "0", is)
	}
}
