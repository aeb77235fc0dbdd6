package tenants_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/builtin"
	"github.com/bcc94042/instar/server/config"
)

func TestATenantIsMovedOverHTTP(t *testing.T) {
	t.Parallel()
	w := setup(t, 30, "acme", "second")
	before := databasetest.Everything(t, w.source)
	w.Start()
	js, err := jetstream.New(w.connect())
	require.NoError(t, err)
	for bucket, life := range map[string]time.Duration{tenantdb.RoutesBucket: 0, tenantdb.SeenBucket: tenantdb.SeenLife} {
		s, err := js.Stream(t.Context(), "KV_"+bucket)
		require.NoError(t, err)
		require.Equal(t, life, s.CachedInfo().Config.MaxAge)
		require.False(t, s.CachedInfo().Config.AllowDirect, "%s is read from its leader", bucket)
	}
	status, v := w.Do("POST", path("acme", "far")+"/request", `{"enterpriseId":"acme","region":"mars"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
	require.Contains(t, v["detail"], "takes the region mars")

	status, v = w.Do("POST", path("acme", "move")+"/request", `{"enterpriseId":"second"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "another tenant than that of the path: %v", v)
	require.Contains(t, v["detail"], "body.enterpriseId: is second, and the path names the tenant acme")
	status, _ = w.Do("GET", path("acme", "move"), "")
	require.Equal(t, http.StatusNotFound, status, "nothing was stored")

	w.OK("POST", path("acme", "move")+"/request", `{"mode":"offline"}`)
	status, v = w.Do("POST", path("acme", "again")+"/request", `{"enterpriseId":"acme"}`)
	require.Equal(t, http.StatusConflict, status, "a tenant has one session: %v", v)
	require.Contains(t, v["detail"], "session default.acme.move has the tenant acme")

	w.ends("acme", "move", "ready")
	databasetest.Same(t, w.source, w.target("acme"), "acme")
	require.Equal(t, before, databasetest.Everything(t, w.source), "the source keeps what it had")
	require.Equal(t, "tenant_acme", databasetest.Ask(t, w.source, `select database_name from public.tenant_runtime where enterprise_id = 'acme'`))
	status, _ = w.Do("POST", path("acme", "again")+"/request", `{"enterpriseId":"acme"}`)
	require.Equal(t, http.StatusConflict, status, "it is in its own database")

	// A standby that became the source lacks epochs that were told: what it says next is told above them.
	kv, err := js.KeyValue(t.Context(), tenantdb.RoutesBucket)
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "second", []byte(`{"isolationMode":"shared","status":"active","epoch":41}`))
	require.NoError(t, err)
	w.OK("POST", path("second", "move")+"/request", `{"enterpriseId":"second"}`)
	w.ends("second", "move", "ready")
	databasetest.Same(t, w.source, w.target("second"), "second")
	told, err := kv.Get(t.Context(), "second")
	require.NoError(t, err)
	var route tenantdb.Route
	require.NoError(t, json.Unmarshal(told.Value(), &route))
	require.Equal(t, "tenant_second", route.DatabaseName)
	require.Greater(t, route.Epoch, int64(41))
	require.Equal(t, fmt.Sprint(route.Epoch), databasetest.Ask(t, w.source, `select epoch::text from public.tenant_runtime where enterprise_id = 'second'`))

	conn := databasetest.Open(t, w.source)
	write := func() error {
		_, err := conn.Exec(t.Context(), `update public.settings set value = value where enterprise_id = 'second'`)
		return err
	}
	require.Equal(t, "25006", pg.State(write()), "its rows in the shared database are closed")
	databasetest.Exec(t, w.target("second"), `insert into public.settings values ('second', 'since', 'x')`)
	w.OK("POST", path("second", "move")+"/revert", `{}`)
	var e map[string]any
	require.Eventually(t, func() bool {
		_, e = w.Do("GET", path("second", "move"), "")
		return e["state"] == "ready" && e["lastError"] != nil
	}, waitFor, tick, "writes would be lost")
	require.Contains(t, e["lastError"].(map[string]any)["message"], "1 rows of settings")
	w.OK("POST", path("second", "move")+"/revert", `{"discardWrites":true}`)
	w.ends("second", "move", "rolled_back")
	require.NoError(t, write())
	require.Equal(t, before, databasetest.Everything(t, w.source))
	require.Equal(t, "0", databasetest.Ask(t, w.source, `select count(*)::text from public.tenant_runtime where enterprise_id = 'second'`))
	_, err = pg.Connect(t.Context(), w.target("second"))
	require.Equal(t, pg.NoDatabase, pg.State(err))
	databasetest.Same(t, w.source, w.target("acme"), "acme")
	w.audited("second", "created database, created fence, created runtime, deleted database, deleted fence, deleted runtime")
	w.audited("acme", "created database, created fence, created runtime")

	w.Kill()
	require.NoError(t, os.Remove(w.Config.Tenants.Keys))
	require.Contains(t, w.Refused(), "tenants.keys is another keyset than before", "the lost keyset is noticed")
}

