package database_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// faulty is a session whose provider reaches both servers by way of proxies; direct are their own addresses.
type faulty struct {
	*session
	source, target pg.Address
}

// faults are asked of each statement to a server.
type faults = func(sql string) databasetest.Fault

func none(string) databasetest.Fault { return databasetest.None }

func setupFaulty(t *testing.T, tenant string, source, target faults) *faulty {
	t.Helper()
	s := setup(t, tenant)
	f := &faulty{session: s, source: s.p.Source, target: pg.Address{DSN: s.p.Server.DSN}}
	s.p.From = s.p.Source.DSN
	s.p.Source = databasetest.Through(t, s.p.Source, source)
	s.p.Server.DSN = databasetest.Through(t, f.target, target).DSN
	return f
}

// goesOn passes the waits of a session until it holds: when it is in one of the states.
func (f *faulty) goesOn(states ...string) {
	f.t.Helper()
	for range 100 {
		d := f.e.Data.(*machine.Data)
		if slices.Contains(states, f.e.State) {
			return
		}
		require.Equal(f.t, machine.RetryWait, d.Phase, "%s: %v", f.e.State, f.e.LastError)
		f.now = d.NextTry
		f.step(machines.Input{Command: "timed-out", Body: json.RawMessage(`{}`)})
	}
	require.Failf(f.t, "it does not end", "%s: %v", f.e.State, f.e.LastError)
}

// moved requires that the tenant is in its database, whole and once, and that nothing is left of the move.
func (f *faulty) moved(tenant, name string, shared map[string][]string) {
	f.t.Helper()
	require.Equal(f.t, machine.Ready, f.e.State, "%v", f.e.LastError)
	own := pg.Address{DSN: f.target.DSN, Database: name}
	require.Equal(f.t, shared, f.rows(""))
	there := databasetest.Of(f.t, own, "")
	for table, rows := range f.rows(tenant) {
		require.Equal(f.t, rows, there[table], table)
	}
	require.Equal(f.t, "dedicated_db "+name+" 1", f.routing(tenant))
	require.Equal(f.t, "created "+name, databasetest.Ask(f.t, f.target, `select string_agg(state || ' ' || stored_as, ',') from instar.tenant_database where name = $1`, name))
	f.nothingReplicates()
}

