package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Positions in the WAL are no numbers of rows: a database that comes back from the mode wal goes on in the mode log.
func TestFromTheWALToTheLog(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r := s.relay(outbox.WAL, named)
	stop := s.run(r)
	s.reads(r)
	s.add("o-1", 1)
	s.eventually(1)
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_cursor where seq > 0`) > 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.NoError(t, outbox.Init(t.Context(), s.dsn, "", outbox.Settings{Mode: outbox.Log}))
	s.run(s.relay(outbox.Log))
	s.add("o-1", 2)
	s.add("o-2", 3)
	s.eventually(3)
	require.Equal(t, "1 2", s.numbered("o-1"))
}
