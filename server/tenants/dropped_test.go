package tenants_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/tenants"
)

// The database of a tenant that was closed is dropped when its grace period is over, and the audit has that once. It is not parallel: servers of other tests would drop it, and record it in their own audits.
func TestTheAuditHasWhatTheSweepDrops(t *testing.T) {
	w := setup(t, 1, "expired")
	w.Config.Tenants.Grace = time.Millisecond
	w.Start()
	w.OK("POST", path("expired", "move")+"/request", `{}`)
	w.ends("expired", "move", "ready")
	w.OK("POST", path("expired", "move")+"/deprovision", `{"tenant":"expired"}`)
	w.ends("expired", "move", "deprovisioned")
	dropped := func() (list []map[string]any) {
		_, v := w.Do("GET", "/v1/audit?limit=500&resource=database&tenant=expired", "")
		items, _ := v["items"].([]any)
		for _, item := range items {
			if r := item.(map[string]any); r["eventType"] == tenants.EventDropped {
				list = append(list, r)
			}
		}
		return list
	}
	register := pg.Address{DSN: own.Cluster(t).DSN("postgres")}
	for range 2 {
		w.Kill()
		databasetest.Exec(t, register, `insert into instar.template (name, used_at) values ('instar_template_swept', '2020-01-01')`)
		w.Start() // each server sweeps when it begins, templates last
		require.Eventually(t, func() bool {
			return databasetest.Ask(t, register, `select count(*)::text from instar.template where name = 'instar_template_swept'`) == "0"
		}, waitFor, tick)
		require.Eventually(t, func() bool { return len(dropped()) > 0 }, waitFor, tick)
		require.Len(t, dropped(), 1)
	}
	r := dropped()[0]
	require.Equal(t, map[string]any{"type": "database", "id": "tenant_expired", "action": "deleted"}, r["resource"])
	require.Equal(t, "default.expired.move", r["target"].(map[string]any)["sessionId"])
	require.Contains(t, r["metadata"].(map[string]any)["storedAs"], "q_")
}
