//go:build linux

package platform_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/builtin"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)

// A tenant gets an instance, is opened over TLS, gets another version, and is closed; nothing is left.
func TestATenantGetsAnInstanceAndLeaves(t *testing.T) {
	w := setup(t, "21000-21099")
	w.Config.Platform.Approval, w.Config.Platform.Export = true, t.TempDir()
	w.Config.Platform.Quota = config.PlatformQuota{Namespaces: map[string]int{"default": 1}}
	w.Start()
	w.send("acme", "own", "request", `{"data":"shared","customDomain":"shop.acme.test"}`)
	w.approved("acme", "own")
	for _, other := range []string{path("acme", "second"), "/v1/tenants/acme/database_provisionings/own"} {
		status, v := w.Do("POST", other+"/request", `{}`)
		require.Equal(t, http.StatusConflict, status, "a tenant has one session: %v", v)
		require.Contains(t, v["detail"], "session instance_provisioning default.acme.own has the tenant acme")
	}
	d := w.ends("acme", "own", machine.Ready)
	const host = "acme.apps.example.test"
	require.Equal(t, host, d.PrimaryDomain)
	rows := databasetest.Ask(t, pg.Address{DSN: own.Cluster(t).DSN("postgres"), Database: "tenant_acme"}, `select count(*)::text from public.settings`)
	text, err := w.open(host)
	require.NoError(t, err)
	require.Equal(t, "1.0 acme tenant_acme "+rows, text)
	require.NotEqual(t, "0", rows)
	first := w.store("tenant-acme-r1")
	require.Empty(t, w.opens(first, "acme"))
	require.Equal(t, "NoSuchBucket", w.opens(first, "other"))
	require.Eventually(t, func() bool {
		return strings.Contains(w.written("acme", "own"), `"attempt":"tenant-acme-r1","line":"serves 1.0"`)
	}, waitFor, 10*tick, "what the release writes can be read")
	status, v := w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
	require.Equal(t, http.StatusOK, status, "%v", v)
	require.Equal(t, "pending_dns", v["state"], "nobody has made its records")
	require.Equal(t, "default.acme.shop-acme-test", d.Route.Domain)

	w.named("acme", "shop-acme-test")
	text, err = w.open("shop.acme.test")
	require.NoError(t, err)
	require.Equal(t, "1.0 acme tenant_acme "+rows, text)

	w.send("other", "own", "request", `{}`)
	w.becomes("other", "own", "it has failed", func(state string, _ *machine.Data) bool { return state == machine.Failed })
	_, v = w.Do("GET", path("other", "own"), "")
	require.Equal(t, "QUOTA_EXCEEDED", v["lastError"].(map[string]any)["code"])
	require.Equal(t, "instances in the namespace default: 2 with this one, of at most 1", v["lastError"].(map[string]any)["message"])
	w.send("other", "own", "rollback", `{}`)
	require.Eventually(t, func() bool {
		_, v = w.Do("GET", path("other", "own"), "")
		return v["state"] == machine.RolledBack
	}, waitFor, tick)

	w.send("acme", "own", "upgrade", `{"channel":"next","weights":[50,100],"holdSeconds":1,"approval":true}`)
	w.approved("acme", "own")
	d = w.ends("acme", "own", machine.Ready)
	_, v = w.Do("GET", path("acme", "own"), "")
	require.Equal(t, "1.1", d.Version, "%v", v["lastError"])
	text, err = w.open(host)
	require.NoError(t, err)
	require.Equal(t, "1.1 acme tenant_acme "+rows, text)
	require.Equal(t, "InvalidAccessKeyId", w.opens(first, "acme"), "a key ends with its release")
	require.Empty(t, w.opens(w.store("tenant-acme-r2"), "acme"))
	_, v = w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
	require.Equal(t, "active", v["state"])
	targets := v["data"].(map[string]any)["route"].(map[string]any)["targets"].([]any)
	require.Len(t, targets, 1)
	require.Equal(t, d.App.Address, targets[0].(map[string]any)["address"], "the custom domain follows")
	text, err = w.open("shop.acme.test")
	require.NoError(t, err)
	require.Equal(t, "1.1 acme tenant_acme "+rows, text)

	w.OK("POST", "/v1/tenants/acme/domains/shop-acme-test/remove", "")
	require.Eventually(t, func() bool {
		_, v = w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
		return v["state"] == "removed"
	}, waitFor, tick)
	w.send("acme", "own", "downgrade", `{"weights":[100],"holdSeconds":1}`)
	d = w.ends("acme", "own", machine.Ready)
	require.Equal(t, "1.0", d.Version)
	_, v = w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
	require.Equal(t, "removed", v["state"], "what somebody has removed does not come back with an upgrade")

	last := w.store("tenant-acme-r3")
	require.Empty(t, w.opens(last, "acme"))
	w.send("acme", "own", "deprovision", `{"tenant":"acme","export":true}`)
	d = w.ends("acme", "own", machine.Retired)
	w.exported(rows, d.RetiringAt)
	require.Eventually(t, func() bool { _, err := w.open(host); return err != nil }, waitFor, tick, "it is served no more")
	_, err = pg.Connect(t.Context(), pg.Address{DSN: own.Cluster(t).DSN("postgres"), Database: "tenant_acme"})
	require.Equal(t, pg.NoDatabase, pg.State(err))
	js := w.jetStream()
	_, err = js.Stream(t.Context(), "OBJ_tenant-acme")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	require.Empty(t, w.keys(js))
	require.Equal(t, "InvalidAccessKeyId", w.opens(last, "acme"))
	table, err := js.KeyValue(t.Context(), "domain_routes")
	require.NoError(t, err)
	row, err := table.Get(t.Context(), host)
	require.NoError(t, err)
	require.NotContains(t, string(row.Value()), `"route"`)
	require.NotRegexp(t, `^\{"owner"`, string(row.Value()))
	for _, pattern := range []string{"tenants/*", "releases/*/home"} { // that a release was there is remembered, so that no old task makes it again
		left, err := filepath.Glob(filepath.Join(w.Config.Data, "platform", pattern))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.Eventually(t, func() bool {
		_, v := w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
		return v["state"] == "removed"
	}, waitFor, tick)

	w.audited("acme", "own")

	status, v = w.Do("POST", "/v1/tenants/acme/database_provisionings/own/request", `{"dryRun":true}`)
	require.Less(t, status, 300, "the tenant is free: %v", v)
	require.Eventually(t, func() bool {
		_, v = w.Do("GET", "/v1/tenants/acme/database_provisionings/own", "")
		return v["state"] == "cancelled"
	}, waitFor, tick)
	w.send("acme", "anew", "request", `{}`)
	w.approved("acme", "anew")
	w.ends("acme", "anew", machine.Ready)
	text, err = w.open(host)
	require.NoError(t, err)
	require.Equal(t, "1.0 acme tenant_acme 0", text, "a tenant that was closed begins anew")
	w.send("acme", "anew", "deprovision", `{"tenant":"acme"}`)
	w.ends("acme", "anew", machine.Retired)

	late := `{"host":"shop.acme.test","route":{"targets":[{"address":"127.0.0.1:21099"}]},"labels":{"instar/session":"own","instar/generation":"1"}}`
	status, v = w.Do("POST", "/v1/tenants/acme/domains/shop-acme-test/bind", late)
	require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
	_, err = w.jetStream().PublishMsg(t.Context(), &nats.Msg{ // as the server's that was under way
		Subject: streams.Names{}.Command(domain.Machine.Name, "default.acme.shop-acme-test", domain.CommandBind), Data: []byte(late),
		Header: nats.Header{streams.HeaderID: {streams.CommandID(domain.Machine.Name, "default.acme.shop-acme-test", "late")}, streams.HeaderActor: {"provider"}},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, v := w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
		return v["state"] != "removed"
	}, waitFor, tick, "it is stored")
	w.Kill()
	w.Start()
	require.Eventually(t, func() bool {
		_, v := w.Do("GET", "/v1/tenants/acme/domains/shop-acme-test", "")
		return v["state"] == "removed"
	}, waitFor, tick, "a domain that its session had taken back is removed")
}

// named makes the records that a domain of a tenant needs, and waits until it is served.
func (w *world) named(tenant, id string) {
	w.T.Helper()
	at := "/v1/tenants/" + tenant + "/domains/" + id
	_, v := w.Do("GET", at, "")
	raw, err := json.Marshal(v["data"])
	require.NoError(w.T, err)
	var d domain.Data
	require.NoError(w.T, json.Unmarshal(raw, &d))
	for _, r := range d.Records {
		w.names.set(r)
	}
	w.OK("POST", at+"/retry", "")
	require.Eventually(w.T, func() bool {
		_, v = w.Do("GET", at, "")
		return v["state"] == domain.Active
	}, waitFor, tick, "it is active: %v", v)
}

// approved approves what waits for it.
func (w *world) approved(tenant, id string) {
	w.T.Helper()
	w.becomes(tenant, id, "it waits for approve", func(_ string, d *machine.Data) bool { return d.Phase == session.WaitingApproval })
	w.send(tenant, id, "approve", `{}`)
}

// exported says that there is one export, of everything, by the name of when the tenant began to be closed.
func (w *world) exported(rows string, at time.Time) {
	w.T.Helper()
	found, err := filepath.Glob(filepath.Join(w.Config.Platform.Export, "default.acme.own-*", "manifest.json"))
	require.NoError(w.T, err)
	require.Len(w.T, found, 1)
	require.Equal(w.T, "default.acme.own-"+at.UTC().Format("20060102T150405Z"), filepath.Base(filepath.Dir(found[0])))
	text, err := os.ReadFile(found[0])
	require.NoError(w.T, err)
	require.Contains(w.T, string(text), fmt.Sprintf("\"name\": \"public.settings\",\n      \"file\": \"database/public.settings.csv\",\n      \"rows\": %s,\n", rows))
	logo, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), "bucket", "logo"))
	require.NoError(w.T, err)
	require.Equal(w.T, "an image", string(logo))
}

