package relay

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// BenchmarkPublish stores batches of 1000 rows of 256 bytes, as each profile does it.
func BenchmarkPublish(b *testing.B) {
	for _, profile := range []embedded.Profile{embedded.OS, embedded.Fsync} {
		b.Run(string(profile), func(b *testing.B) {
			server, err := embedded.Start(embedded.Options{Dir: b.TempDir(), Profile: profile, Listen: "127.0.0.1:0", Open: true})
			require.NoError(b, err)
			defer func() { require.NoError(b, server.Shutdown(b.Context())) }()
			nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "bench"})
			require.NoError(b, err)
			defer nc.Close()
			js, err := streams.JetStream(nc)
			require.NoError(b, err)
			stream := Stream{}.withDefaults()
			can, err := stream.ensure(b.Context(), js)
			require.NoError(b, err)
			p := &publisher{nc: nc, can: can, fsync: profile == embedded.Fsync, wait: 5e9, enc: newEncoder("outbox", "shop", can.maxBytes)}
			require.NoError(b, p.start())
			defer p.close()
			o := &opener{js: js, pub: p, stream: stream, source: "shop", mode: "log", node: "a", cluster: "1", clock: time.Now}
			s, err := o.open(b.Context(), 0, 0)
			require.NoError(b, err)
			payload := make([]byte, 256)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 1000 {
				b.StopTimer()
				batch := items(s, span(n+1, n+999)...)
				for _, i := range batch {
					i.row.Payload = payload
				}
				b.StartTimer()
				_, err := p.publish(b.Context(), batch, []*session{s})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkLog relays b.N rows that wait, from the first read to the last answer.
func BenchmarkLog(b *testing.B) {
	for _, profile := range []embedded.Profile{embedded.OS, embedded.Fsync} {
		b.Run(string(profile), func(b *testing.B) {
			server, err := embedded.Start(embedded.Options{Dir: b.TempDir(), Profile: profile, Listen: "127.0.0.1:0", Open: true})
			require.NoError(b, err)
			defer func() { require.NoError(b, server.Shutdown(b.Context())) }()
			nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "bench"})
			require.NoError(b, err)
			defer nc.Close()
			js, err := streams.JetStream(nc)
			require.NoError(b, err)
			dsn := migrate(b, outboxed(b), outbox.Log)
			conn, err := pgx.Connect(b.Context(), dsn)
			require.NoError(b, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(b.Context(), `insert into outbox_log (shard, event_id, aggregate_type, aggregate_id, event_type, payload, headers)
				select outbox_shard('order', 'o-' || n % 5000, 4), outbox_uuid_v7(), 'order', 'o-' || n % 5000, 'order.paid', convert_to(repeat('x', 256), 'UTF8'), '{"tenant": "t1"}'
				from generate_series(1, $1::int) as n`, b.N)
			require.NoError(b, err)
			_, err = conn.Exec(b.Context(), `analyze outbox_log`)
			require.NoError(b, err)
			r := &Relay{NC: nc, JS: js, Node: "a", Fsync: profile == embedded.Fsync, Config: outbox.Config{Name: "shop", DSN: dsn}}
			b.ReportAllocs()
			b.ResetTimer()
			go func() { require.ErrorIs(b, r.Drain(b.Context()), nil) }()
			require.ErrorIs(b, r.Run(b.Context()), ErrDrained)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkClaim relays b.N rows that wait, in batches of 100.
func BenchmarkClaim(b *testing.B) {
	server, err := embedded.Start(embedded.Options{Dir: b.TempDir(), Profile: embedded.OS, Listen: "127.0.0.1:0", Open: true})
	require.NoError(b, err)
	defer func() { require.NoError(b, server.Shutdown(b.Context())) }()
	nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "bench"})
	require.NoError(b, err)
	defer nc.Close()
	js, err := streams.JetStream(nc)
	require.NoError(b, err)
	dsn := migrate(b, outboxed(b), outbox.Claim)
	conn, err := pgx.Connect(b.Context(), dsn)
	require.NoError(b, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(b.Context(), `insert into outbox_event (shard, event_id, aggregate_type, aggregate_id, event_type, payload, headers)
		select outbox_shard('order', 'o-' || n % 5000, 4), outbox_uuid_v7(), 'order', 'o-' || n % 5000, 'order.paid', convert_to(repeat('x', 256), 'UTF8'), '{"tenant": "t1"}'
		from generate_series(1, $1::int) as n`, b.N)
	require.NoError(b, err)
	_, err = conn.Exec(b.Context(), `analyze outbox_event`)
	require.NoError(b, err)
	r := &Relay{NC: nc, JS: js, Node: "a", Config: outbox.Config{Name: "shop", DSN: dsn, Mode: outbox.Claim}}
	b.ResetTimer()
	go func() { require.ErrorIs(b, r.Drain(b.Context()), nil) }()
	require.ErrorIs(b, r.Run(b.Context()), ErrDrained)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
