package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Under two names everything would be published twice: the first relay gives the outbox its name, others are refused. Who renames
// it on purpose goes on where it was, whatever its last relay had not accounted for.
func TestAnOutboxHasOneName(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		forgotten := s.forgetful()
		stop := s.killed(mode, "published", 20)
		for n := range 20 {
			s.add("o-1", n)
		}
		s.eventually(20)
		_ = stop()
		forgotten()
		other := func() *Relay {
			return s.relay(mode, func(r *Relay) { r.Config.Name = "other" })
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
		require.ErrorIs(t, s.relay(mode).Run(s.ctx), errNamed)
	})
}
