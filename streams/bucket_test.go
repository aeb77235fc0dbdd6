package streams_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// A bucket beside the plan is used by the clients of NATS as any other, and nobody reads stale values there.
func TestABucketBesideThePlan(t *testing.T) {
	t.Parallel()
	g := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	for name, life := range map[string]time.Duration{"kept": 0, "seen": 15 * time.Second} {
		for range 2 {
			require.NoError(t, streams.EnsureBucket(g.Ctx, g.JS, name, "Something", life, 1))
		}
		s, err := g.JS.Stream(g.Ctx, streams.BucketStream(name))
		require.NoError(t, err)
		c := s.CachedInfo().Config
		require.Equal(t, life, c.MaxAge)
		require.False(t, c.AllowDirect)
		kv, err := g.JS.KeyValue(g.Ctx, name)
		require.NoError(t, err)
		rev, err := kv.Create(g.Ctx, "a", []byte("1"))
		require.NoError(t, err)
		_, err = kv.Update(g.Ctx, "a", []byte("2"), rev+1)
		require.ErrorIs(t, err, jetstream.ErrKeyExists)
		_, err = kv.Update(g.Ctx, "a", []byte("2"), rev)
		require.NoError(t, err)
		e, err := kv.Get(g.Ctx, "a")
		require.NoError(t, err)
		require.Equal(t, "2", string(e.Value()))
	}
}
