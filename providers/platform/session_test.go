//go:build linux

package platform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	sessions "github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// looker is the provider of databases as the performer knows it.
type looker struct{ *database.Provider }

func (l looker) Look(ctx context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	return l.Provider.Look(ctx, e)
}

// life drives the machine and the provider, with a real Postgres, without an engine. Every task is performed twice.
type life struct {
	*world
	source pg.Address
	db     *database.Provider
	e      machines.Entity
	seq    uint64
	all    strings.Builder // everything that was stored or emitted
	fails  string          // an effect that does all its work, and then has failed
}

func begin(t *testing.T, suite *postgres.Suite, tenants ...string) *life {
	t.Helper()
	w := setup(t)
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	keys, err := secret.Open(set)
	require.NoError(t, err)
	source := databasetest.Shared(t, suite, 20, append(tenants, "acme", "other")...)
	l := &life{world: w, source: source, e: machine.Machine.New("default", "acme", "own")}
	l.db = &database.Provider{
		Source: source, Server: &admin.Server{Name: "t1", DSN: suite.Cluster(t).DSN("postgres")}, Catalogue: databasetest.Catalogue, Migrations: databasetest.Migrations(), Keys: keys,
	}
	w.Databases = looker{l.db}
	return l
}

func (l *life) step(in machines.Input) {
	l.t.Helper()
	l.seq++
	in.Seq, in.ID, in.Time = l.seq, fmt.Sprint(l.seq), time.Now().UTC()
	next, out, err := machine.Machine.Step(l.e, in)
	require.NoError(l.t, err, "%s while %s", in.Command, l.e.State)
	l.e = next
	stored, err := json.Marshal(next)
	require.NoError(l.t, err)
	l.all.Write(stored)
	for _, m := range out.Messages {
		l.all.Write(m.Body)
	}
	for _, m := range out.Messages {
		if m.Kind == machines.KindEffect {
			l.do(m)
		}
	}
}

func (l *life) do(m machines.Message) {
	l.t.Helper()
	var t machines.Task
	require.NoError(l.t, json.Unmarshal(m.Body, &t))
	fx, _ := machine.Machine.Effect(t.Effect)
	again := l.Perform(l.t.Context(), t)
	result := l.Perform(l.t.Context(), t)
	require.Equal(l.t, again.Failure == nil, result.Failure == nil, "%s: %v, %v", t.Effect, again.Failure, result.Failure)
	if t.Effect == l.fails {
		result.Failure = &machines.Failure{Code: "x", Message: "its result was lost"}
	}
	if result.Failure != nil {
		body, err := json.Marshal(machines.EffectFailed{Effect: t.Effect, Attempt: t.Attempt, Failure: *result.Failure})
		require.NoError(l.t, err)
		l.step(machines.Input{Command: machines.CommandFailed, Body: body})
		return
	}
	data, err := json.Marshal(result.Data)
	require.NoError(l.t, err)
	body, err := json.Marshal(machines.Report{Attempt: t.Attempt, Data: data})
	require.NoError(l.t, err)
	l.step(machines.Input{Command: fx.Done, Body: body})
}

func (l *life) command(name, body string) {
	l.t.Helper()
	l.step(machines.Input{Command: name, Body: json.RawMessage(body)})
}

func (l *life) data() *machine.Data { return l.e.Data.(*machine.Data) }

func (l *life) runtime() string {
	return databasetest.Ask(l.t, l.source, `select coalesce((select isolation_mode || ' ' || coalesce(database_name, '') || ' ' || status from public.tenant_runtime where enterprise_id = 'acme'), 'none')`)
}

// A tenant with rows gets its instance, another version, one that it cannot have, and is closed.
func TestALifeOfATenant(t *testing.T) {
	l := begin(t, &first)
	l.db.Told = func(context.Context, database.Route) error { return fmt.Errorf("nobody acknowledges the epoch") }
	l.command("request", `{"data":"shared","customDomain":"shop.acme.test","onFailure":"rollback"}`)
	require.Equal(t, machine.Failed, l.e.State)
	require.Equal(t, "dedicated_db tenant_acme active", l.runtime(), "the switch has moved it")
	l.db.Told = nil
	l.command("retry", ``)
	require.Equal(t, machine.Ready, l.e.State, "%v", l.e.LastError)
	require.Equal(t, "dedicated_db tenant_acme active", l.runtime())
	require.Equal(t, databasetest.Rows(t, l.source, "orders", "acme"), databasetest.Rows(t, l.db.Server.Address("tenant_acme", ""), "orders", ""))
	require.Equal(t, "1.0 acme tenant_acme tenant-acme acme.example.test", l.says())
	for _, e := range l.data().Ledger {
		require.Equal(t, session.Created, e.State, "%+v", e)
	}

	// A store that was restored has the session at its beginning: what it does touches nothing of the tenant that is served.
	now := l.e
	l.e = machine.Machine.New("default", "acme", "own")
	l.e.Version = now.Version + 10
	l.command("request", `{"onFailure":"rollback"}`)
	require.Equal(t, session.RollbackStuck, l.data().Phase, "%s: %v", l.e.State, l.e.LastError)
	require.Contains(t, l.data().Undone[0].Error, "resolve as ready")
	require.Equal(t, "1.0 acme tenant_acme tenant-acme acme.example.test", l.says())
	require.DirExists(t, filepath.Join(l.dir, "tenants", "default.tenant-acme"))
	now.Version = l.e.Version + 10
	l.e = now

	l.command("upgrade", `{"channel":"next","weights":[50,100],"holdSeconds":1}`)
	require.Equal(t, machine.Ready, l.e.State, "%v", l.e.LastError)
	require.Equal(t, "1.1", l.data().Version, "%v", l.e.LastError)
	require.Equal(t, "1.1", l.says()[:3])

	l.Env = map[string]string{"COLOR": "red"}
	l.Secrets = func(string, *sessions.Allocated) (map[string]string, error) {
		return map[string]string{"KEY": "rotated"}, nil
	}
	l.command("upgrade", `{"channel":"next"}`)
	require.Equal(t, "1.1 acme tenant_acme tenant-acme acme.example.test", l.says(), "it has that version")
	l.command("upgrade", `{"channel":"next","redeploy":true,"weights":[100],"holdSeconds":1}`)
	require.Equal(t, machine.Ready, l.e.State, "%v", l.e.LastError)
	require.Equal(t, "1.1 acme tenant_acme tenant-acme acme.example.test rotated red", l.says())
	l.command("upgrade", `{"version":"9"}`)
	require.Equal(t, machine.Ready, l.e.State, "%v", l.e.LastError)
	require.Equal(t, "PREFLIGHT_FAILED", l.e.LastError.Code)
	require.Equal(t, "1.1", l.says()[:3], "the one that serves was not withdrawn")

	l.command("deprovision", `{"tenant":"acme"}`)
	require.Equal(t, machine.Retired, l.e.State, "%+v", l.data().Undone)
	require.Equal(t, "dedicated_db  deprovisioned", l.runtime())
	l.nothing()
	_, err := pg.Connect(t.Context(), l.db.Server.Address("tenant_acme", ""))
	require.Equal(t, pg.NoDatabase, pg.State(err))
	require.NotContains(t, l.all.String(), "postgres://")
}

