package tenants

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Under an epoch that was told nothing else is told: a source that has failed over gives it out again.
func TestAnEpochLeadsToOneDatabase(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	routes, err := e.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "routes"})
	require.NoError(t, err)
	m := &mirror{nc: e.NC, names: e.Names, routes: routes}
	route := func(epoch int64, name, status string) database.Route {
		return database.Route{Enterprise: "acme", Runtime: cutover.Runtime{DatabaseName: name, Status: status, Epoch: epoch}}
	}
	require.NoError(t, m.put(t.Context(), route(5, "tenant_acme", "active")))
	require.NoError(t, m.put(t.Context(), route(5, "tenant_acme", "active")), "told again")
	for _, r := range []database.Route{route(5, "shared", "active"), route(4, "shared", "active")} {
		var behind *database.BehindError
		require.ErrorAs(t, m.put(t.Context(), r), &behind)
		require.EqualValues(t, 5, behind.Epoch)
	}
	last, err := m.last(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, route(5, "tenant_acme", "active").Runtime, last)
	last, err = m.last(t.Context(), "other")
	require.NoError(t, err)
	require.Zero(t, last)
	require.NoError(t, m.put(t.Context(), route(6, "shared", "active")))
}

func TestARouteIsToldWhenItsResolversHaveSeenIt(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, "seen", "", tenantdb.SeenLife, 1))
	seen, err := kv.Open(t.Context(), e.JS, "seen", kv.JSON[int64]())
	require.NoError(t, err)
	m := &mirror{seen: seen, patience: time.Minute}
	require.NoError(t, m.await(t.Context(), "acme", 2), "nobody resolves it")
	at, err := seen.Put(t.Context(), "acme.one", 1, 0)
	require.NoError(t, err)
	_, err = seen.Put(t.Context(), "acme.two", 2, 0)
	require.NoError(t, err)
	_, err = seen.Put(t.Context(), "other.one", 1, 0)
	require.NoError(t, err)
	require.ErrorContains(t, (&mirror{seen: seen, patience: 100 * time.Millisecond}).await(t.Context(), "acme", 2), "1 resolvers of tenant acme have not acknowledged epoch 2")
	told := make(chan error, 1)
	go func() { told <- m.await(t.Context(), "acme", 2) }()
	_, err = seen.Put(t.Context(), "acme.one", 2, at)
	require.NoError(t, err)
	require.NoError(t, <-told)
	_, err = seen.Put(t.Context(), "acme.dead", 1, 0)
	require.NoError(t, err)
	require.NoError(t, m.await(t.Context(), "acme", 2), "who has died is not waited for")
}

// What a resolver says is stored as a number under its own key, without its headers, and answered when it is stored. What is no such thing is not stored.
func TestAcknowledgementsAreStoredByTheServer(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, tenantdb.SeenBucket, "", tenantdb.SeenLife, 1))
	m := &mirror{nc: e.NC, names: e.Names}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.notes(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	nc := e.Connect()
	say := func(subject, epoch string) error {
		msg := nats.NewMsg(subject)
		msg.Data = []byte(epoch)
		msg.Header.Set("Nats-Rollup", "all")
		_, err := nc.RequestMsg(msg, 200*time.Millisecond)
		return err
	}
	require.Eventually(t, func() bool { return say("instar.seen.ACME.one", "7") == nil }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { return say("instar.seen.other.two", "1") == nil }, time.Minute, 10*time.Millisecond)
	for subject, epoch := range map[string]string{"instar.seen.acme.x": "-1", "instar.seen.acme.y": "", "instar.seen.acme.z": `{"a":1}`, "instar.seen.ac me.z": "1", "instar.seen.acme.a=b": "1"} {
		require.Error(t, say(subject, epoch), subject)
	}
	seen, err := e.JS.KeyValue(t.Context(), tenantdb.SeenBucket)
	require.NoError(t, err)
	keys, err := seen.Keys(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"ACME.one", "other.two"}, keys)
	one, err := seen.Get(t.Context(), "ACME.one")
	require.NoError(t, err)
	require.Equal(t, "7", string(one.Value()))
}