// audited reads the audit of a tenant when it is as long as the timeline of its session, and compares the changes of resources with what is expected. Each event has one record.
func (w *world) audited(tenant, changes string) {
	w.T.Helper()
	ids := func(path, member string) (ids []string, items []any) {
		_, v := w.Do("GET", path, "")
		items, _ = v["items"].([]any)
		for _, item := range items {
			ids = append(ids, item.(map[string]any)[member].(string))
		}
		slices.Sort(ids)
		return ids, items
	}
	var records []any
	require.Eventually(w.T, func() bool {
		events, _ := ids(path(tenant, "move")+"/events?limit=500", "id")
		recorded, items := ids("/v1/audit?limit=500&tenant="+tenant, "eventId")
		records = items
		return slices.Equal(events, recorded)
	}, waitFor, tick, "the audit has all events")
	var found []string
	for _, item := range records {
		r := item.(map[string]any)
		require.Equal(w.T, tenant, r["target"].(map[string]any)["enterpriseId"])
		if r["eventType"] == machine.EventResourceChanged {
			about := r["resource"].(map[string]any)
			require.Equal(w.T, w.target(tenant).Database, about["id"])
			found = append(found, fmt.Sprint(about["action"], " ", about["type"]))
		}
	}
	slices.Sort(found)
	require.Equal(w.T, changes, strings.Join(found, ", "))
	_, about := ids("/v1/audit?limit=500&resource=database&tenant="+tenant, "eventId")
	for _, item := range about {
		require.Equal(w.T, "database", item.(map[string]any)["resource"].(map[string]any)["type"])
	}
	require.Equal(w.T, len(slices.DeleteFunc(slices.Clone(records), func(item any) bool {
		r, is := item.(map[string]any)["resource"].(map[string]any)
		return !is || r["type"] != "database"
	})), len(about))
	_, elsewhere := ids("/v1/audit?limit=500&namespace=elsewhere&tenant="+tenant, "eventId")
	require.Empty(w.T, elsewhere)
	_, here := ids("/v1/audit?limit=500&namespace=default&tenant="+tenant, "eventId")
	require.Len(w.T, here, len(records))
	_, users := ids("/v1/audit?limit=500&actor=user&tenant="+tenant, "eventId")
	require.NotEmpty(w.T, users)
	require.Less(w.T, len(users), len(records))
}

// A name that no row has is more likely misspelt than new.
func TestATenantWithoutRowsIsMovedOnRequestOnly(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, "somebody")
	w.forget("sombody")
	w.Start()
	w.OK("POST", path("sombody", "move")+"/request", `{}`)
	v := w.until("sombody", "move", "it is failed", func(s string, _ map[string]any) bool { return s == "failed" })
	require.Equal(t, "requested", v["failedFrom"])
	_, e := w.Do("GET", path("sombody", "move"), "")
	require.Contains(t, e["lastError"].(map[string]any)["message"], "no table has a row of the tenant sombody")
	w.OK("POST", path("sombody", "move")+"/rollback", `{}`)
	w.ends("sombody", "move", "rolled_back")
	w.OK("POST", path("sombody", "move")+"/request", `{"allowEmpty":true}`)
	w.ends("sombody", "move", "ready")
}

