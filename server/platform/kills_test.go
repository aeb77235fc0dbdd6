//go:build linux

package platform_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/server/servertest"
	"github.com/bcc94042/instar/streams"
)

// follow is the story of a session of a tenant.
func (w *world) follow(tenant, id string) *servertest.Story {
	w.T.Helper()
	return w.Follow("instar.evt." + machine.Machine.Name + ".default." + tenant + "." + id + ".")
}

// processes are those of releases, with their names, by what their environment says.
func (w *world) processes() map[int]string {
	w.T.Helper()
	all := map[int]string{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(w.T, err)
	for _, path := range files {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte("INSTAR_SITES="+w.Config.Data)) { // it has ended, or is of another test
			continue
		}
		_, after, _ := bytes.Cut(env, []byte("INSTAR_SERVICE="))
		name, _, _ := bytes.Cut(after, []byte{0})
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		require.NoError(w.T, err)
		all[pid] = string(name)
	}
	return all
}

// end ends what a test that has failed has left: it outlives the server.
func (w *world) end() {
	for pid := range w.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

// agrees compares what there is of all tenants with the ledger of the only session that has something, or of one that has nothing any more.
func (w *world) agrees(d *machine.Data) {
	t := w.T
	t.Helper()
	has := map[string][]string{}
	for _, e := range d.Ledger {
		require.NotEqual(t, session.Intended, e.State, "%+v", e)
		if e.State == session.Created {
			has[e.Kind] = append(has[e.Kind], e.Name)
		}
	}
	require.ElementsMatch(t, has[machine.KindApp], slices.Collect(maps.Values(w.processes())), "processes")
	require.Len(t, w.listening(), len(has[machine.KindApp]), "ports with a socket")
	left := func(pattern string) (names []string) {
		paths, err := filepath.Glob(filepath.Join(w.Config.Data, "platform", pattern))
		require.NoError(t, err)
		for _, path := range paths {
			names = append(names, strings.TrimPrefix(filepath.Base(path), "default."))
		}
		return names
	}
	var tenants []string
	for _, name := range has[machine.KindInstance] {
		tenants = append(tenants, name, name+".owner")
	}
	require.ElementsMatch(t, tenants, left("tenants/*"), "directories, each with a mark beside it")
	require.Len(t, left("releases/*/home"), len(has[machine.KindApp]), "directories of releases")

	var databases []string
	for name := range strings.FieldsSeq(databasetest.Ask(t, pg.Address{DSN: own.Cluster(t).DSN("postgres"), Database: "postgres"}, `select coalesce(string_agg(datname, ' '), '') from pg_database where datname like 'tenant\_%' and datallowconn`)) {
		databases = append(databases, name)
	}
	require.ElementsMatch(t, has[database.KindDatabase], databases, "databases")

	js := w.jetStream()
	var buckets []string
	for name := range js.StreamNames(t.Context()).Name() {
		if bucket, ok := strings.CutPrefix(name, "OBJ_tenant-"); ok {
			buckets = append(buckets, "tenant-"+bucket)
		}
	}
	require.ElementsMatch(t, has[machine.KindStorage], buckets, "buckets")
	require.ElementsMatch(t, has[machine.KindApp], w.keys(js), "keys to buckets")
	w.agreesOutside(js, d, has)
}

// agreesOutside compares what is seen from outside: names, where they lead, and certificates.
func (w *world) agreesOutside(js jetstream.JetStream, d *machine.Data, has map[string][]string) {
	t := w.T
	t.Helper()
	table, err := js.KeyValue(t.Context(), "domain_routes")
	require.NoError(t, err)
	keys, err := table.Keys(t.Context())
	require.NoError(t, err)
	var slugs, routes []string
	for _, host := range keys {
		value, err := table.Get(t.Context(), host)
		require.NoError(t, err)
		var row domain.Row
		require.NoError(t, json.Unmarshal(value.Value(), &row))
		slug, ours := strings.CutSuffix(host, ".apps.example.test")
		if ours && row.Owner != "" {
			slugs = append(slugs, slug)
		}
		if ours && row.Route != nil {
			routes = append(routes, host)
			require.Len(t, row.Route.Targets, 1)
			require.Equal(t, d.App.Address, row.Route.Targets[0].Address)
		}
	}
	require.ElementsMatch(t, has[machine.KindSlug], slugs, "slugs")
	require.ElementsMatch(t, has[machine.KindRoute], routes, "routes")
	stored, _, err := streams.Subjects(t.Context(), js.Conn(), streams.BucketStream("certificates"), ">", 0)
	require.NoError(t, err)
	maps.DeleteFunc(stored, func(key string, _ uint64) bool { return !strings.HasSuffix(key, "=2Ecrt") })
	require.Len(t, stored, len(has[machine.KindCert]), "certificates: %v", stored)
}

// listening are the ports of the range on which somebody listens.
func (w *world) listening() (ports []int) {
	var first, last int
	_, err := fmt.Sscanf(w.Config.Platform.Ports, "%d-%d", &first, &last)
	require.NoError(w.T, err)
	for port := first; port <= last; port++ {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			require.ErrorIs(w.T, err, syscall.ECONNREFUSED)
			continue
		}
		ports = append(ports, port)
		require.NoError(w.T, c.Close())
	}
	return ports
}

