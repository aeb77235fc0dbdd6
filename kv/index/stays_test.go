package index

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"
)

func TestStaysAreThoseThatWereSeenFromTheirBeginningToTheirEnd(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	n.Put(t, "things", "ns.old", `{"state":"new","version":1,"since":"2026-01-02T03:04:00Z"}`)
	ix := run(t, n, "things")
	put := func(key, state string, version, second int) {
		t.Helper()
		rev := n.Put(t, "things", key, fmt.Sprintf(`{"state":%q,"version":%d,"since":"2026-01-02T03:04:%02dZ"}`, state, version, second))
		require.NoError(t, ix.Wait(t.Context(), rev))
	}
	put("ns.old", "ready", 2, 7)
	put("ns.a", "new", 1, 0)
	put("ns.a", "new", 2, 0) // a change that is no change of state
	put("ns.a", "ready", 3, 9)
	put("ns.b", "new", 1, 0)
	put("ns.b", "gone", 3, 50) // by way of what was not seen
	put("ns.c", "new", 1, 30)
	put("ns.c", "ready", 2, 29) // by another clock
	require.Equal(t, map[string]Stays{"new": {Count: 3, P50: 7 * time.Second, P95: 9 * time.Second}}, ix.Stays())
}

func TestStaysKeepTheNewest(t *testing.T) {
	t.Parallel()
	ix := New(nil, "b", nil, Options{})
	for range staysKept {
		ix.stays.add("new", int64(time.Hour))
	}
	for i := range staysKept {
		ix.stays.add("new", int64(i+1))
	}
	require.Equal(t, Stays{Count: staysKept, P50: staysKept / 2, P95: staysKept * 95 / 100}, ix.Stays()["new"])
}
