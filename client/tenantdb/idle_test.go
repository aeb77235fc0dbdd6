package tenantdb_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/streams"
)

// A tenant that was not acquired for a minute is not acknowledged, nor remembered, until it is acquired again. What is held out of its own database is in use.
func TestWhatIsNotUsedIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	heard, err := w.nc.SubscribeSync(streams.Names{}.Seen("*", "*"))
	require.NoError(t, err)
	next := func() string {
		m, err := heard.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		return strings.Split(m.Subject, ".")[2]
	}
	w.where("shared")
	require.Equal(t, "shared", next())
	w.tell("own", w.own("own", 1))
	require.Eventually(t, func() bool { w.where("own"); return strings.Contains(w.acknowledged("own"), "1") }, 10*time.Second, 10*time.Millisecond)
	held, err := w.db.Acquire(t.Context(), "own")
	require.NoError(t, err)
	drain := func() (tenants []string) {
		require.NoError(t, w.nc.Flush())
		for n, _, _ := heard.Pending(); n > 0; n-- {
			tenants = append(tenants, next())
		}
		return tenants
	}
	require.Eventually(t, func() bool {
		drain()
		w.db.Once(time.Now().Add(2 * time.Minute))
		said := drain()
		return slices.Contains(said, "own") && !slices.Contains(said, "shared")
	}, 10*time.Second, 10*time.Millisecond)
	held.Release()
	require.Eventually(t, func() bool { // it is given back beside
		drain()
		w.db.Once(time.Now().Add(2 * time.Minute))
		return len(drain()) == 0 && w.db.Kept() == 1
	}, 10*time.Second, 10*time.Millisecond, "its pool has a connection that is idle")
	for _, tenant := range []string{"shared", "own"} {
		w.where(tenant)
		for next() != tenant { // it is in use again
		}
	}
}

// What was acknowledged lives on for a while after a tenant was forgotten, and a switch waits for who has said it: so a new epoch is acknowledged, again where that is lost, or the server cannot store it now, until nothing is known of it any more.
func TestANewEpochOfATenantThatWasForgotten(t *testing.T) {
	t.Parallel()
	w := setup(t)
	says := func(epoch string) {
		t.Helper()
		require.Eventually(t, func() bool { return w.acknowledged("acme") == epoch }, 10*time.Second, 10*time.Millisecond)
	}
	tell := func(epoch int64) {
		w.tell("acme", tenantdb.Route{IsolationMode: "shared", Status: "active", Epoch: epoch})
	}
	w.where("acme")
	says("0")
	forgotten := time.Now().Add(2 * time.Minute)
	w.db.Once(forgotten)
	done := func() bool { return w.db.Kept() == 0 } // the answer may come after what it says can be read
	require.Eventually(t, done, 10*time.Second, 10*time.Millisecond)
	tell(1)
	says("1")
	tell(2) // nobody has acquired it since
	says("2")
	w.silent.Store("acme")
	unheard := func(epoch string) {
		t.Helper()
		require.Eventually(t, func() bool {
			select {
			case e := <-w.unheard:
				return e == epoch
			default:
				return false
			}
		}, 10*time.Second, 10*time.Millisecond)
	}
	tell(3)
	unheard("3")
	says("2")
	w.silent.Store("")
	w.db.Once(time.Now())
	says("3")
	refused := func(epoch int64, code int, why string) {
		t.Helper()
		before := w.db.Refused()
		w.refused.Store(refusal{"acme", code, why})
		tell(epoch)
		require.Eventually(t, func() bool { return w.db.Refused() > before && done() }, 10*time.Second, 10*time.Millisecond)
		w.refused.Store(refusal{})
		w.db.Once(time.Now())
	}
	w.refused.Store(refusal{"acme", 503, "it was not stored"})
	tell(4)
	unheard("4")
	w.refused.Store(refusal{})
	w.db.Once(time.Now())
	says("4")
	require.Zero(t, w.db.Refused(), "a switch waits until it is stored")
	refused(5, 400, "there are 65536 resolvers already")
	require.Equal(t, "4", w.acknowledged("acme"), "a switch does not wait for who was refused")
	w.db.Once(time.Now().Add(2 * tenantdb.SeenLife))
	require.Zero(t, w.db.Gone())
}

// What the server refuses is counted and logged, not taken for an acknowledgement that was lost.
func TestRefusedAcknowledgementsAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.refused.Store(refusal{"many", 400, "there are 65536 resolvers already"})
	var lines strings.Builder
	db, err := tenantdb.Open(t.Context(), tenantdb.Options{JetStream: w.js, Keys: w.keys, Shared: w.shared, Log: slog.New(slog.NewTextHandler(&lines, nil))})
	require.NoError(t, err)
	for _, tenant := range []string{"many1", "many2", "few"} {
		conn, err := db.Acquire(t.Context(), tenant)
		require.NoError(t, err)
		conn.Release()
	}
	require.Eventually(t, func() bool { return db.Refused() == 2 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, db.Close())
	require.Equal(t, 1, strings.Count(lines.String(), "there are 65536 resolvers already"), "once a minute")
}