// audited waits until each event of a session has a record in the audit, and no other event has one.
func (w *world) audited(tenant, id string) {
	w.T.Helper()
	ids := func(path, member string) (ids []string) {
		_, v := w.Do("GET", path, "")
		items, _ := v["items"].([]any)
		for _, item := range items {
			ids = append(ids, item.(map[string]any)[member].(string))
		}
		slices.Sort(ids)
		return ids
	}
	var events, recorded []string
	require.Eventually(w.T, func() bool {
		events, recorded = ids(path(tenant, id)+"/events?limit=500", "id"), ids("/v1/audit?limit=500&tenant="+tenant, "eventId")
		return len(events) > 0 && slices.Equal(events, recorded)
	}, waitFor, tick, "the audit has all events")
}

func (w *world) jetStream() jetstream.JetStream {
	w.T.Helper()
	nc, err := nats.Connect(w.Config.NATS.Listen)
	require.NoError(w.T, err)
	w.T.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(w.T, err)
	return js
}

// What it serves ends when it is told to stop, also a request of which nobody sends the rest.
func TestTheServerStops(t *testing.T) {
	t.Parallel()
	w := setup(t, "21900-21999")
	w.Start()
	c, err := net.Dial("tcp", w.Config.Platform.Storage.Listen)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "PUT /tenant-acme/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
	w.Stop()
}

