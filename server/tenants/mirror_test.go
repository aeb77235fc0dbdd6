package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/servertest"
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

	sealed, unknown := route(7, "tenant_acme", "active"), route(7, "tenant_acme", "active")
	credentials := func() string {
		told, err := routes.Get(t.Context(), "acme")
		require.NoError(t, err)
		var r tenantdb.Route
		require.NoError(t, json.Unmarshal(told.Value(), &r))
		return r.Credentials
	}
	sealed.Credentials = "sealed"
	for _, r := range []database.Route{sealed, unknown} {
		require.NoError(t, m.put(t.Context(), r))
		require.Equal(t, "sealed", credentials(), "who does not know them takes them from nobody")
	}
	sealed.Credentials = "anew"
	require.NoError(t, m.put(t.Context(), sealed))
	require.Equal(t, "anew", credentials())
	require.NoError(t, m.put(t.Context(), route(8, "tenant_acme", "active")))
	require.Empty(t, credentials(), "under another epoch they may be others")
}

// seenOf makes the bucket of acknowledgements.
func seenOf(t *testing.T, e *streamstest.Env) *kv.Bucket[int64] {
	t.Helper()
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, tenantdb.SeenBucket, "", tenantdb.SeenLife, 1))
	seen, err := kv.Open(t.Context(), e.JS, tenantdb.SeenBucket, kv.JSON[int64]())
	require.NoError(t, err)
	return seen
}

func TestARouteIsToldWhenItsResolversHaveSeenIt(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	seen := seenOf(t, e)
	m := &mirror{nc: e.NC, names: e.Names, seen: seen, patience: time.Minute}
	require.NoError(t, m.await(t.Context(), "acme", 2), "nobody resolves it")
	at, err := seen.Put(t.Context(), "acme.one", 1, 0)
	require.NoError(t, err)
	_, err = seen.Put(t.Context(), "acme.two", 2, 0)
	require.NoError(t, err)
	_, err = seen.Put(t.Context(), "other.one", 1, 0)
	require.NoError(t, err)
	require.ErrorContains(t, (&mirror{nc: e.NC, names: e.Names, seen: seen, patience: 3 * time.Second}).await(t.Context(), "acme", 2), "1 resolvers of tenant acme have not acknowledged epoch 2")
	told := make(chan error, 1)
	go func() { told <- m.await(t.Context(), "acme", 2) }()
	_, err = seen.Put(t.Context(), "acme.one", 2, at)
	require.NoError(t, err)
	require.NoError(t, <-told)
	_, err = seen.Put(t.Context(), "acme.dead", 1, 0)
	require.NoError(t, err)
	require.NoError(t, m.await(t.Context(), "acme", 2), "who has died is not waited for")
}

// Where no server could hear acknowledgements for longer than they live, it is not known who lives, and a switch waits until it is.
func TestASwitchWaitsUntilThoseWhoLiveAreKnown(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	seen := seenOf(t, e)
	of := func(grace time.Duration, heard time.Time) *mirror {
		return &mirror{nc: e.NC, names: e.Names, seen: seen, patience: time.Minute, grace: grace, heard: heard}
	}
	silent := of(time.Hour, time.Now().Add(-time.Minute))
	silent.patience = 3 * time.Second
	require.ErrorContains(t, silent.await(t.Context(), "acme", 2), "no server has heard")
	require.ErrorContains(t, silent.await(t.Context(), "acme", 2), "no server has heard", "that it hears now tells nothing of before")
	silent.patience, silent.grace, silent.heard = time.Minute, time.Millisecond, time.Now().Add(-time.Minute)
	require.NoError(t, silent.await(t.Context(), "acme", 2))
	require.NoError(t, of(time.Hour, time.Now()).await(t.Context(), "acme", 2))
	require.NoError(t, of(time.Hour, time.Time{}).await(t.Context(), "acme", 2), "nobody has ever said anything")
}

