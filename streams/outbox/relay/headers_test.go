package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Headers are any object: what SQL writes is not always text, nor one line.
func TestHeadersOfSQL(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		s.add("o-1", 1)
		s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}', headers => '{"schemaVersion": 5, "deep": {"a": [1]}, "none": null,
			"lines": "a\r\nNats-Rollup: all\r\n\r\nbody", "Nats-Rollup": "all", "a b": "c"}')`)
		s.run(s.relay(mode))
		s.eventually(2)
		require.Equal(t, "1 2", s.numbered("o-1"))
		h := s.events()[1].Header
		require.Equal(t, "5", h.Get("schemaVersion"))
		require.Equal(t, `{"a": [1]}`, h.Get("deep"))
		require.Empty(t, h.Get("Nats-Rollup"))
		require.Equal(t, "a  Nats-Rollup: all    body", h.Get("lines"))
		list, err := (&outbox.Store{Pool: s.pool}).Tail(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, "5", list[1].Headers["schemaVersion"])
	})
}
