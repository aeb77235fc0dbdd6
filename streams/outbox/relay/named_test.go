package relay

import (
	"strings"
	"testing"

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