// kill -9 of the server at each step of a session, of an upgrade, of one that is withdrawn, of a cancel and of the end of a tenant: what there is is what the ledger says.
func TestKillsAtEveryStep(t *testing.T) {
	if os.Getenv("INSTAR_KILLS") == "" {
		t.Skip("it takes minutes: make test-kills")
	}
	w := setup(t, "21200-21299")
	w.Config.Platform.Export = t.TempDir()
	w.Start()
	s, kills := w.follow("acme", "own"), 0
	rows := databasetest.Ask(t, w.source, `select count(*)::text from public.settings where enterprise_id = 'acme'`)
	has := func(d *machine.Data, text string) {
		t.Helper()
		w.agrees(d)
		got, err := w.open("acme.apps.example.test")
		require.NoError(t, err)
		require.Equal(t, text, got)
	}
	w.send("acme", "own", "request", `{"data":"shared","customDomain":"shop.acme.test"}`)
	s.Killed(machine.EventReady,
		machine.EventPlanning, machine.EventAllocating, machine.EventDatabaseAllocating, machine.EventStorageAllocating, machine.EventDeploymentStarted, machine.EventMigrationsStarted, machine.EventDataStarted,
		machine.EventDomainConfiguring, machine.EventCertIssuing, machine.EventVerificationStarted, machine.EventComparing, machine.EventSwitchingStarted)
	d := w.ends("acme", "own", machine.Ready)
	has(&d, "1.0 acme tenant_acme "+rows)

	w.send("acme", "own", "upgrade", `{"channel":"next","weights":[50,100],"holdSeconds":1}`)
	s.Killed(machine.EventUpgradeCompleted,
		machine.EventPlanning, machine.EventUpgradeStarted, machine.EventMigrationsStarted, machine.EventDeploymentStarted, machine.EventUpgradeShifting, machine.EventUpgradeShifted, machine.EventUpgradePromoting)
	d = w.ends("acme", "own", machine.Ready)
	require.Equal(t, "1.1", d.Version)
	has(&d, "1.1 acme tenant_acme "+rows)

	w.send("acme", "own", "downgrade", `{"weights":[50,100],"holdSeconds":900}`)
	s.Killed(machine.EventUpgradeShifting)
	w.send("acme", "own", "rollback", `{}`)
	s.Killed(machine.EventUpgradeWithdrawn, machine.EventUpgradeWithdrawing)
	d = w.ends("acme", "own", machine.Ready)
	has(&d, "1.1 acme tenant_acme "+rows)

	w.send("acme", "own", "deprovision", `{"tenant":"acme","export":true}`)
	s.Killed(machine.EventRetired, machine.EventRetiring)
	kills += s.Kills
	d = w.ends("acme", "own", machine.Retired)
	w.agrees(&d)
	w.audited("acme", "own")
	exported, err := filepath.Glob(filepath.Join(w.Config.Platform.Export, "default.acme.own-*"))
	require.NoError(t, err)
	require.Len(t, exported, 1, "one that was interrupted has no name")
	require.FileExists(t, filepath.Join(exported[0], "manifest.json"))

	other := w.follow("other", "own")
	w.send("other", "own", "request", `{}`)
	other.Killed(machine.EventVerificationStarted, machine.EventCertIssuing)
	w.send("other", "own", "cancel", `{}`)
	other.Killed(session.EventUndoCompleted, session.EventUndoStarted)
	kills += other.Kills
	d = w.ends("other", "own", machine.Cancelled)
	w.agrees(&d)
	t.Logf("%d kills", kills)
}