// What was made before a failure is taken back, and the tenant begins again.
func TestAFailedInstanceIsTakenBackWhole(t *testing.T) {
	l := begin(t, &second)
	before := databasetest.Everything(t, l.source)
	l.Client = nil // whoever asks through the domain panics
	l.Domains = nil
	l.command("request", `{"onFailure":"rollback","customDomain":"shop.acme.test"}`)
	require.Equal(t, machine.RolledBack, l.e.State, "%v %+v", l.e.LastError, l.data().Undone)
	require.Empty(t, l.rows.all["acme.example.test"].Owner)

	l.Channels["stable"] = "sick"
	l.command("request", `{}`)
	require.Equal(t, machine.Deploying, l.e.State, "%v", l.e.LastError)
	require.Equal(t, session.RetryWait, l.data().Phase)
	require.Equal(t, "DEPLOYMENT_UNHEALTHY", l.e.LastError.Code)
	l.command("cancel", ``)
	require.Equal(t, machine.Cancelled, l.e.State, "%+v", l.data().Undone)
	l.nothing()
	require.Equal(t, "none", l.runtime())
	require.Equal(t, before, databasetest.Everything(t, l.source))
	_, err := pg.Connect(t.Context(), l.db.Server.Address("tenant_acme", ""))
	require.Equal(t, pg.NoDatabase, pg.State(err))
}

// What has failed when all its work was done is taken back whole, in the reverse order of the ledger, from every state.
func TestEveryStateIsUndoneInTheReverseOrderOfItsLedger(t *testing.T) {
	var tenants []string
	for _, g := range machine.Stages[1:] {
		tenants = append(tenants, "t-"+g.Effect)
	}
	l := begin(t, &second, tenants...)
	before := databasetest.Everything(t, l.source)
	for _, g := range machine.Stages[1:] {
		l.fails, l.e, l.seq = g.Effect, machine.Machine.New("default", "t-"+g.Effect, "own"), 0
		l.command("request", fmt.Sprintf(`{"data":"shared","customDomain":"shop.%s.test","onFailure":"rollback"}`, g.Effect))
		if g.Firm {
			require.Equal(t, session.Held, l.data().Phase, "%s: %v", g.Effect, l.e.LastError)
			l.command("rollback", `{}`)
		}
		require.Equal(t, machine.RolledBack, l.e.State, "%s: %v %+v", g.Effect, l.e.LastError, l.data().Undone)
		require.Equal(t, g.State, l.data().FailedFrom)
		require.Contains(t, l.e.LastError.Message, "its result was lost")

		ledger := slices.Clone(l.data().Ledger)
		for i := range ledger {
			require.Equal(t, session.Undone, ledger[i].State, "%s: %+v", g.Effect, ledger[i])
			ledger[i].State = session.Created
		}
		var want, got []string
		for _, a := range machine.Undo(ledger) {
			want = append(want, a.Name)
		}
		for _, r := range l.data().Undone {
			require.True(t, r.Done, "%s: %+v", g.Effect, r)
			if slices.Contains(want, r.Action) { // else it is a look before, or what becomes of what was written since
				got = append(got, r.Action)
			}
		}
		require.Equal(t, want, got, g.Effect)

		for host, row := range l.rows.all {
			require.Empty(t, row.Owner, "%s: %s", g.Effect, host)
			require.Nil(t, row.Route, "%s: %s", g.Effect, host)
		}
		l.nothing()
		left, err := filepath.Glob(filepath.Join(l.dir, "tenants", "*"))
		require.NoError(t, err)
		require.Empty(t, left, g.Effect)
		_, err = l.env.JS.ObjectStore(t.Context(), "tenant-t-"+g.Effect)
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound, g.Effect)
		_, err = pg.Connect(t.Context(), l.db.Server.Address("tenant_t_"+g.Effect, ""))
		require.Equal(t, pg.NoDatabase, pg.State(err), g.Effect)
		require.Equal(t, before, databasetest.Everything(t, l.source), g.Effect)
	}
	require.Equal(t, "0", databasetest.Ask(t, l.source, `select count(*)::text from public.tenant_runtime where isolation_mode <> 'shared'`))
}
