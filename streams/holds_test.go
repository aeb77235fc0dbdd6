package streams_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// A message is known by its id among those of its subject, and a stream that cannot be read, or has too many of them, does not say no.
func TestHoldsID(t *testing.T) {
	t.Parallel()
	g := planned(t)
	s, err := g.JS.Stream(g.Ctx, streams.CommandStream)
	require.NoError(t, err)
	publish := func(key, id string) {
		_, err := g.JS.Publish(g.Ctx, g.Names.Command("thing", key, "make"), nil, jetstream.WithMsgID(streams.CommandID("thing", key, id)))
		require.NoError(t, err)
	}
	holds := func(key, id string) (bool, error) {
		return streams.HoldsID(g.Ctx, s, g.Names.StoredOf("thing", key), streams.CommandID("thing", key, id))
	}
	for i := range 64 { // as many as are looked at
		publish("default.a", fmt.Sprint(i))
		publish("default.b", fmt.Sprint("other-", i))
	}
	for id, want := range map[string]bool{"0": true, "63": true, "none": false, "other-0": false} {
		is, err := holds("default.a", id)
		require.NoError(t, err)
		require.Equal(t, want, is, id)
	}
	is, err := holds("default.c", "0")
	require.NoError(t, err)
	require.False(t, is)
	publish("default.a", "one more")
	_, err = holds("default.a", "none")
	require.ErrorIs(t, err, streams.ErrUnreadable)
}
