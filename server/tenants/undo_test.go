package tenants_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/servertest"
)

// clean requires that nothing of a tenant's session is left, but what was put aside.
func (w *world) clean(tenant string) {
	w.T.Helper()
	require.Equal(w.T, "0", databasetest.Ask(w.T, w.source, `select count(*)::text from pg_trigger where tgname like 'instar%'`), "fences")
	require.Equal(w.T, "0", databasetest.Ask(w.T, w.source, `select count(*)::text from pg_publication`), "publications")
	require.Equal(w.T, "0", databasetest.Ask(w.T, w.source, `select count(*)::text from pg_replication_slots where database = current_database()`), "slots")
	_, err := pg.Connect(w.T.Context(), w.target(tenant))
	require.Equal(w.T, pg.NoDatabase, pg.State(err), "its database is out of the way")
}

// requested sends the request of a session, again where nothing was stored, as where a bucket is slow, and returns the status; 0 is no answer. Goroutines may call it.
func requested(session, body string) (status int) {
	for begun := time.Now(); status == 0 || status == http.StatusServiceUnavailable && time.Since(begun) < waitFor; {
		resp, err := http.Post(session+"/request", "application/json", strings.NewReader(body))
		if err != nil {
			return 0
		}
		status = resp.StatusCode
		_ = resp.Body.Close()
	}
	return status
}

// Requests that come at once: one session moves the tenant, and the others are refused, at the door or by the shared database.
func TestOneOfManySessionsHasTheTenant(t *testing.T) {
	t.Parallel()
	w := setup(t, 20, "wanted")
	w.Start()
	var all sync.WaitGroup
	status := make([]int, 5)
	for i := range status {
		all.Go(func() {
			status[i] = requested(w.URL+path("wanted", fmt.Sprint("s", i)), `{"enterpriseId":"wanted","onFailure":"rollback"}`)
		})
	}
	all.Wait()
	var ends []string
	for i, s := range status {
		if s == http.StatusConflict {
			continue
		}
		require.NotZero(t, s, "there was an answer")
		require.Less(t, s, 300)
		w.until("wanted", fmt.Sprint("s", i), "it ends", func(state string, _ map[string]any) bool {
			if state == "ready" || state == "rolled_back" {
				ends = append(ends, state)
				return true
			}
			return false
		})
	}
	require.Len(t, slices.DeleteFunc(slices.Clone(ends), func(s string) bool { return s != "ready" }), 1, "%v", ends)
	databasetest.Same(t, w.source, w.target("wanted"), "wanted")
	require.Equal(t, "1", databasetest.Ask(t, w.source, `select count(*)::text from public.tenant_runtime`))
}

// Two nodes are asked for a session of the same tenant at the same moment: one of the requests is refused, whichever node it came to.
func TestOneOfTwoNodesLetsASessionIn(t *testing.T) {
	t.Parallel()
	const n = 12
	w := setup(t, 1, "early")
	listen := fmt.Sprint("127.0.0.1:", servertest.Port(t))
	startNATS(t, t.TempDir(), listen)
	w.Config.NATS.URL, w.Config.NATS.Listen, w.Config.Node = "nats://"+listen, "", "first"
	w.Start()
	other := servertest.Process{T: t, Config: w.Config}
	other.Config.Data, other.Config.Node = t.TempDir(), "second"
	other.Start()
	for i := range n {
		var both sync.WaitGroup
		var status [2]int
		for j, node := range []*servertest.Process{&w.Process, &other} {
			both.Go(func() {
				status[j] = requested(node.URL+path(fmt.Sprint("early-", i), fmt.Sprint("s", j)), `{"approval":true,"allowEmpty":true}`)
			})
		}
		both.Wait()
		slices.Sort(status[:])
		require.NotZero(t, status[0], "there was an answer")
		require.Less(t, status[0], 300)
		require.Equal(t, http.StatusConflict, status[1], "tenant %d", i)
	}
}

// Cancel comes at each version in turn; where it is too late for that, the tenant is moved. Afterwards there is nothing, or everything.
func TestACancelAtAnyTimeLeavesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, 20, "undecided")
	before := databasetest.Everything(t, w.source)
	w.Start()
	version, last := 0.0, ""
	for after := range 12 {
		w.OK("POST", path("undecided", "move")+"/request", `{"enterpriseId":"undecided"}`)
		begun := version
		state, now := w.changes("undecided", "move", begun)
		for now < begun+float64(after) && state != "ready" {
			state, now = w.changes("undecided", "move", now)
		}
		status, v := w.Do("POST", path("undecided", "move")+"/cancel", "")
		if status == http.StatusConflict { // it is being switched, or was
			w.ends("undecided", "move", "ready")
			last = "ready"
			break
		}
		require.Less(t, status, 300, "%v", v)
		w.ends("undecided", "move", "cancelled")
		w.clean("undecided")
		require.Equal(t, before, databasetest.Everything(t, w.source))
		_, version = w.seen("undecided", "move")
	}
	require.Equal(t, "ready", last)
	databasetest.Same(t, w.source, w.target("undecided"), "undecided")
}
