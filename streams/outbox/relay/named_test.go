package relay

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Under two names everything would be published twice: the first relay gives the outbox its name, others are refused. Who renames
// it on purpose goes on where it was, whatever its last relay had not accounted for.
func TestAnOutboxHasOneName(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode, named func(*Relay)) {
		forgotten := s.forgetful()
		stop := s.killed(mode, named, "published", 20)
		for n := range 20 {
			s.add("o-1", n)
		}
		s.eventually(20)
		_ = stop()
		forgotten()
		other := func() *Relay {
			return s.relay(mode, named, func(r *Relay) { r.Config.Name = "other" })
		}
		for range 2 {
			err := other().Run(s.ctx)
			require.ErrorIs(t, err, errNamed)
			var fatal *PermanentError
			require.ErrorAs(t, err, &fatal)
			require.ErrorContains(t, err, "it is shop, this relay is called other")
			require.ErrorContains(t, err, "select outbox_rename_source('other')")
		}
		require.Equal(t, 20, s.stored())

		s.exec(`insert into outbox_pressure as p (source, lag) values ('shop/a', 1) on conflict (source) do update set at = now()`)
		_, err := s.pool.Exec(s.ctx, `select outbox_rename_source('other')`)
		require.ErrorContains(t, err, "less than 10 seconds ago")
		s.exec(`update outbox_pressure set at = at - interval '1 minute'`)
		s.exec(`select outbox_rename_source('other')`)
		if mode == outbox.WAL {
			err := s.relay(mode, func(r *Relay) { r.Config.Name = "other" }).Run(s.ctx) // with a slot of that name
			require.ErrorContains(t, err, "is in the slot")
		}
		s.add("o-1", 20)
		stop = s.run(other())
		s.eventually(21)
		require.NoError(t, stop())
		forgotten()
		stop = s.run(other())
		s.add("o-1", 21)
		s.eventually(22)
		require.NoError(t, stop())
		require.Equal(t, words(0, 21), s.numbered("o-1"))
		require.ErrorIs(t, s.relay(mode, named).Run(s.ctx), errNamed)
	})
}

// Postgres cuts names after 63 bytes: two sources whose names begin alike would read one slot, and each lose what the other has read.
func TestSourcesWithLongNamesHaveSlotsOfTheirOwn(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	seen := map[string]bool{}
	for _, name := range []string{"orders", "orders-eu", strings.Repeat("b", 49), strings.Repeat("b", 50), long + "-eu", long + "-us", long + "eu"} {
		slot := Slot(outbox.Config{Name: name})
		require.LessOrEqual(t, len(slot), 63)
		require.Regexp(t, `^[a-z0-9_]+$`, slot)
		require.False(t, seen[slot], slot)
		seen[slot] = true
	}
	require.True(t, seen["instar_outbox_orders_eu"] && seen["instar_outbox_"+strings.Repeat("b", 49)])
	require.Equal(t, "mine", Slot(outbox.Config{Name: long, Slot: "mine"}))
}

// Programs before this one noted a name of more than 63 bytes as it was, and had the slot that Postgres made of it. It is found by that:
// nothing that it holds is lost with the mode, and a relay with a slot of its own says which one to read.
func TestASlotThatPostgresHasCut(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.WAL)
	config, err := pgx.ParseConfig(s.dsn)
	require.NoError(t, err)
	name := strings.ReplaceAll(config.Database, "_", "-") + strings.Repeat("-x", 25)
	long := "instar_outbox_" + strings.ReplaceAll(name, "-", "_")
	cut := func(r *Relay) { r.Config.Name, r.Config.Slot = name, long[:63] }
	t.Cleanup(func() { _ = outbox.DropSlot(context.Background(), s.dsn, "", long[:63], true) })
	_, stop := s.begin(outbox.WAL, cut)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	old := func() {
		s.exec(`update outbox_stream set slot = $1`, long)
		s.exec(`update outbox_settings set wal_slot = $1`, long)
	}
	old()
	s.add("o-1", 2)
	require.Positive(t, s.status().SlotBytes)
	require.EqualValues(t, 1, s.status().Lag)
	require.ErrorIs(t, s.change(outbox.Log), outbox.ErrRowsWait)
	require.ErrorIs(t, outbox.DropSlot(s.ctx, s.dsn, "", Slot(outbox.Config{Name: name}), false), outbox.ErrRowsWait)
	err = s.relay(outbox.WAL, func(r *Relay) { r.Config.Name = name }).Run(s.ctx)
	require.ErrorContains(t, err, "is in the slot "+long[:63]+",")
	s.add("o-1", 3) // it has refused nothing
	err = s.relay(outbox.WAL, func(r *Relay) { r.Config.Name, r.Config.Slot = name, long }).Run(s.ctx)
	require.ErrorContains(t, err, "Postgres cuts it to "+long[:63])
	var fatal *PermanentError
	require.ErrorAs(t, err, &fatal)
	stop = s.run(s.relay(outbox.WAL, cut))
	s.eventually(3)
	require.NoError(t, stop())
	require.Equal(t, "1 2 3", s.numbered("o-1"))
	old()
	require.NoError(t, s.change(outbox.Log))
	require.Zero(t, s.count(sqlSlots))
	require.Zero(t, s.count(sqlNoted))
}

// A relay that is told of another slot than the one that was read until now says which one has what was emitted. What the relay keeps
// goes by what the database knows.
func TestAnotherSlotIsConfigured(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	s.add("o-1", 2)
	err := s.relay(outbox.WAL, named, func(r *Relay) { r.Config.Slot += "_2" }).Run(s.ctx)
	require.ErrorContains(t, err, "is in the slot "+r.Config.Slot+",")
	drop := func() error { return outbox.DropSlot(s.ctx, s.dsn, "", r.Config.Slot+"_2", false) }
	require.ErrorIs(t, drop(), outbox.ErrRowsWait)
	s.add("o-1", 3)
	stop = s.run(s.relay(outbox.WAL, named))
	s.eventually(3)
	require.NoError(t, stop())
	require.NoError(t, drop())
	require.Zero(t, s.count(sqlSlots))
	require.Zero(t, s.count(sqlReads))
}