// back requires that the tenant is where it was, and nothing of the move is anywhere but what was put aside.
func (f *faulty) back(tenant, name string, shared map[string][]string) {
	f.t.Helper()
	require.Equal(f.t, shared, f.rows(""))
	require.Equal(f.t, "0", databasetest.Ask(f.t, f.source, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
	require.Equal(f.t, "0", databasetest.Ask(f.t, f.target, `select count(*)::text from pg_database where datname = $1`, name))
	require.Equal(f.t, "0", databasetest.Ask(f.t, f.target, `select count(*)::text from pg_stat_activity where usename = $1`, name))
	require.Equal(f.t, "shared", f.routing(tenant))
	f.nothingReplicates()
}

func (f *faulty) nothingReplicates() {
	f.t.Helper()
	require.Equal(f.t, "0 0", databasetest.Ask(f.t, f.source, `select (select count(*) from pg_replication_slots where database = current_database()) || ' ' || (select count(*) from pg_publication)`))
}

func (f *faulty) routing(tenant string) string {
	f.t.Helper()
	if databasetest.Ask(f.t, f.source, `select coalesce(to_regclass('public.tenant_runtime')::text, 'none')`) == "none" {
		return "shared"
	}
	return databasetest.Ask(f.t, f.source, `select coalesce((select isolation_mode || ' ' || database_name || ' ' || epoch from public.tenant_runtime where enterprise_id = $1), 'shared')`, tenant)
}

func (f *faulty) rows(tenant string) map[string][]string {
	f.t.Helper()
	return databasetest.Of(f.t, f.source, tenant)
}

// loses is a network that fails at statements which change something for good, with more between two failures each time, so that every step is hit in many places and ends at last. By turns
// the answer is lost, and the statement itself.
type loses struct {
	mu              sync.Mutex
	on              bool
	n, at, failures int
}

func (l *loses) fault(sql string) databasetest.Fault {
	lasting := slices.ContainsFunc([]string{"commit", "create database", "alter database", "drop database"}, func(s string) bool {
		return strings.HasPrefix(strings.ToLower(strings.TrimSpace(sql)), s)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !lasting || !l.on {
		return databasetest.None
	}
	if l.n++; l.n <= l.at {
		return databasetest.None
	}
	l.failures++
	l.n, l.at = 0, l.at+2
	if l.failures%2 == 0 {
		return databasetest.Cut
	}
	return databasetest.Lost
}

func (l *loses) set(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = on
}

// The server ends after what a tenant has written was brought back, and before it knows that: whoever goes on finds the rows there, and the numbers that they took are not given out again.
func TestSequencesAreAheadOfWhatWasBroughtBack(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var on, through, lost bool
	f := setupFaulty(t, "numbered", func(sql string) databasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		through = on && (through || strings.Contains(sql, "set_config('instar.fence'"))
		if !through || lost || !strings.HasPrefix(strings.ToLower(sql), "commit") {
			return databasetest.None
		}
		lost = true
		return databasetest.Lost
	}, none)
	f.command("request", `{}`)
	require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
	databasetest.Exec(t, pg.Address{DSN: f.target.DSN, Database: "tenant_numbered"}, `insert into public.orders (enterprise_id, total) select 'numbered', i from generate_series(1, 3) i`)
	databasetest.Exec(t, f.source, `alter sequence public.orders_id_seq maxvalue 500`) // which is near
	mu.Lock()
	on = true
	mu.Unlock()
	f.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, f.e.State, "%v", f.e.LastError)
	require.True(t, lost)
	require.Equal(t, "23", databasetest.Ask(t, f.source, `select count(*)::text from public.orders where enterprise_id = 'numbered'`))
	databasetest.Exec(t, f.source, `insert into public.orders (enterprise_id, total) values ('other', 1)`)
}

// The network fails at commits, before or after the server has got them, in every step: what was committed is found, and what was not is done.
func TestANetworkThatFailsAtCommits(t *testing.T) {
	t.Parallel()
	l := &loses{}
	f := setupFaulty(t, "lossy", l.fault, l.fault)
	f.p.Parallel = 0 // a commit is also lost while another table is copied beside it
	shared := f.rows("")
	l.set(true)
	f.command("request", `{"enterpriseId":"lossy","mode":"online"}`)
	f.goesOn(machine.Ready, machine.Failed)
	for f.e.State == machine.Failed {
		require.True(t, f.e.LastError.Retryable, "%v", f.e.LastError)
		f.command("retry", ``)
		f.goesOn(machine.Ready, machine.Failed)
	}
	l.set(false)
	require.Greater(t, l.failures, 5)
	_, err := f.p.Sweep(t.Context()) // the last failure may be in the end of the replication, for which the switch does not wait
	require.NoError(t, err)
	f.moved("lossy", "tenant_lossy", shared)
}

// The same while all of it is taken back.
func TestANetworkThatFailsAtCommitsOfTheUndo(t *testing.T) {
	t.Parallel()
	l := &loses{}
	f := setupFaulty(t, "regret", l.fault, l.fault)
	f.p.Parallel = 0
	shared := f.rows("")
	f.p.Told = func(_ context.Context, r database.Route) error {
		if r.IsolationMode == cutover.Dedicated {
			return errors.New("nobody acknowledges the epoch")
		}
		return nil
	}
	f.command("request", `{"enterpriseId":"regret"}`)
	require.Equal(t, machine.Failed, f.e.State)
	require.NotEqual(t, "shared", f.routing("regret"))
	l.set(true)
	for range 20 {
		if f.e.State != machine.RolledBack {
			f.rollback(`{}`)
		}
	}
	l.set(false)
	require.Equal(t, machine.RolledBack, f.e.State, "%v", f.e.LastError)
	require.Greater(t, l.failures, 2)
	_, err := f.p.Sweep(t.Context()) // the last failure may be in the end of the fence, which lets everybody through
	require.NoError(t, err)
	f.back("regret", "tenant_regret", shared)
}

// The disk of the target is full, before there is a database and in the middle of the copy: the session waits, is held, and is taken back, or goes on where it was once there is room.
func TestAFullDiskOfTheTarget(t *testing.T) {
	t.Parallel()
	var fullOf string // what there is no room for
	const rows = `copy "public".`
	copies := 0
	f := setupFaulty(t, "large", none, func(sql string) databasetest.Fault {
		if strings.HasPrefix(sql, rows) {
			copies++
		}
		if fullOf != "" && strings.HasPrefix(sql, fullOf) && (copies == 0 || copies > 3) {
			return databasetest.Full
		}
		return databasetest.None
	})
	shared := f.rows("")
	fullOf = "create database"
	f.command("request", `{"enterpriseId":"large"}`)
	require.GreaterOrEqual(t, f.e.Data.(*machine.Data).NextTry.Sub(f.now), 30*time.Second, "room does not come at once")
	f.goesOn(machine.Failed)
	require.Equal(t, "DB_ALLOCATION_FAILED", f.e.LastError.Code)
	require.Contains(t, f.e.LastError.Message, "No space left on device")
	f.command("rollback", `{}`)
	require.Equal(t, machine.RolledBack, f.e.State)
	f.back("large", "tenant_large", shared)

	fullOf = rows
	f.command("request", `{"enterpriseId":"large"}`)
	f.goesOn(machine.Failed)
	require.Equal(t, "DATA_MIGRATION_FAILED", f.e.LastError.Code)
	own := pg.Address{DSN: f.target.DSN, Database: "tenant_large"}
	done := databasetest.Ask(t, own, `select count(*)::text from instar.range where done_at is not null`)
	require.Equal(t, "3", done)
	all := databasetest.Ask(t, own, `select count(*)::text from instar.range`)
	fullOf, copies = "", 3
	f.command("retry", ``)
	f.moved("large", "tenant_large", shared)
	require.Equal(t, all, fmt.Sprint(copies), "what was copied is not copied again")
}

// The server for tenants lets nobody in, or not this program: nothing was done anywhere, and it is not tried again before somebody has seen to it.
func TestWrongCredentialsOfTheTarget(t *testing.T) {
	t.Parallel()
	f := setupFaulty(t, "stranger", none, none)
	shared := f.rows("")
	right := f.p.Server.DSN
	u, err := url.Parse(right)
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "wr0ng-pass")
	f.p.Server.DSN = u.String()
	f.command("request", `{"enterpriseId":"stranger"}`)
	require.Equal(t, machine.Failed, f.e.State)
	require.Equal(t, "PREFLIGHT_FAILED", f.e.LastError.Code)
	require.Equal(t, 1, f.e.Data.(*machine.Data).FailedAttempt, "another attempt does not help")
	require.NotContains(t, f.all.String(), "wr0ng-pass")
	require.Equal(t, "0", databasetest.Ask(t, f.source, `select count(*)::text from pg_namespace where nspname = 'instar'`), "the source was not touched")
	f.back("stranger", "tenant_stranger", shared)
	databasetest.Exec(t, f.target, `create role weak login password 'we4k-pass'`)
	u.User = url.UserPassword("weak", "we4k-pass")
	f.p.Server.DSN = u.String()
	f.command("retry", ``)
	require.Equal(t, "PREFLIGHT_FAILED", f.e.LastError.Code)
	require.Contains(t, f.e.LastError.Message, "ALTER ROLE weak CREATEDB CREATEROLE")
	f.p.Server.DSN = right
	f.command("retry", ``)
	f.moved("stranger", "tenant_stranger", shared)
}

// The tenant's own credentials do not open its database any more: that is seen before the switch, and the tenant stays where it is.
func TestWrongCredentialsOfTheTenant(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var f *faulty
	f = setupFaulty(t, "locked", none, func(sql string) databasetest.Fault {
		if strings.HasPrefix(sql, "copy ") {
			once.Do(func() { databasetest.Exec(t, f.target, `alter role tenant_locked password 'another'`) })
		}
		return databasetest.None
	})
	shared := f.rows("")
	f.command("request", `{"enterpriseId":"locked"}`)
	require.Equal(t, machine.Failed, f.e.State)
	require.Equal(t, "SWITCHING_FAILED", f.e.LastError.Code)
	require.Equal(t, "shared", f.routing("locked"))
	f.command("rollback", `{}`)
	require.Equal(t, machine.RolledBack, f.e.State)
	f.back("locked", "tenant_locked", shared)
}

// A newer attempt begins after a halt has looked whether it is the current one, and before it has removed what notes the rows that are written: that is the newer one's now.
func TestAHaltLeavesANewerAttemptItsSlot(t *testing.T) {
	t.Parallel()
	var f *faulty
	var mu sync.Mutex
	armed, taken := false, false
	f = setupFaulty(t, "raced", func(sql string) databasetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case armed && taken:
			armed = false
			databasetest.Exec(t, f.source, `update instar.attempt set fence = fence + 10`)
		case armed && sql == "commit":
			taken = true
		}
		return databasetest.None
	}, none)
	f.p.Told = refusesOwn
	f.command("request", `{"mode":"online"}`)
	require.Equal(t, machine.Failed, f.e.State)
	d, slot := f.e.Data.(*machine.Data), (&online.Link{Session: "default.raced.db"}).Name()+"_keys"
	databasetest.Exec(t, f.source, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	body, err := json.Marshal(machine.Task{Request: d.Request, Database: d.Database})
	require.NoError(t, err)
	mu.Lock()
	armed = true
	mu.Unlock()
	r := f.p.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "raced", ID: "db", Effect: machine.EffectHalt, Fence: f.e.Version + 1, Data: body})
	require.Equal(t, slot, databasetest.Ask(t, f.source, `select coalesce((select slot_name::text from pg_replication_slots where slot_name = $1), 'gone')`, slot))
	require.NotNil(t, r.Failure)
	require.Equal(t, f.e.Version+11, r.Failure.Fence)
	databasetest.Exec(t, f.source, `select pg_drop_replication_slot($1)`, slot)
}