// Where it cannot be heard and stored who knows where a tenant is, the switch waits for that, and nobody is taken for heard.
func TestASwitchWaitsWhereAcknowledgementsAreNotStored(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	began := time.Now()
	m := &mirror{nc: e.NC, names: e.Names, seen: seenOf(t, e), patience: 3 * time.Second, heard: began}
	refuses := func(why string) {
		t.Helper()
		err := m.await(t.Context(), "acme", 2)
		require.ErrorContains(t, err, why)
		var unheard *database.UnheardError
		require.NotErrorAs(t, err, &unheard, "resolve would go on")
		var later *pg.LaterError
		require.ErrorAs(t, err, &later)
		require.Equal(t, began, m.heard)
	}
	require.NoError(t, e.JS.DeleteStream(t.Context(), streams.BucketStream(tenantdb.SeenBucket)))
	refuses("it cannot be heard who knows where tenants are")
	msg := nats.NewMsg(e.Names.Seen("acme", "one"))
	msg.Data = []byte("1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // where nobody stores it, there may be no answer
	defer cancel()
	require.Contains(t, string(m.acknowledged(ctx, msg)), `"code":503`)
	require.True(t, m.unstored.After(began))
	m.seen = seenOf(t, e)
	m.unstored = time.Now()
	refuses("an acknowledgement was not stored")
	m.patience, m.unstored = time.Minute, time.Now().Add(time.Second-tenantdb.SeenLife/3)
	require.NoError(t, m.await(t.Context(), "acme", 2), "a switch has one attempt: what passes does not fail it")
	m.unstored = time.Now().Add(-tenantdb.SeenLife)
	require.NoError(t, m.await(t.Context(), "acme", 2))
	require.True(t, m.heard.After(began))
}

// unsure is a bucket that says when it did not answer.
type unsure struct {
	jetstream.KeyValue
	failed chan error
}

func (u *unsure) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	e, err := u.KeyValue.Get(ctx, key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		select {
		case u.failed <- err:
		default:
		}
	}
	return e, err
}

// A switch has one attempt. A connection that is away for a time does not fail it: the route is told when it is back, and so is that it was.
func TestASwitchWaitsForNATS(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: t.TempDir(), Listen: fmt.Sprint("127.0.0.1:", servertest.Port(t)), Open: true, Profile: embedded.OS, Log: slog.New(slog.DiscardHandler)}
	server, err := embedded.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	nc, err := streams.Connect(streams.ConnectOptions{URL: "nats://" + o.Listen, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	routes, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "routes"})
	require.NoError(t, err)
	bucket := &unsure{routes, make(chan error, 1)}
	m := &mirror{nc: nc, routes: bucket, seen: seenOf(t, &streamstest.Env{T: t, NC: nc, JS: js}), patience: 3 * time.Second}
	heard, err := nc.SubscribeSync(m.names.Moved("acme"))
	require.NoError(t, err)
	require.NoError(t, server.Shutdown(t.Context()))
	to := database.Route{Enterprise: "acme", Runtime: cutover.Runtime{DatabaseName: "tenant_acme", Status: "active", Epoch: 5}}
	err = m.tell(t.Context(), to)
	require.ErrorContains(t, err, "cannot tell where tenant acme is: the bucket of routes does not answer: ")
	later, _ := pg.Transient(err)
	require.True(t, later, "an undo tries it again")

	m.patience = time.Minute
	<-bucket.failed
	told := make(chan error, 1)
	go func() { told <- m.tell(t.Context(), to) }()
	<-bucket.failed
	server, err = embedded.Start(o)
	require.NoError(t, err)
	require.NoError(t, <-told)
	last, err := m.last(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, to.Runtime, last)
	_, err = heard.NextMsg(time.Minute)
	require.NoError(t, err)
}