// The machine is there only where tenants are configured.
func TestWithoutTenantsThereIsNoSuchMachine(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Dev)
	_, err := builtin.Options().For(cfg).Machine(machine.Machine.Name)
	require.Error(t, err)
	require.NoError(t, builtin.Options().For(cfg).Validate(cfg))
	cfg.Tenants.Keys = "keys.json"
	_, err = builtin.Options().For(cfg).Machine(machine.Machine.Name)
	require.NoError(t, err)
}

// The target changes what it is given, so that no comparison holds: everything is taken back by itself.
func TestAFailedVerificationIsRolledBack(t *testing.T) {
	t.Parallel()
	w := setup(t, 20, "crooked")
	before := databasetest.Everything(t, w.source)
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00099_crooked.sql", `-- +goose Up
-- +goose StatementBegin
create function public.bend() returns trigger language plpgsql as $$ begin new.value := 'bent'; return new; end $$;
-- +goose StatementEnd
create trigger bend before insert on public.settings for each row execute function public.bend();
alter table public.settings enable always trigger bend;
`)
	w.Config.Tenants.Migrations = dir
	w.Start()
	w.OK("POST", path("crooked", "move")+"/request", `{"enterpriseId":"crooked","onFailure":"rollback"}`)
	data := w.ends("crooked", "move", "rolled_back")
	require.Equal(t, "verifying", data["failedFrom"])
	_, e := w.Do("GET", path("crooked", "move"), "")
	require.Contains(t, e["lastError"].(map[string]any)["message"], "settings")
	found := e["lastError"].(map[string]any)["details"].(map[string]any)["discrepancies"].([]any)
	require.Len(t, found, 1)
	differs := found[0].(map[string]any)
	require.Equal(t, []any{"settings", "checksum_mismatch"}, []any{differs["table"], differs["type"]})
	require.NotEmpty(t, differs["ranges"])
	require.Equal(t, before, databasetest.Everything(t, w.source))
	require.Equal(t, "0", databasetest.Ask(t, w.source, `select count(*)::text from pg_trigger where tgname like 'instar%'`), "its writers are let in again")
	_, err := pg.Connect(t.Context(), w.target("crooked"))
	require.Equal(t, pg.NoDatabase, pg.State(err), "the database is out of the way")

	w.Kill()
	w.Config.Tenants.Migrations = migrations
	w.Start()
	w.OK("POST", path("crooked", "second")+"/request", `{"enterpriseId":"crooked"}`)
	w.ends("crooked", "second", "ready")
	databasetest.Same(t, w.source, w.target("crooked"), "crooked")
}

// kill -9 of the server in the middle of the copy; the next one goes on where it was.
func TestAKilledServerGoesOn(t *testing.T) {
	t.Parallel()
	w := setup(t, 400, "long")
	w.Config.Tenants.Rate = "40KiB"
	w.Start()
	w.OK("POST", path("long", "move")+"/request", `{"enterpriseId":"long"}`)
	copied := func(data map[string]any) float64 {
		p, _ := data["progress"].(map[string]any)
		rows, _ := p["migratedRows"].(float64)
		return rows
	}
	data := w.until("long", "move", "rows are copied", func(state string, data map[string]any) bool { return state == "migrating_data" && copied(data) > 0 })
	w.Kill()
	done := databasetest.Ask(t, w.target("long"), `select coalesce(min(done_at), 'epoch')::text from instar.range where done_at is not null`)
	total, _ := data["progress"].(map[string]any)["totalRows"].(float64)
	require.Less(t, copied(data), total, "it is in the middle")
	require.Greater(t, data["lastProgressAt"], data["attemptAt"], "the idle limit runs from the last progress")

	w.Config.Tenants.Rate = ""
	w.Start()
	w.ends("long", "move", "ready")
	databasetest.Same(t, w.source, w.target("long"), "long")
	require.Equal(t, done, databasetest.Ask(t, w.target("long"), `select min(done_at)::text from instar.range`), "what was copied stays")
}
