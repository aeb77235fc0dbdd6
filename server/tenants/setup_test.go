package tenants_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/servertest"
)

const migrations = "../../providers/database/databasetest/migrations"

// world is a server in a process of its own, with a shared database and a server for those of tenants.
type world struct {
	servertest.Process
	source pg.Address
}

// setup makes databases and a configuration; Start runs the server. Tests that run at the same time have the server for databases of tenants in common: they move tenants of other names. The tenant other is in each
// shared database, and is not moved.
func setup(t *testing.T, orders int, moved ...string) *world {
	t.Helper()
	w := &world{Process: servertest.Process{T: t}, source: databasetest.Shared(t, &shared, orders, append(slices.Clone(moved), "other")...)}
	w.forget(moved...)
	w.Config = config.Defaults(config.Dev)
	w.Config.Data, w.Config.HTTP.Listen, w.Config.NATS.Listen, w.Config.Log.Level = t.TempDir(), "127.0.0.1:0", fmt.Sprint("127.0.0.1:", servertest.Port(t)), "warn"
	w.Config.Tenants = config.Tenants{
		Source:     config.TenantSource{DSN: w.source.DSN},
		Servers:    []config.TenantServer{{Name: "t1", DSN: own.Cluster(t).DSN("postgres")}},
		Keys:       filepath.Join(t.TempDir(), "keys.json"),
		Migrations: migrations,
		Tables:     map[string]config.TenantTable{"countries": {Kind: "reference"}, "log": {Kind: "skip"}},
		RangeRows:  10,
	}
	return w
}

// forget removes what an earlier run of a test has left of the tenants that it moves.
func (w *world) forget(tenants ...string) {
	w.T.Helper()
	for _, tenant := range tenants {
		databasetest.Forget(w.T, pg.Address{DSN: own.Cluster(w.T).DSN("postgres")}, w.target(tenant).Database)
	}
}

func (w *world) target(tenant string) pg.Address {
	return pg.Address{DSN: own.Cluster(w.T).DSN("postgres"), Database: "tenant_" + strings.ReplaceAll(tenant, "-", "_")}
}

// path is that of a session.
func path(tenant, id string) string { return "/v1/tenants/" + tenant + "/database_provisionings/" + id }

// until reads the session until it is as wanted.
func (w *world) until(tenant, id, what string, holds func(state string, data map[string]any) bool) (data map[string]any) {
	w.T.Helper()
	var last map[string]any
	defer func() {
		if w.T.Failed() {
			w.T.Log(last)
		}
	}()
	require.Eventually(w.T, func() bool {
		_, last = w.Do("GET", path(tenant, id), "")
		state, _ := last["state"].(string)
		data, _ = last["data"].(map[string]any)
		return holds(state, data)
	}, 3*time.Minute, 50*time.Millisecond, what)
	return data
}

func (w *world) ends(tenant, id, state string) map[string]any {
	w.T.Helper()
	return w.until(tenant, id, "it is "+state, func(s string, _ map[string]any) bool { return s == state })
}

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)