// deaf is a bucket whose first answer to an update is lost: as the client, it waits for it until the deadline of its context, or for a while where that has none.
type deaf struct {
	jetstream.KeyValue
	lost bool
}

func (d *deaf) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	at, err := d.KeyValue.Update(ctx, key, value, revision)
	if !d.lost {
		d.lost = true
		if _, has := ctx.Deadline(); !has {
			return 0, nats.ErrTimeout
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return at, err
}

// One answer that is lost does not take all of the time that a switch has to tell where the tenant is.
func TestALostAnswerIsNotWaitedForUntilTheEnd(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	routes, err := e.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "routes"})
	require.NoError(t, err)
	m := &mirror{nc: e.NC, names: e.Names, routes: routes, patience: time.Minute}
	to := database.Route{Enterprise: "acme", Runtime: cutover.Runtime{DatabaseName: "tenant_acme", Status: "active", Epoch: 5}}
	require.NoError(t, m.insist(t.Context(), to))
	m.routes, to.Epoch = &deaf{KeyValue: routes}, 6
	require.NoError(t, m.insist(t.Context(), to))
	last, err := m.last(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, to.Runtime, last)
}

// What is known of those who resolve a tenant may break off while a switch waits for them: it is read anew, and one that has not acknowledged is not passed over.
func TestASwitchGoesOnWaitingWhereTheBucketWasLost(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	seen := seenOf(t, e)
	_, err := seen.Put(t.Context(), "acme.one", 1, 0)
	require.NoError(t, err)
	m := &mirror{nc: e.NC, names: e.Names, seen: seen, patience: time.Minute}
	told := make(chan error, 1)
	go func() { told <- m.await(t.Context(), "acme", 2) }()
	bucket := streams.BucketStream(tenantdb.SeenBucket)
	e.Eventually("it waits", func() bool {
		s, err := e.JS.Stream(t.Context(), bucket)
		return err == nil && s.CachedInfo().State.Consumers > 0
	})
	m.mu.Lock() // it looks again when there is somebody to be seen
	require.NoError(t, e.JS.DeleteStream(t.Context(), bucket))
	seenOf(t, e)
	at, err := seen.Put(t.Context(), "acme.one", 1, 0)
	m.mu.Unlock()
	require.NoError(t, err)
	e.Eventually("it waits again", func() bool {
		s, err := e.JS.Stream(t.Context(), bucket)
		return err == nil && s.CachedInfo().State.Consumers > 0
	})
	require.Empty(t, told)
	_, err = seen.Put(t.Context(), "acme.one", 2, at)
	require.NoError(t, err)
	require.NoError(t, <-told)
}

