package streams_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// A store that is found may be found larger while the server runs. One that is set is followed in both directions, and what that takes away is told.
func TestSharesFollowTheStore(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	g := planned(t)
	require.NoError(t, g.JS.DeleteStream(g.Ctx, g.Names.Stream(streams.ProbeStream))) // others are left alone
	var said bytes.Buffer
	p := thingPlan(g.Names)
	p.Log = slog.New(slog.NewTextHandler(&said, nil))
	follow := func(set bool, store, events, dead int64) {
		t.Helper()
		p.Store, p.StoreSet = store, set
		diffs, err := streams.Rebound(g.Ctx, g.JS, p)
		require.NoError(t, err)
		require.Empty(t, diffs)
		require.Equal(t, []int64{events, dead}, []int64{info(t, g, streams.EventStream).Config.MaxBytes, info(t, g, streams.DeadStream).Config.MaxBytes})
	}
	for range 12 {
		_, err := g.JS.Publish(g.Ctx, g.Names.Event("thing", "default.a", "made"), make([]byte, mib/2))
		require.NoError(t, err)
	}
	follow(false, 18*mib, 9*mib, 2*mib)
	follow(false, 400*mib, 200*mib, 20*mib)
	follow(false, 18*mib, 200*mib, 20*mib)
	require.Empty(t, said.String())
	follow(true, 8*mib, 4*mib, 2*mib)
	require.Less(t, info(t, g, streams.EventStream).State.Bytes, uint64(4*mib))
	require.Contains(t, said.String(), "the oldest messages of a stream go")
	follow(true, 9*mib, 9*mib/2, 2*mib)
	by := info(t, g, streams.EventStream).Config
	by.MaxBytes = 3 * mib
	_, err := g.JS.UpdateStream(g.Ctx, by)
	require.NoError(t, err)
	follow(true, 40*mib, 3*mib, 2*mib) // it was changed by hand
	by.MaxBytes = -1
	_, err = g.JS.UpdateStream(g.Ctx, by)
	require.NoError(t, err)
	follow(true, 4*mib, 2*mib, 2*mib)
	follow(false, 400*mib, 200*mib, 20*mib)
}

// stuck is a JetStream whose streams have no leader that takes a change.
type stuck struct{ jetstream.JetStream }

func (stuck) UpdateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return nil, &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}
}

// A bound that could not be changed is none that was: it is an error while the server runs, and a difference with its reason at a start.
func TestABoundThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	g := planned(t)
	p := thingPlan(g.Names)
	p.Store, p.StoreSet = 40<<20, true
	_, err := streams.Rebound(g.Ctx, stuck{g.JS}, p)
	require.ErrorContains(t, err, "insufficient resources")
	diffs, err := streams.Ensure(g.Ctx, stuck{g.JS}, p)
	require.NoError(t, err)
	require.Len(t, diffs, 2)
	require.Contains(t, diffs[0].String(), "bytes is -1, should be 20971520, and cannot be changed: nats: API error")
	diffs, err = streams.Rebound(g.Ctx, g.JS, p)
	require.NoError(t, err)
	require.Empty(t, diffs)
	require.EqualValues(t, 20<<20, info(t, g, streams.EventStream).Config.MaxBytes)
}

// Streams that only tell have a bound: one that is set, or a share of the store. A share only grows.
func TestStreamsThatTellAreBounded(t *testing.T) {
	t.Parallel()
	g := planned(t)
	names := []string{streams.EventStream, streams.DeadStream}
	has := func(events, dead int64) {
		t.Helper()
		require.Equal(t, []int64{events, dead}, []int64{configs(t, g)[names[0]].MaxBytes, configs(t, g)[names[1]].MaxBytes})
	}
	ensure := func(events, dead, store int64) {
		t.Helper()
		p := thingPlan(g.Names)
		p.Events, p.DeadLetters, p.Store = events, dead, store
		diffs, err := streams.Ensure(g.Ctx, g.JS, p)
		require.NoError(t, err)
		require.Empty(t, diffs)
	}
	has(-1, -1)
	for range 10 {
		_, err := g.JS.Publish(g.Ctx, g.Names.Event("thing", "default.a", "made"), make([]byte, 1<<10))
		require.NoError(t, err)
	}
	const mib = 1 << 20
	ensure(0, 0, 100*mib)
	has(50*mib, 5*mib)
	ensure(0, 0, 110*mib)
	has(50*mib, 5*mib) // no small changes
	for range 12 {
		_, err := g.JS.Publish(g.Ctx, g.Names.Event("thing", "default.a", "made"), make([]byte, mib/2))
		require.NoError(t, err)
	}
	ensure(0, 0, 12*mib)
	has(50*mib, 5*mib) // no event has to go because somebody else has filled the disk, now or later
	ensure(0, 0, 200*mib)
	has(100*mib, 10*mib)
	p := thingPlan(g.Names)
	p.Store, p.Replicas = 1000*mib, 3
	_, err := streams.Ensure(g.Ctx, g.JS, p)
	require.NoError(t, err)
	has(500*mib, 50*mib) // that of the member with the largest store
	unbound := info(t, g, streams.EventStream).Config
	unbound.MaxBytes = -1
	_, err = g.JS.UpdateStream(g.Ctx, unbound)
	require.NoError(t, err)
	p.Store, p.Replicas = 10*mib, 1
	diffs, err := streams.Ensure(g.Ctx, g.JS, p)
	require.NoError(t, err)
	require.Len(t, diffs, 1, "it has more than its share already")
	has(-1, 50*mib)
	ensure(0, 0, 1000*mib)
	has(500*mib, 50*mib)
	ensure(500*mib, 0, 1000*mib)
	ensure(0, 0, 2000*mib)
	has(500*mib, 100*mib) // it was set, to as much as its share
	by := info(t, g, streams.EventStream).Config
	by.MaxBytes = 20 * mib
	_, err = g.JS.UpdateStream(g.Ctx, by)
	require.NoError(t, err)
	ensure(0, 0, 2000*mib)
	has(20*mib, 100*mib) // it was changed by hand
	ensure(4<<10, 1<<20, 100*mib)
	has(4<<10, 1<<20)
	require.Less(t, info(t, g, streams.EventStream).State.Msgs, uint64(5), "the oldest go")
	ensure(0, 0, 1000*mib)
	has(4<<10, 1<<20) // it was set
	ensure(0, 0, 0)
	has(4<<10, 1<<20)
}
