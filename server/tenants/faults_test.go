package tenants_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/secret"
)

// seen is the state and the version of a session.
func (w *world) seen(tenant, id string) (state string, version float64) {
	w.T.Helper()
	_, v := w.Do("GET", path(tenant, id), "")
	state, _ = v["state"].(string)
	version, _ = v["version"].(float64)
	return state, version
}

// changes waits until the version of a session is above another.
func (w *world) changes(tenant, id string, above float64) (state string, version float64) {
	w.T.Helper()
	require.Eventually(w.T, func() bool { state, version = w.seen(tenant, id); return version > above }, 2*time.Minute, 2*time.Millisecond, "%s %s stays at version %v", tenant, id, above)
	return state, version
}

// The server is killed as soon as each version of the session is seen, so at every boundary of steps.
func TestAKillAfterEachStepLosesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, 30, "killed", "other")
	before := databasetest.Everything(t, w.source)
	w.Start()
	w.OK("POST", path("killed", "move")+"/request", `{"enterpriseId":"killed"}`)
	state, version := w.changes("killed", "move", 0)
	kills := 0
	for ; state != "ready" && kills < 30; kills++ {
		w.Kill()
		w.Start()
		state, version = w.changes("killed", "move", version)
		require.NotEqual(t, "failed", state)
	}
	require.Equal(t, "ready", state)
	require.Greater(t, kills, 2, "it was killed between steps")
	databasetest.Same(t, w.source, w.target("killed"), "killed")
	require.Equal(t, before, databasetest.Everything(t, w.source))
	require.Equal(t, "1 1", databasetest.Ask(t, w.source, `select count(*) || ' ' || max(epoch) from public.tenant_runtime`), "it was switched once")
}

// One Postgres is killed under the copy, that of the tenants' own databases or the shared one; the attempt fails, and the next one goes on. It is not parallel: others would lose their database, too.
func TestAKilledDatabaseIsTriedAgain(t *testing.T) {
	for tenant, of := range map[string]*postgres.Suite{"broken": &own, "orphan": &shared} {
		t.Run(tenant, func(t *testing.T) {
			w := setup(t, 400, tenant, "other")
			before := databasetest.Everything(t, w.source)
			w.Config.Tenants.Rate = "40KiB"
			w.Start()
			w.OK("POST", path(tenant, "move")+"/request", fmt.Sprintf(`{"enterpriseId":%q}`, tenant))
			w.until(tenant, "move", "rows are copied", func(state string, data map[string]any) bool {
				return state == "migrating_data" && data["progress"] != nil
			})
			require.NoError(t, of.Cluster(t).Kill())
			require.NoError(t, of.Cluster(t).Restart(t.Context()))
			data := w.until(tenant, "move", "the attempt has failed", func(_ string, data map[string]any) bool {
				return data["phase"] == "retry_wait" || data["attempt"] == 2.0
			})
			if data["phase"] == "retry_wait" {
				require.NotEmpty(t, data["nextTry"])
			}
			w.ends(tenant, "move", "ready")
			databasetest.Same(t, w.source, w.target(tenant), tenant)
			require.Equal(t, before, databasetest.Everything(t, w.source))
		})
	}
}

// The password of a tenant is nowhere: not in files of the server, not in what it tells, not in the databases.
func TestNoPasswordIsStoredInTheClear(t *testing.T) {
	t.Parallel()
	w := setup(t, 5, "silent")
	w.Start()
	w.OK("POST", path("silent", "move")+"/request", `{"enterpriseId":"silent"}`)
	data := w.ends("silent", "move", "ready")
	raw, err := os.ReadFile(w.Config.Tenants.Keys)
	require.NoError(t, err)
	keys, err := secret.Open(raw)
	require.NoError(t, err)
	sealed := data["database"].(map[string]any)["credentials"].(string)
	c, err := keys.Unseal(sealed, "silent", "tenant_silent")
	require.NoError(t, err)
	require.NotEmpty(t, c.Password)
	_, events := w.Do("GET", path("silent", "move")+"/events?limit=500", "")
	text, err := json.Marshal([]any{data, events})
	require.NoError(t, err)
	require.NotContains(t, string(text), c.Password)
	found := false
	require.NoError(t, filepath.WalkDir(w.Config.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // the server goes on writing
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		found = found || strings.Contains(string(text), sealed)
		require.NotContains(t, string(text), c.Password, path)
		return nil
	}))
	require.True(t, found, "the files have the sealed credentials, so they were read as they are")
}
