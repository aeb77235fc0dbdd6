package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
)

// BenchmarkPublish stores batches of 1000 rows of 256 bytes, as each profile does it.
func BenchmarkPublish(b *testing.B) {
	for _, profile := range []embedded.Profile{embedded.OS, embedded.Fsync} {
		b.Run(string(profile), func(b *testing.B) {
			g := relaytest.Setup(b, profile)
			o := g.Opener("a", g.Can, profile == embedded.Fsync)
			s, err := o.Open(b.Context(), 0, 0)
			require.NoError(b, err)
			payload := make([]byte, 256)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 1000 {
				b.StopTimer()
				batch := relaytest.Items(s, relaytest.Span(n+1, n+999)...)
				for _, i := range batch {
					i.Row.Payload = payload
				}
				b.StartTimer()
				_, err := o.Publish(b.Context(), batch, []*session.Session{s})
				require.NoError(b, err)
			}
		})
	}
}