// kill -9 of the server while the application starts; the next one goes on with that process.
func TestAKilledServerGoesOnWithTheReleaseThatStarts(t *testing.T) {
	w := setup(t, "21100-21199")
	gate := t.TempDir()
	w.Config.Platform.Env["GATE"] = gate
	w.Start()
	w.send("other", "own", "request", `{}`)
	w.becomes("other", "own", "it is being deployed", func(state string, d *machine.Data) bool {
		begun, err := os.ReadDir(gate)
		return state == machine.Deploying && d.Phase == session.Executing && err == nil && len(begun) == 1
	})
	table, err := w.jetStream().KeyValue(t.Context(), "domain_routes")
	require.NoError(t, err)
	_, err = table.PutString(t.Context(), "ghost.apps.example.test", `{"owner":"instance_provisioning/default.ghost.own","fence":7,"route":{"targets":[{"address":"127.0.0.1:21199"}]}}`)
	require.NoError(t, err)
	w.Kill()
	w.Start()
	table, err = w.jetStream().KeyValue(t.Context(), "domain_routes")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		row, err := table.Get(t.Context(), "ghost.apps.example.test")
		return err == nil && string(row.Value()) == `{"past":[{"owner":"instance_provisioning/default.ghost.own","fence":7}]}`
	}, waitFor, tick, "a slug whose session is gone is given free")
	require.NoError(t, os.WriteFile(filepath.Join(gate, "open"), nil, 0o600))
	app := w.ends("other", "own", machine.Ready).App.Address
	text, err := w.open("other.apps.example.test")
	require.NoError(t, err)
	require.Equal(t, "1.0 other tenant_other 0", text)
	begun, err := os.ReadDir(gate)
	require.NoError(t, err)
	require.Len(t, begun, 2, "one process, and the gate")
	w.send("other", "own", "deprovision", `{"tenant":"other"}`)
	w.ends("other", "own", machine.Retired)
	_, err = net.Dial("tcp", app)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// The machine is there only where instances are configured.
func TestWithoutADomainThereIsNoSuchMachine(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Dev)
	_, err := builtin.Options().For(cfg).Machine(machine.Machine.Name)
	require.Error(t, err)
	require.NoError(t, builtin.Options().For(cfg).Validate(cfg))
	cfg.Platform.Domain = "apps.example.test"
	_, err = builtin.Options().For(cfg).Machine(machine.Machine.Name)
	require.NoError(t, err)
}
