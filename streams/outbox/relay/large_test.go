package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Rows of nearly 1 MiB, in all modes.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		s.begin(mode)
		s.exec(`select outbox_append_bytes('order', 'o-' || n % 2, 'order.paid', convert_to(repeat(chr(64 + n), $1::int), 'UTF8'), 'text/plain') from generate_series(1, 24) as n`, outbox.MaxPayload)
		s.eventually(24)
		last := map[string]byte{}
		for _, m := range s.events() {
			require.Len(t, m.Data, outbox.MaxPayload)
			require.Equal(t, "text/plain", m.Header.Get("content-type"))
			require.Greater(t, m.Data[0], last[m.Subject])
			last[m.Subject] = m.Data[0]
		}
		require.Len(t, last, 2)
	})
}
