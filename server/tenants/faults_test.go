package tenants_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
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
	w := setup(t, 30, "killed")
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
			w := setup(t, 400, tenant)
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
			retried := false
			w.until(tenant, "move", "it is ready", func(state string, _ map[string]any) bool {
				if state == "failed" && !retried { // on a busy machine, the database comes back later than the second attempt, which is the last one
					retried = true
					_, _ = w.Do("POST", path(tenant, "move")+"/retry", "")
				}
				return state == "ready"
			})
			databasetest.Same(t, w.source, w.target(tenant), tenant)
			require.Equal(t, before, databasetest.Everything(t, w.source))
			w.agrees(tenant, "ready")
			w.audited(tenant, "created database, created fence, created runtime")
		})
	}
}

// A copy that is paused stands, with what it has copied, until it is resumed.
func TestACopyIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	w := setup(t, 400, "resting")
	before := databasetest.Everything(t, w.source)
	w.Config.Tenants.Rate = "40KiB"
	w.Start()
	w.OK("POST", path("resting", "move")+"/request", `{}`)
	w.until("resting", "move", "rows are copied", func(state string, data map[string]any) bool {
		return state == "migrating_data" && data["progress"] != nil
	})
	w.OK("POST", path("resting", "move")+"/pause", "")
	require.Eventually(t, func() bool {
		_, v := w.Do("GET", path("resting", "move")+"/events?limit=500", "")
		return strings.Contains(fmt.Sprint(v), "provisioning.db.halted")
	}, waitFor, tick, "what was under way has ended")
	ranges := func() string {
		return databasetest.Ask(t, w.target("resting"), `select count(done_at) || ' of ' || count(*) || ' until ' || max(done_at) from instar.range`)
	}
	require.Eventually(t, func() bool { // whoever ends a connection does not wait for its end
		return databasetest.Ask(t, w.target("resting"), `select count(*)::text from pg_stat_activity where datname = current_database() and application_name like 'instar % default.resting.move'`) == "0"
	}, waitFor, tick)
	copied := ranges()
	require.NotEqual(t, "0", databasetest.Ask(t, w.source, `select count(*)::text from pg_trigger where tgname like 'instar%'`), "its writers wait")
	w.Kill()
	w.Config.Tenants.Rate = ""
	w.Start()
	state, _ := w.seen("resting", "move")
	require.Equal(t, "migrating_data", state)
	require.Equal(t, copied, ranges(), "a server that begins leaves it paused")
	w.OK("POST", path("resting", "move")+"/resume", "")
	w.ends("resting", "move", "ready")
	databasetest.Same(t, w.source, w.target("resting"), "resting")
	require.Equal(t, before, databasetest.Everything(t, w.source))
	w.agrees("resting", "ready")
	w.audited("resting", "created database, created fence, created runtime")
}

// A copy that has failed is held behind the fence, and its rollback leaves nothing and lets the tenant write.
func TestAFailedCopyIsRolledBack(t *testing.T) {
	t.Parallel()
	w := setup(t, 20, "refused")
	databasetest.Exec(t, w.source, databasetest.Refused)
	before := databasetest.Everything(t, w.source)
	w.Start()
	w.OK("POST", path("refused", "move")+"/request", `{}`)
	require.Equal(t, "migrating_data", w.ends("refused", "move", "failed")["failedFrom"])
	write := func() error {
		_, err := databasetest.Open(t, w.source).Exec(t.Context(), `update public.settings set value = value where enterprise_id = 'refused'`)
		return err
	}
	require.Equal(t, pg.ReadOnly, pg.State(write()))
	w.OK("POST", path("refused", "move")+"/rollback", `{}`)
	w.ends("refused", "move", "rolled_back")
	require.NoError(t, write())
	w.clean("refused")
	require.Equal(t, before, databasetest.Everything(t, w.source))
	require.Equal(t, "migrating_data", w.agrees("refused", "rolled_back").FailedFrom)
	w.audited("refused", "created database, deleted database, deleted fence")
}

// Passwords of a tenant, also one that was rotated, are nowhere in the clear: not in what the server tells and logs, not in its files (streams and buckets), not in dumps of the shared database, of the tenant's,
// of the register and of the roles.
func TestNoPasswordIsStoredInTheClear(t *testing.T) {
	t.Parallel()
	name := "silent" + strings.ToLower(rand.Text()[:8]) // the control: it goes the same ways in the clear
	w := setup(t, 5, name)
	var log bytes.Buffer
	w.Log, w.Config.Log.Level = &log, "debug"
	w.Start()
	told := map[string]any{"requested": w.OK("POST", path(name, "move")+"/request", `{"enterpriseId":"`+name+`"}`)}
	first := w.ends(name, "move", "ready")
	w.OK("POST", path(name, "move")+"/rotate", "")
	second := w.until(name, "move", "its password is new", func(_ string, data map[string]any) bool { return data["rotatedAt"] != nil })
	told["first"], told["second"] = first, second
	for _, at := range []string{path(name, "move") + "/events?limit=500", "/v1/audit?limit=500&tenant=" + name} {
		_, told[at] = w.Do("GET", at, "")
	}
	text, err := json.Marshal(told)
	require.NoError(t, err)
	places := map[string]string{"what it tells": string(text)}
	w.Kill()
	places["its log"] = log.String()
	require.Contains(t, places["its log"], w.Config.Tenants.Keys, "it tells the configuration, which has addresses with passwords")
	require.NoError(t, filepath.WalkDir(w.Config.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		places[path] = string(text)
		return err
	}))
	dumps := map[string]string{
		"the shared database": dump(t, "pg_dump", w.source.DSN), "the tenant's database": dump(t, "pg_dump", own.Cluster(t).DSN("tenant_"+name)),
		"the register": dump(t, "pg_dump", own.Cluster(t).DSN("postgres")), "the roles": dump(t, "pg_dumpall", own.Cluster(t).DSN("postgres"), "--roles-only"),
	}
	maps.Copy(places, dumps)

	raw, err := os.ReadFile(w.Config.Tenants.Keys)
	require.NoError(t, err)
	keys, err := secret.Open(raw)
	require.NoError(t, err)
	for _, data := range []map[string]any{first, second} {
		sealed := data["database"].(map[string]any)["credentials"].(string)
		c, err := keys.Unseal(sealed, name, "tenant_"+name)
		require.NoError(t, err)
		require.NotEmpty(t, c.Password)
		require.Empty(t, having(places, c.Password), "a password in the clear")
		require.Contains(t, having(places, sealed), ".blk", "files of streams have the sealed credentials, so they were read as they are")
	}
	require.Contains(t, dumps["the register"], second["database"].(map[string]any)["credentials"])
	require.Contains(t, dumps["the roles"], "SCRAM-SHA-256$")
	found := having(places, name)
	for _, place := range append(slices.Collect(maps.Keys(dumps)), "what it tells", ".blk") {
		require.Contains(t, found, place, "a secret that is there is found")
	}
}

// having are the places that have a text; files are told by what their names end with.
func having(places map[string]string, text string) (found []string) {
	for place, all := range places {
		if strings.Contains(all, text) {
			found = append(found, cmp.Or(filepath.Ext(place), place))
		}
	}
	return found
}

// dump is what a program of Postgres says of a database.
func dump(t *testing.T, program, dsn string, arguments ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(own.Cluster(t).Bin(), program), append(arguments, "--dbname", dsn)...).Output()
	require.NoError(t, err, program)
	return string(out)
}
