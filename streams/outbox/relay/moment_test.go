package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Postgres knows times that others do not. An event with one of them is neither lost nor in the way of others.
func TestTimesThatOnlyPostgresKnows(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		s.begin(mode)
		s.add("o-1", 1)
		s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}', occurred_at => 'infinity')`)
		s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 3}', occurred_at => '-infinity', not_before => '-infinity')`)
		s.add("o-1", 4)
		s.eventually(4)
		require.Equal(t, "1 2 3 4", s.numbered("o-1"))
		for _, m := range s.events() {
			at, err := time.Parse(time.RFC3339Nano, m.Header.Get("ce-time"))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), at, time.Minute, "the time of the insert")
		}
		list, err := (&outbox.Store{Pool: s.pool}).Tail(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, list, 4)
	})
}
