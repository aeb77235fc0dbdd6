package tenantdb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

var suite postgres.Suite

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite.Around(m)) }

// world is a bucket, and a Postgres with the shared database.
type world struct {
	*testing.T
	js           jetstream.JetStream
	nc           *nats.Conn
	routes, seen jetstream.KeyValue
	keys         *secret.Keys
	shared       *pgxpool.Config
	db           *tenantdb.DB
	silent       atomic.Value // how tenants begin whose acknowledgements have no answer
	unheard      chan string  // the epochs of those, and of those that are refused
	refused      atomic.Value // a refusal, of those that are refused
}

// refusal is how the server refuses what is said of tenants that begin so.
type refusal struct {
	tenants string
	code    int
	why     string
}

func setup(t *testing.T) *world {
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	w := &world{T: t, nc: env.NC, js: env.JS, unheard: make(chan string, 100)}
	_, err := env.NC.Subscribe(env.Names.Seen("*", "*"), func(m *nats.Msg) { // the server's part
		key, err := env.Names.ParseSeen(m.Subject)
		unheard := func() {
			select {
			case w.unheard <- string(m.Data):
			default: // nobody asks
			}
		}
		if name, _ := w.silent.Load().(string); name != "" && strings.HasPrefix(key, name) {
			unheard()
			return
		}
		if r, _ := w.refused.Load().(refusal); r.tenants != "" && strings.HasPrefix(key, r.tenants) {
			if err := m.Respond(fmt.Appendf(nil, `{"error":{"code":%d,"description":%q}}`, r.code, r.why)); err != nil {
				t.Error(err)
			}
			unheard()
			return
		}
		if err == nil {
			err = env.NC.PublishRequest(streams.BucketSubject(tenantdb.SeenBucket, key), m.Reply, m.Data)
		}
		if err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, err)
	w.routes, err = env.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: tenantdb.RoutesBucket})
	require.NoError(t, err)
	w.seen, err = env.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: tenantdb.SeenBucket, TTL: tenantdb.SeenLife})
	require.NoError(t, err)
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	w.keys, err = secret.Open(set)
	require.NoError(t, err)
	w.shared, err = pgxpool.ParseConfig(suite.Database(t))
	require.NoError(t, err)
	w.db, err = tenantdb.Open(t.Context(), tenantdb.Options{JetStream: env.JS, Keys: w.keys, Shared: w.shared})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.db.Close()) })
	return w
}

// tell stores where a tenant is.
func (w *world) tell(tenant string, r tenantdb.Route) {
	w.Helper()
	value, err := json.Marshal(r)
	require.NoError(w, err)
	_, err = w.routes.Put(w.Context(), tenant, value)
	require.NoError(w, err)
	require.NoError(w, w.nc.Publish(streams.Names{}.Moved(tenant), nil))
}

// own makes a database of a tenant, and the route to it.
func (w *world) own(tenant string, epoch int64) tenantdb.Route {
	w.Helper()
	c, err := pgconn.ParseConfig(suite.Database(w.T))
	require.NoError(w, err)
	sealed, err := w.keys.Seal(secret.Credentials{User: c.User, Password: c.Password}, tenant, c.Database)
	require.NoError(w, err)
	return tenantdb.Route{
		IsolationMode: "dedicated_db", DatabaseHost: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), DatabaseName: c.Database, Status: "active", Epoch: epoch, Credentials: sealed,
	}
}

func (w *world) where(tenant string) string {
	conn, err := w.db.Acquire(w.Context(), tenant)
	if err != nil {
		return err.Error()
	}
	defer conn.Release()
	return conn.Conn().Config().Database
}

// acknowledged is the epoch that the one resolver of a tenant has seen.
func (w *world) acknowledged(tenant string) string {
	keys, err := w.seen.ListKeysFiltered(w.Context(), tenant+".*")
	require.NoError(w, err)
	value := ""
	for key := range keys.Keys() {
		e, err := w.seen.Get(w.Context(), key)
		require.NoError(w, err)
		value += string(e.Value())
	}
	return value
}

const (
	wait = 30 * time.Second
	tick = 10 * time.Millisecond
)

// A name that is no tenant's leads to the shared database, and is not acknowledged; a tenant whose acknowledgement stays without an answer holds up no other.
func TestATenantHoldsUpNoOther(t *testing.T) {
	w := setup(t)
	said := make(chan string, 100)
	_, err := w.nc.Subscribe("instar.>", func(m *nats.Msg) { said <- m.Subject })
	require.NoError(t, err)
	require.NoError(t, w.nc.Flush())
	strange := []string{"ac=me", "a.b", "", "*"}
	for _, name := range strange {
		require.Equal(t, w.shared.ConnConfig.Database, w.where(name))
	}
	w.silent.Store("mute")
	for i := range 20 { // which would take 100 s one after the other
		require.Equal(t, w.shared.ConnConfig.Database, w.where("mute"+strconv.Itoa(i)))
	}
	for subject := ""; !strings.HasPrefix(subject, "instar.seen.mute"); subject = <-said {
		for _, name := range strange {
			require.False(t, strings.HasPrefix(subject, "instar.seen."+name+"."), subject)
		}
	}
	require.Equal(t, w.shared.ConnConfig.Database, w.where("other"))
	require.Eventually(t, func() bool { return w.acknowledged("other") == "0" }, wait, tick)
}

