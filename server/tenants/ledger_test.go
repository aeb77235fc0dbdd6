package tenants_test

import (
	"encoding/json"
	"fmt"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// data is what a session says when it is in a state.
func (w *world) data(tenant, state string) *machine.Data {
	w.T.Helper()
	var d machine.Data
	raw, err := json.Marshal(w.ends(tenant, "move", state))
	require.NoError(w.T, err)
	require.NoError(w.T, json.Unmarshal(raw, &d))
	return &d
}

// agrees compares what there is of a tenant with the ledger of its session. What replicates ends with the switch. No other tenant of the shared database is moved.
func (w *world) agrees(tenant, state string) *machine.Data {
	t, has, d, name := w.T, map[string]bool{}, w.data(tenant, state), w.target(tenant).Database
	t.Helper()
	for _, e := range d.Ledger {
		require.NotEqual(t, session.Intended, e.State, "%+v", e)
		has[e.Kind] = has[e.Kind] || e.State == session.Created
	}
	ask := func(what bool, a pg.Address, sql string, args ...any) {
		t.Helper()
		require.Equal(t, fmt.Sprint(what), databasetest.Ask(t, a, sql, args...), "%s: %s", state, sql)
	}
	server := pg.Address{DSN: own.Cluster(t).DSN("postgres")}
	ask(has[machine.KindDatabase], server, `select exists (select from pg_database where datname = $1 and datallowconn)::text`, name)
	ask(has[machine.KindDatabase], server, `select exists (select from pg_roles where rolname = $1 and rolcanlogin)::text`, name)
	ask(false, server, `select exists (select from pg_subscription s join pg_database d on d.oid = s.subdbid where d.datname like '%' || $1)::text`, name)
	ask(false, w.source, `select exists (select from pg_publication)::text`)
	ask(false, w.source, `select exists (select from pg_replication_slots where database = current_database())::text`)
	ask(has[machine.KindFence], w.source, `select exists (select from pg_trigger where tgname like 'instar\_fence%')::text`)
	ask(has[machine.KindFence], w.source, `select exists (select from pg_proc where proname like 'fence\_%' and pronamespace = to_regnamespace('instar'))::text`)
	if databasetest.Ask(t, w.source, `select coalesce(to_regclass('public.tenant_runtime')::text, 'none')`) != "none" {
		ask(has[machine.KindRuntime], w.source, `select exists (select from public.tenant_runtime where database_name = $1)::text`, name)
	}
	w.recorded(tenant)
	return d
}

// recorded requires that each event of a session has one record.
func (w *world) recorded(tenant string) {
	w.T.Helper()
	require.Eventually(w.T, func() bool {
		var all [2]int
		for i, path := range []string{path(tenant, "move") + "/events?limit=500", "/v1/audit?limit=500&tenant=" + tenant} {
			_, v := w.Do("GET", path, "")
			items, _ := v["items"].([]any)
			all[i] = len(items)
		}
		return all[0] > 0 && all[0] == all[1]
	}, waitFor, tick, "the audit has all events, once")
}

// agrees is that of the tenant that is moved, on a server on which nothing else goes on.
func (m *mortal) agrees(state string) *machine.Data {
	m.T.Helper()
	d := m.world.agrees(m.tenant, state)
	require.Equal(m.T, "false", databasetest.Ask(m.T, pg.Address{DSN: own.Cluster(m.T).DSN("postgres")}, `select exists (select from pg_database where datname like 'instar\_template%' and datallowconn)::text`))
	return d
}
