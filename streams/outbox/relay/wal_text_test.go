package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A database may write times and bytes as it likes: rows are read from the WAL as text.
func TestWALOfATableWithOtherFormats(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.Log)
	var name string
	require.NoError(t, s.pool.QueryRow(t.Context(), `select current_database()`).Scan(&name))
	for _, setting := range []string{"timezone = 'Asia/Kolkata'", "datestyle = 'German'", "bytea_output = 'escape'"} {
		s.exec("alter database " + name + " set " + setting)
	}
	r := s.relay(outbox.WAL, named, func(r *Relay) { r.Config.Publication = "shop_events" })
	s.run(r)
	s.reads(r)
	s.exec(`insert into outbox_log (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, payload)
		values (0, outbox_uuid_v7(), '2026-03-04 05:06:07.5Z', 'order', 'o-1', 'order.paid', '\x00ff0a41')`)
	s.check()
	require.Equal(t, []byte{0, 0xff, 0x0a, 'A'}, s.events()[0].Data)
	require.Equal(t, "2026-03-04T05:06:07.5Z", s.events()[0].Header.Get("ce-time"))
}