func TestATenantIsFollowed(t *testing.T) {
	w := setup(t)
	require.Equal(t, w.shared.ConnConfig.Database, w.where("acme"), "nobody has moved it")
	require.Eventually(t, func() bool { return w.acknowledged("acme") == "0" }, wait, tick)

	first := w.own("acme", 1)
	w.tell("acme", first)
	require.Eventually(t, func() bool { return w.where("acme") == first.DatabaseName }, wait, tick)
	require.Eventually(t, func() bool { return w.acknowledged("acme") == "1" }, wait, tick)
	require.Equal(t, w.shared.ConnConfig.Database, w.where("other"))

	held, err := w.db.Acquire(t.Context(), "acme")
	require.NoError(t, err)
	second := w.own("acme", 3)
	w.tell("acme", second)
	require.Eventually(t, func() bool { return w.where("acme") == second.DatabaseName }, wait, tick, "a connection that is held does not keep others back")
	require.NoError(t, held.Ping(t.Context()), "and works until it is released")
	held.Release()

	w.tell("acme", first)
	closed := second
	closed.Epoch, closed.Status, closed.DatabaseName = 4, "deprovisioned", ""
	require.Equal(t, second.DatabaseName, w.where("acme"), "an earlier epoch comes too late")
	w.tell("acme", closed)
	require.Eventually(t, func() bool { return w.acknowledged("acme") == "4" }, wait, tick)
	_, err = w.db.Acquire(t.Context(), "acme")
	require.ErrorIs(t, err, tenantdb.ErrClosed)
	require.Equal(t, w.shared.ConnConfig.Database, w.where("other"))
}

// A tenant that was never moved is given the shared database whatever its own status is, and so is one that has come back.
func TestASharedTenantIsNotClosedByItsOwnStatus(t *testing.T) {
	w := setup(t)
	own := w.own("acme", 1)
	own.Status = "suspended"
	w.tell("acme", own)
	require.Eventually(t, func() bool { return strings.Contains(w.where("acme"), tenantdb.ErrClosed.Error()) }, wait, tick)
	w.tell("acme", tenantdb.Route{IsolationMode: "shared", Status: "trial", Epoch: 2})
	require.Eventually(t, func() bool { return w.where("acme") == w.shared.ConnConfig.Database }, wait, tick)
	w.tell("acme", tenantdb.Route{IsolationMode: "shared", Status: "deprovisioned", Epoch: 3})
	require.Eventually(t, func() bool { return strings.Contains(w.where("acme"), tenantdb.ErrClosed.Error()) }, wait, tick)
}

// Without NATS what was known goes on, and it can be seen that it gets old.
func TestWhatIsKnownGetsOldWithoutNATS(t *testing.T) {
	w := setup(t)
	first := w.db.Looked()
	require.WithinDuration(t, time.Now(), first, wait)
	w.tell("acme", tenantdb.Route{IsolationMode: "shared", Status: "active", Epoch: 1})
	require.Eventually(t, func() bool { return w.db.Looked().After(first) }, wait, tick)
	w.nc.Close()
	require.Eventually(t, func() bool { return time.Since(w.db.Looked()) > tenantdb.SeenLife/2 }, wait, tick, "it is looked every third of that")
	require.Equal(t, w.shared.ConnConfig.Database, w.where("acme"))
}

// A tenant whose route is not known is given the shared database, so nobody may be given one before all routes are there, also while the server writes them anew.
func TestAllRoutesAreKnownWhileOthersAreWritten(t *testing.T) {
	w := setup(t)
	name := func(i int) string { return "tenant-" + strconv.Itoa(i%40) }
	for i := range 40 {
		w.tell(name(i), tenantdb.Route{Status: "deprovisioned", Epoch: 1})
	}
	value, err := json.Marshal(tenantdb.Route{Status: "deprovisioned", Epoch: 1})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				_, _ = w.routes.Put(ctx, name(n), value) // it ends with the test
			}
		})
	}
	defer writers.Wait()
	defer stop()
	for range 20 {
		db, err := tenantdb.Open(ctx, tenantdb.Options{JetStream: w.js, Keys: w.keys, Shared: w.shared})
		require.NoError(t, err)
		for i := range 40 {
			_, err := db.Acquire(ctx, name(i))
			require.ErrorIs(t, err, tenantdb.ErrClosed, name(i))
		}
		require.NoError(t, db.Close())
	}
}