// What a resolver says is stored as a number under its own key, without its headers, and answered when it is stored. What is no such thing is not stored, and answered with an error.
func TestAcknowledgementsAreStoredByTheServer(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS, Listen: "127.0.0.1:0", Users: []embedded.User{{Name: "app", Password: "secret", Role: embedded.RoleResolve}}})
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, tenantdb.SeenBucket, "", time.Hour, 1))
	stored, err := kv.Open(t.Context(), e.JS, tenantdb.SeenBucket, kv.JSON[int64]())
	require.NoError(t, err)
	_, err = stored.Put(t.Context(), "acme.before", 5, 0)
	require.NoError(t, err)
	m := &mirror{log: slog.New(slog.DiscardHandler), nc: e.NC, names: e.Names, seen: stored}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.notes(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	nc := e.Connect()
	app, err := nats.Connect(e.Server.ClientURL(), nats.UserInfo("app", "secret"))
	require.NoError(t, err)
	t.Cleanup(app.Close)
	say := func(nc *nats.Conn, subject, epoch string) (string, error) {
		msg := nats.NewMsg(subject)
		msg.Data = []byte(epoch)
		msg.Header.Set("Nats-Rollup", "all")
		if nc == app { // it says that it is another one
			msg.Header.Set("Nats-Request-Info", `{"acc":"USER_other"}`)
		}
		answer, err := nc.RequestMsg(msg, time.Minute)
		if err != nil {
			return "", err
		}
		return string(answer.Data), nil
	}
	require.Eventually(t, func() bool { _, err := say(nc, "instar.seen.ACME.one", "7"); return err == nil }, time.Minute, 10*time.Millisecond) // nobody answers before it listens
	for _, c := range []struct {
		nc                  *nats.Conn
		subject, epoch, why string
	}{
		{nc, "instar.seen.acme.before", "4", "older than 5"}, // before it is taken for dead
		{nc, "instar.seen.ACME.one", "6", "older than 7"},
		{nc, "instar.seen.ACME.one", "7", ""},
		{nc, "instar.seen.other.two", "1", ""},
		{app, "instar.seen.ACME.one", "6", ""}, // which is another resolver
		{nc, "instar.seen.acme.x", "-1", "needs an epoch"},
		{nc, "instar.seen.acme.y", "", "needs an epoch"},
		{nc, "instar.seen.acme.z", `{"a":1}`, "needs an epoch"},
		{nc, "instar.seen.acme.a=b", "1", "may hold letters"},
		{nc, "instar.seen.acme." + strings.Repeat("a", 64), "1", "1 to 63 characters"},
	} {
		answer, err := say(c.nc, c.subject, c.epoch)
		require.NoError(t, err, c.subject)
		if c.why == "" {
			require.NotContains(t, answer, `"error"`, c.subject)
		} else {
			require.Contains(t, answer, `"error"`, c.subject)
			require.Contains(t, answer, c.why)
		}
	}
	got := map[string]int64{}
	for entry, err := range stored.List(t.Context(), "") {
		require.NoError(t, err)
		got[entry.Key] = entry.Value
	}
	require.Equal(t, map[string]int64{"ACME.one": 7, "ACME.app=one": 6, "other.two": 1, "acme.before": 5}, got)
}

// One who may acknowledge cannot fill the bucket, nor take the place of another one: a user has so many resolvers of a tenant, and of all, and one that has died makes room.
func TestATenantHasSoManyResolvers(t *testing.T) {
	t.Parallel()
	known, now := resolvers{}, time.Now()
	for i := range maxResolvers {
		require.NoError(t, known.note("acme", fmt.Sprint("r", i), sight{1, now.Add(time.Duration(i))}))
	}
	require.ErrorContains(t, known.note("acme", "new", sight{1, now}), "256 resolvers already")
	require.NoError(t, known.note("acme", "r0", sight{2, now}))
	require.NoError(t, known.note("other", "new", sight{1, now}))
	require.NoError(t, known.note("acme", "app=r0", sight{1, now}), "which is another user")
	later := now.Add(tenantdb.SeenLife + 1)
	require.NoError(t, known.note("acme", "new", sight{1, later}))
	require.Len(t, known.of[group{"acme", ""}], maxResolvers-1, "r0 and r1 have died")
	require.Len(t, known.of[group{"acme", "app"}], 1, "nobody has looked there")
	require.NoError(t, known.note("acme", "r5", sight{0, later.Add(time.Hour)}), "one that was not heard of begins anew")
	require.Equal(t, map[string]int{"": maxResolvers, "app": 1}, known.by)
	known.forget(later.Add(2 * time.Hour))
	require.Empty(t, known.of)
	require.Empty(t, known.by)

	for i := range maxOfUser {
		require.NoError(t, known.note(fmt.Sprint("t", i), "app=one", sight{1, now}))
	}
	require.ErrorContains(t, known.note("acme", "app=one", sight{1, now}), "65536 resolvers already")
	require.NoError(t, known.note("t0", "app=one", sight{2, now}), "one that there is")
	require.NoError(t, known.note("acme", "another=one", sight{1, now}))
	known.forget(later)
	require.NoError(t, known.note("acme", "app=one", sight{1, later}))
}
