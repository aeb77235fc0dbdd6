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
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode, named func(*Relay)) {
		s.begin(mode, named)
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
		if mode == outbox.WAL {
			return // which keeps nothing
		}
		list, err := (&outbox.Store{Pool: s.pool}).Tail(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, list, 4)
	})
}

// Whether the time of an event has come is for the database to say: the relay's clock may be ahead.
func TestTheRelaysClockDoesNotSayWhatIsDue(t *testing.T) {
	t.Parallel()
	for line, later := range map[string]bool{
		`{"created_at": "2001-01-01T00:00:00Z", "not_before": "2001-01-01T00:00:05Z"}`: true, // by this clock it is long past
		`{"created_at": "2001-01-01T00:00:00Z", "not_before": "2000-01-01T00:00:00Z"}`: false,
		`{"created_at": "2001-01-01T00:00:00Z", "not_before": null}`:                   false,
	} {
		var r row
		require.NoError(t, r.emitted([]byte(line+"\n{}"), position{at: 1, lsn: true}))
		require.Equal(t, later, r.later, line)
	}
}