// Of an installation that was restored the sequences begin again, and nobody tells who has been moved.
func TestWhatNobodyTellsIsFound(t *testing.T) {
	w := setup(t)
	for epoch := range int64(5) {
		w.tell("acme", tenantdb.Route{Status: "deprovisioned", Epoch: epoch + 1})
	}
	require.Eventually(t, func() bool { return strings.Contains(w.where("acme"), "closed") }, wait, tick)
	require.NoError(t, w.js.DeleteKeyValue(t.Context(), tenantdb.RoutesBucket))
	routes, err := w.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: tenantdb.RoutesBucket})
	require.NoError(t, err)
	own := w.own("acme", 6)
	value, err := json.Marshal(own)
	require.NoError(t, err)
	_, err = routes.PutString(t.Context(), "late", `{"status":"deprovisioned","epoch":1}`)
	require.NoError(t, err)
	_, err = routes.Put(t.Context(), "acme", value)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.where("acme") == own.DatabaseName }, wait, tick)
	require.Contains(t, w.where("late"), "closed")
	require.NoError(t, routes.Purge(t.Context(), "late"))
	w.tell("acme", tenantdb.Route{Status: "deprovisioned", Epoch: 7})
	require.Eventually(t, func() bool { return strings.Contains(w.where("acme"), "closed") }, wait, tick)
	require.Contains(t, w.where("late"), "closed", "who was removed stays where it was")
}

// A DSN that says nothing of TLS, or leaves it open, leads into a tenant's own server as it does into the shared one, also where that is one of several.
func TestAServerWithoutTLSIsEntered(t *testing.T) {
	w := setup(t)
	own := w.own("acme", 1)
	w.tell("acme", own)
	dsn := suite.Database(t)
	several := strings.Replace(dsn, "@", "@localhost:1,", 1)
	for _, shared := range []string{strings.Replace(dsn, "?sslmode=disable", "", 1), strings.Replace(dsn, "=disable", "=prefer", 1), strings.Replace(dsn, "=disable", "=allow", 1), strings.Replace(several, "=disable", "=prefer", 1)} {
		config, err := pgxpool.ParseConfig(shared)
		require.NoError(t, err)
		require.NotEmpty(t, config.ConnConfig.Fallbacks)
		db, err := tenantdb.Open(t.Context(), tenantdb.Options{JetStream: w.js, Keys: w.keys, Shared: config})
		require.NoError(t, err)
		conn, err := db.Acquire(t.Context(), "acme")
		require.NoError(t, err, config.ConnConfig.Fallbacks)
		used := conn.Conn().Config()
		require.Equal(t, own.DatabaseName, used.Database)
		require.Len(t, used.Fallbacks, 1, "with TLS and without")
		require.Equal(t, own.DatabaseHost, net.JoinHostPort(used.Fallbacks[0].Host, strconv.Itoa(int(used.Fallbacks[0].Port))))
		conn.Release()
		require.NoError(t, db.Close())
	}
}

// A socket has no TLS, whatever its DSN says of it. That counts on the way into a tenant's own server, which is none.
func TestASharedSocketSaysHowTLSIsUsedElsewhere(t *testing.T) {
	w := setup(t)
	own := w.own("acme", 1)
	w.tell("acme", own)
	shared := w.shared.ConnConfig
	conn, err := pgconn.Connect(t.Context(), suite.Database(t))
	require.NoError(t, err)
	sockets := conn.Exec(t.Context(), `show unix_socket_directories`)
	results, err := sockets.ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	dir := string(results[0].Rows[0][0])
	for _, form := range []string{
		fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=", dir, shared.Port, shared.User, shared.Password, shared.Database),
		fmt.Sprintf("postgres://%s:%s@/%s?host=%s&port=%d&sslmode=", shared.User, shared.Password, shared.Database, url.QueryEscape(dir), shared.Port),
	} {
		for mode, enters := range map[string]bool{"disable": true, "prefer": true, "require": false, "verify-full": false} {
			config, err := pgxpool.ParseConfig(form + mode)
			require.NoError(t, err)
			require.Nil(t, config.ConnConfig.TLSConfig)
			db, err := tenantdb.Open(t.Context(), tenantdb.Options{JetStream: w.js, Keys: w.keys, Shared: config})
			require.NoError(t, err)
			conn, err := db.Acquire(t.Context(), "other")
			require.NoError(t, err, "the shared one is entered by the socket")
			conn.Release()
			if conn, err = db.Acquire(t.Context(), "acme"); enters {
				require.NoError(t, err, mode)
				require.Equal(t, own.DatabaseName, conn.Conn().Config().Database)
				conn.Release()
			} else {
				require.ErrorContains(t, err, "server refused TLS connection", mode)
			}
			require.NoError(t, db.Close())
		}
	}
}

// What was sealed for one tenant opens for no other, and no error has a password.
func TestCredentialsOfAnotherTenantAreRefused(t *testing.T) {
	w := setup(t)
	r := w.own("acme", 1)
	w.tell("thief", r)
	require.Eventually(t, func() bool { return w.where("thief") != w.shared.ConnConfig.Database }, wait, tick)
	_, err := w.db.Acquire(t.Context(), "thief")
	require.ErrorContains(t, err, "do not open")
}

func TestWithoutABucketItFails(t *testing.T) {
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	_, err := tenantdb.Open(context.WithoutCancel(t.Context()), tenantdb.Options{JetStream: env.JS})
	require.ErrorContains(t, err, "cannot read where tenants are")
}
