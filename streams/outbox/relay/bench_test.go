package relay

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/streamstest"
)

// BenchmarkRelay relays b.N rows that wait, from the first read to the last answer, in batches of the size that each mode has by default.
func BenchmarkRelay(b *testing.B) {
	for _, of := range []struct {
		mode    outbox.Mode
		table   string
		profile embedded.Profile
	}{{outbox.Log, "outbox_log", embedded.OS}, {outbox.Log, "outbox_log", embedded.Fsync}, {outbox.Claim, "outbox_event", embedded.OS}} {
		b.Run(string(of.mode)+"/"+string(of.profile), func(b *testing.B) {
			e := streamstest.Start(b, embedded.Options{Profile: of.profile, Listen: "127.0.0.1:0", Open: true})
			dsn := migrate(b, outboxed(b), of.mode)
			conn, err := pgx.Connect(b.Context(), dsn)
			require.NoError(b, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(b.Context(), `insert into `+of.table+` (shard, event_id, aggregate_type, aggregate_id, event_type, payload, headers)
				select outbox_shard('order', 'o-' || n % 5000, 4), outbox_uuid_v7(), 'order', 'o-' || n % 5000, 'order.paid', convert_to(repeat('x', 256), 'UTF8'), '{"tenant": "t1"}'
				from generate_series(1, $1::int) as n`, b.N)
			require.NoError(b, err)
			_, err = conn.Exec(b.Context(), `analyze `+of.table)
			require.NoError(b, err)
			r := &Relay{NC: e.NC, JS: e.JS, Node: "a", Fsync: of.profile == embedded.Fsync, Config: outbox.Config{Name: "shop", DSN: dsn, Mode: of.mode}}
			b.ReportAllocs()
			b.ResetTimer()
			go func() { require.ErrorIs(b, r.Drain(b.Context()), nil) }()
			require.ErrorIs(b, r.Run(b.Context()), ErrDrained)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
