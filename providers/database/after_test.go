package database_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// ready moves a tenant, and returns where it is. What is done to it from then on is done twice.
func ready(t *testing.T, tenant, name string) (*session, pg.Address) {
	t.Helper()
	s := setup(t, tenant)
	s.command("request", fmt.Sprintf(`{"enterpriseId":%q}`, tenant))
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	s.twice = true
	return s, s.p.Server.Address(name, "")
}

// enter connects as the tenant's application.
func (s *session) enter(credentials string) error {
	d := s.e.Data.(*machine.Data)
	c, err := s.p.Keys.Unseal(credentials, d.Request.EnterpriseID, d.Database.Name)
	require.NoError(s.t, err)
	return s.p.Server.Try(s.t.Context(), d.Database.Name, c)
}

func TestARevertTakesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "back", "tenant_back")
	others := databasetest.Rows(t, s.p.Source, "settings", "other")
	databasetest.Exec(t, target, `
		insert into public.settings values ('back', 'since', 'x'); delete from public.settings where key = 'Key 1'; update public.settings set value = 'new' where key = 'Key 2';
		delete from public.orders where id = (select min(id) from public.orders);
		insert into public.orders (id, enterprise_id, total) overriding system value values (9001, 'back', 7);
		insert into public.lines values (9001, 1, 'new'); insert into public.remarks values (gen_random_uuid(), 9001, 1, 'new');
		insert into public.orders (enterprise_id, total) values ('back', 8)`) // under the number that the shared database gives out next
	want := map[string][]string{}
	for _, table := range databasetest.Tables {
		if table != "events" && table != "countries" {
			want[table] = databasetest.Rows(t, target, table, "")
		}
	}
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Equal(t, "REVERT_REFUSED", s.e.LastError.Code)
	require.Contains(t, s.e.LastError.Message, "3 rows of settings")
	require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials), "it is let in again")
	require.Equal(t, "dedicated_db tenant_back", s.runtime())

	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	for table, rows := range want {
		require.Equal(t, rows, databasetest.Rows(t, s.p.Source, table, "back"), table)
	}
	require.Equal(t, others, databasetest.Rows(t, s.p.Source, "settings", "other"))
	require.Equal(t, "none", s.runtime())
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
	databasetest.Exec(t, s.p.Source, `insert into public.orders (enterprise_id, total) values ('back', 1)`) // the sequence is beyond what came back
}

// A key that another tenant has taken meanwhile cannot come back, so nothing does, and the tenant stays where it is.
func TestARevertIsRefusedWhereKeysWereTaken(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "taken", "tenant_taken")
	before := databasetest.Rows(t, s.p.Source, "settings", "")
	databasetest.Exec(t, s.p.Source, `insert into public.names values ('name', 'other', 'nick')`)
	databasetest.Exec(t, target, `insert into public.names values ('name', 'taken', 'mine'); insert into public.settings values ('taken', 'since', 'x')`)
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "table names: rows that the tenant has written have keys that other rows have in the shared database")
	require.Equal(t, before, databasetest.Rows(t, s.p.Source, "settings", ""))
	require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials))
}

// What all tenants share is not written for one of them, and nothing comes back whose foreign keys would lead nowhere.
func TestARevertNamesWhatCannotComeBack(t *testing.T) {
	t.Parallel()
	s := setup(t, "shares")
	databasetest.Exec(t, s.p.Source, `create table public.notes (order_id bigint references public.orders, text text)`)
	s.p.Catalogue.Tables = maps.Clone(s.p.Catalogue.Tables)
	s.p.Catalogue.Tables["notes"] = catalog.Rule{Kind: catalog.Skip}
	s.command("request", `{}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	target := s.p.Server.Address("tenant_shares", "")
	s.twice = true
	refused := func(why string) {
		t.Helper()
		for _, body := range []string{`{}`, `{"keepWrites":true}`} {
			s.command("revert", body)
			require.Equal(t, machine.Ready, s.e.State, body)
			require.Contains(t, s.e.LastError.Message, why)
			require.Contains(t, s.e.LastError.Message, "; what is not compared would be left behind: table trail")
		}
		require.NoError(t, s.enter(s.e.Data.(*machine.Data).Database.Credentials))
	}
	databasetest.Exec(t, s.p.Source, `insert into public.countries values ('at', 'Austria')`) // is everybody's
	databasetest.Exec(t, target, `insert into public.countries values ('zz', 'New'); create table public.trail (line text); insert into public.trail values ('x')`)
	refused("1 rows of countries")
	databasetest.Exec(t, s.p.Source, `insert into public.countries values ('zz', 'New')`)

	databasetest.Exec(t, s.p.Source, `insert into public.notes select min(id), 'x' from public.orders where enterprise_id = 'shares'`)
	databasetest.Exec(t, target, `delete from public.orders where id = (select min(id) from public.orders)`)
	before := databasetest.Rows(t, s.p.Source, "orders", "")
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "table public.notes: its foreign key notes_order_id_fkey")
	require.Contains(t, s.e.LastError.Message, "; what is not compared would be left behind: table trail")
	require.Equal(t, before, databasetest.Rows(t, s.p.Source, "orders", ""))
	databasetest.Exec(t, s.p.Source, `delete from public.notes`)
	// What led nowhere before is no doing of this tenant: it may be anybody's, or nobody's.
	databasetest.Exec(t, s.p.Source, `set session_replication_role = replica; insert into public.notes values (987654, 'old'); set session_replication_role = origin`)
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
}

// A table that came to both databases after the move has no ranges; what the tenant has written there is found all the same.
func TestARevertSeesATableThatIsNewerThanTheMove(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "newer", "tenant_newer")
	for _, a := range []pg.Address{s.p.Source, target} {
		databasetest.Exec(t, a, `create table public.notes (enterprise_id text, n int, primary key (enterprise_id, n))`)
	}
	databasetest.Exec(t, target, `insert into public.notes select 'newer', i from generate_series(1, 30) i`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "30 rows of notes")
	s.command("revert", `{"keepWrites":true}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "30", databasetest.Ask(t, s.p.Source, `select count(*)::text from public.notes where enterprise_id = 'newer'`))
}

// Nor is one overlooked of which nobody can say whose its rows are.
func TestARevertNamesATableOfNoKind(t *testing.T) {
	t.Parallel()
	s, target := ready(t, "unkind", "tenant_unkind")
	for _, a := range []pg.Address{s.p.Source, target} {
		databasetest.Exec(t, a, `create table public.strays (id int primary key)`)
	}
	databasetest.Exec(t, target, `insert into public.strays values (1)`)
	s.command("revert", `{}`)
	require.Equal(t, machine.Ready, s.e.State)
	require.Contains(t, s.e.LastError.Message, "strays")
	refused := func(what string) {
		t.Helper()
		s.command("revert", `{"keepWrites":true}`)
		require.Equal(t, machine.Ready, s.e.State)
		require.Contains(t, s.e.LastError.Message, what)
	}
	databasetest.Exec(t, s.p.Source, `drop table public.strays`)
	databasetest.Exec(t, target, `alter table public.settings add column note text default 'none', add column made timestamptz default now(), add column price numeric(10,2) default 0, add column n int generated always as identity, add column more text, add column less varchar(255) default null, add column least numeric(10,2) default null`)
	for _, column := range []string{"more", "less", "least"} { // of the last two Postgres keeps a default, which is null
		databasetest.Exec(t, target, `update public.settings set `+column+` = '1' where key = 'Key 1'`)
		refused("settings: its column " + column + ", which the shared database lacks, has values")
		require.Contains(t, s.e.LastError.Message, "; what is not compared would be left behind: column made of settings, column n of settings, column "+column+" of settings")
		databasetest.Exec(t, target, `alter table public.settings drop column `+column)
	}
	databasetest.Exec(t, target, `create table public.trail (enterprise_id text, line text)`)
	databasetest.Exec(t, s.p.Source, `create table public.trail (enterprise_id text, line text)`)
	databasetest.Exec(t, target, `insert into public.trail values ('unkind', 'a')`)
	refused("trail: ")
	databasetest.Exec(t, target, `delete from public.trail`)
	s.command("revert", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
}

// What the plan refuses, of a table that comes while it waits, is refused before the tenant is kept out of anything, and before a publication keeps all tenants from writing.
func TestATableThatComesAfterThePlan(t *testing.T) {
	t.Parallel()
	for mode, table := range map[string]string{"offline": `strays (id int primary key)`, "online": `invoices (id int primary key, enterprise_id text not null)`} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := setupFaulty(t, "late-"+mode, none, none)
			dir := t.TempDir()
			databasetest.WriteMigrations(t, dir, "00099_late.sql", "-- +goose Up\ncreate table public."+table+";\n")
			f.p.Migrations.Files = os.DirFS(dir)
			f.command("request", `{"mode":"`+mode+`","approval":true}`)
			require.EqualValues(t, "waiting_approval", f.e.Data.(*machine.Data).Phase, f.e.LastError)
			name, _, _ := strings.Cut(table, " ")
			databasetest.Exec(t, f.source, `create table public.`+table)
			f.command("approve", `{}`)
			f.goesOn(machine.Failed)
			require.Equal(t, "DATA_MIGRATION_FAILED", f.e.LastError.Code, "%v", f.e.LastError)
			require.Contains(t, f.e.LastError.Message, name)
			require.Equal(t, "0", databasetest.Ask(t, f.source, `select count(*)::text from pg_publication`))
			databasetest.Exec(t, f.source, `drop table public.`+name)
			f.command("retry", ``)
			require.Equal(t, machine.Ready, f.e.State, "%v", f.e.LastError)
		})
	}
}

func TestARevertWithoutWritesNeedsNoConsent(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "idle", "tenant_idle")
	s.command("revert", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)
	require.Equal(t, "none", s.runtime())
	require.Nil(t, s.e.Data.(*machine.Data).Database, "it was put aside")
}

func TestCredentialsAreRotated(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "turned", "tenant_turned")
	old, epoch := s.e.Data.(*machine.Data).Database.Credentials, s.e.Data.(*machine.Data).Epoch
	var told []database.Route
	s.p.Told = recorded(&told)
	s.command("rotate", ``)
	d := s.e.Data.(*machine.Data)
	require.NotEqual(t, old, d.Database.Credentials)
	require.Greater(t, d.Epoch, epoch)
	require.Equal(t, d.Database.Credentials, told[len(told)-1].Credentials, "what is told is what is stored")
	require.NoError(t, s.enter(d.Database.Credentials))
	require.Equal(t, "28P01", pg.State(s.enter(old)))
	for _, sealed := range []string{old, d.Database.Credentials} {
		c, err := s.p.Keys.Unseal(sealed, "turned", "tenant_turned")
		require.NoError(t, err)
		require.NotContains(t, s.all.String(), c.Password)
	}

	// A standby that became the source may lack the switch: what it says now would lead applications back to old rows.
	before := len(told)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime where enterprise_id = 'turned'`)
	s.command("rotate", ``)
	require.Len(t, told, before)
	require.NoError(t, s.enter(d.Database.Credentials), "the password is the one that is stored")
}

// A server may have the databases of another source; one that no session has set up yet has nothing to tell, and that is no failure.
func TestASourceThatIsNotSetUpHasNoRoutes(t *testing.T) {
	t.Parallel()
	s, _ := ready(t, "first", "tenant_first")
	own, err := s.p.Routes(t.Context())
	require.NoError(t, err)
	require.Len(t, own, 1)
	fresh := &database.Provider{Server: s.p.Server}
	fresh.Source = databasetest.Shared(t, &suite, 1, "second")
	none, err := fresh.Routes(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
}

// What somebody has taken back by hand is said by resolve, and the tenant is free for another session, here and on its server.
func TestAResolvedSessionGivesTheTenantFree(t *testing.T) {
	t.Parallel()
	s := setup(t, "freed")
	s.p.Told = func(_ context.Context, r database.Route) error {
		return fmt.Errorf("nobody acknowledges epoch %d", r.Epoch)
	}
	s.command("request", `{"enterpriseId":"freed"}`)
	require.Equal(t, machine.Failed, s.e.State)
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime`)
	databasetest.Exec(t, pg.Address{DSN: s.p.Server.DSN}, `drop database tenant_freed with (force)`)
	s.twice = true
	s.command("resolve", `{"outcome":"rolled_back"}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%v", s.e.LastError)

	s.p.Told = nil
	s.e = machine.Machine.New("default", "freed", "second")
	s.command("request", `{"enterpriseId":"freed"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	require.Equal(t, cutover.Dedicated+" tenant_freed", s.runtime())
}

func exec(t *testing.T, a pg.Address, sql string) error {
	t.Helper()
	conn := databasetest.Open(t, a)
	_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// recorded keeps what is told.
func recorded(to *[]database.Route) func(context.Context, database.Route) error {
	return func(_ context.Context, r database.Route) error {
		*to = append(*to, r)
		return nil
	}
}

// A switch may fail when the application knows of it already. What the tenant has written since then is not lost by a rollback.
func TestARollbackOfASwitchThatWasToldLosesNothing(t *testing.T) {
	t.Parallel()
	for tenant, kept := range map[string]bool{"keep": true, "discard": false} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			s := untold(t, tenant, `{}`)
			require.NoError(t, exec(t, s.p.Server.Address("tenant_"+tenant, ""), fmt.Sprintf(`insert into public.settings values (%s, 'since', 'x')`, pg.Literal(tenant))))

			s.command("rollback", `{}`)
			d := s.e.Data.(*machine.Data)
			require.Equal(t, machine.RollbackStuck, d.Phase, "%s", s.e.State)
			require.Contains(t, d.Undone[0].Error, "1 rows of settings")
			require.Equal(t, "dedicated_db tenant_"+tenant, s.runtime())
			require.NoError(t, s.enter(d.Database.Credentials), "it is let in again")

			s.command("rollback", fmt.Sprintf(`{"%sWrites":true}`, tenant))
			require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
			require.Equal(t, "none", s.runtime())
			require.Equal(t, kept, databasetest.Ask(t, s.p.Source, `select count(*)::text from public.settings where enterprise_id = $1 and key = 'since'`, tenant) == "1")
		})
	}
}

// The tenant is where it is to be; what is left of its replication is for the sweep.
func TestAReplicationThatStaysDoesNotFailTheSwitch(t *testing.T) {
	t.Parallel()
	s := setup(t, "linked")
	s.twice = true
	databasetest.Exec(t, s.p.Source, `create function public.refuse() returns event_trigger language plpgsql as $$ begin raise 'not now'; end $$`)
	databasetest.Exec(t, s.p.Source, `create event trigger refuse on ddl_command_start when tag in ('DROP PUBLICATION') execute function public.refuse()`)
	s.command("request", `{"enterpriseId":"linked","mode":"online"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	left := func() string { return databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_publication`) }
	require.Equal(t, "2", left())
	_, err := s.p.Sweep(t.Context())
	require.ErrorContains(t, err, "not now")
	databasetest.Exec(t, s.p.Source, `drop event trigger refuse`)
	_, err = s.p.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0", left())
}

// A slot that nobody reads keeps the log of the source, and a database with a subscription cannot be dropped: closing a tenant ends what the switch has left.
func TestAReplicationThatStaysEndsWithItsTenant(t *testing.T) {
	t.Parallel()
	s := setup(t, "severed")
	databasetest.Exec(t, s.p.Source, `create function public.refuse() returns event_trigger language plpgsql as $$ begin raise 'not now'; end $$`)
	databasetest.Exec(t, s.p.Source, `create event trigger refuse on ddl_command_start when tag in ('DROP PUBLICATION') execute function public.refuse()`)
	s.command("request", `{"enterpriseId":"severed","mode":"online"}`)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	databasetest.Exec(t, s.p.Source, `drop event trigger refuse`)
	s.twice = true
	s.command("deprovision", `{"tenant":"severed"}`)
	require.Equal(t, machine.Retired, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.Equal(t, "0 0", databasetest.Ask(t, s.p.Source, `select (select count(*) from pg_publication) || ' ' || (select count(*) from pg_replication_slots where database = current_database())`))
}

// What nobody reads keeps the log of the source for as long as a session is held or paused: it goes when a step has failed, when a session is paused, and with the sweep.
func TestAHeldSessionKeepsNoLog(t *testing.T) {
	t.Parallel()
	s := setup(t, "held")
	s.p.Told = refusesOwn
	s.command("request", `{"mode":"online"}`)
	require.Equal(t, machine.Failed, s.e.State)
	name := (&online.Link{Session: "default.held.db"}).Name()
	slots := func() string {
		return databasetest.Ask(t, s.p.Source, `select coalesce(string_agg(slot_name, ' ' order by slot_name), '') from pg_replication_slots where database = current_database()`)
	}
	require.Equal(t, name, slots())
	// The slot that stays is read on, also of what others write.
	databasetest.Exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id <> 'held'`)
	at := databasetest.Ask(t, s.p.Source, `select pg_current_wal_lsn()::text`)
	require.Eventually(t, func() bool {
		return databasetest.Ask(t, s.p.Source, `select (confirmed_flush_lsn >= $2::text::pg_lsn)::text from pg_replication_slots where slot_name = $1`, name, at) == "true"
	}, time.Minute, 100*time.Millisecond)
	d := s.e.Data.(*machine.Data)
	// How far its replication is, is news once: an initial copy of hours is not idle, and one that stands is.
	copying, now := s.e, *d
	now.LastProgressAt, copying.Data = time.Time{}, &now
	f, err := s.p.Look(t.Context(), &copying)
	require.NoError(t, err)
	require.Equal(t, machine.ReportProgressed, f.Input)
	seen := f.Data.(machine.Progress)
	require.Equal(t, d.Plan.Total, seen.Total)
	require.Equal(t, seen.Total, seen.Rows, "also of tables that Postgres has copied")
	require.Positive(t, seen.Bytes)
	require.Zero(t, seen.ETA)
	require.Eventually(t, func() bool {
		f, err := s.p.Look(t.Context(), &copying)
		return err == nil && f.Input == ""
	}, time.Minute, 100*time.Millisecond)
	now.AttemptAt = now.AttemptAt.Add(time.Second) // the next attempt
	f, err = s.p.Look(t.Context(), &copying)
	require.NoError(t, err)
	require.Equal(t, machine.ReportProgressed, f.Input)
	require.Zero(t, f.Data.(machine.Progress).Rate)

	body, err := json.Marshal(machine.Task{Request: d.Request, Database: d.Database})
	require.NoError(t, err)
	task := machines.Task{Namespace: "default", Parent: "held", ID: "db", Effect: machine.EffectHalt, Fence: s.e.Version, Data: body}
	databasetest.Exec(t, s.p.Source, `select pg_create_logical_replication_slot($1, 'pgoutput')`, name+"_keys")
	task.Fence = s.e.Version - 2 // the switch was the last one
	require.NotNil(t, s.p.Perform(t.Context(), task).Failure)
	require.Equal(t, name+" "+name+"_keys", slots(), "that of a newer attempt stays")
	task.Fence = s.e.Version + 1
	require.Nil(t, s.p.Perform(t.Context(), task).Failure)
	require.Equal(t, name, slots())

	databasetest.Exec(t, s.p.Source, `select pg_create_logical_replication_slot('instar_0123456789abcdef_keys', 'pgoutput')`)
	databasetest.Exec(t, s.p.Source, `create publication instar_0123456789abcdef_keys`)
	databasetest.Exec(t, s.p.Source, `select pg_create_logical_replication_slot('somebodys', 'pgoutput')`)
	databasetest.Exec(t, s.p.Source, `update public.tenant_runtime set database_id = 'elsewhere'`) // else what is left of this one goes
	_, err = s.p.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, name+" somebodys", slots())
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_publication where pubname like 'instar_0123%'`))
	databasetest.Exec(t, s.p.Source, `select pg_drop_replication_slot('somebodys')`)
	databasetest.Exec(t, s.p.Source, `update public.tenant_runtime set database_id = $1`, d.Database.DatabaseID)
	s.p.Told, s.twice = nil, true
	s.e.Version += 2
	s.command("retry", ``)
	require.Equal(t, machine.Ready, s.e.State, "%v", s.e.LastError)
	require.Empty(t, slots())
}

// A session that begins while strays are looked for takes over what has its name: it is no stray.
func TestASessionThatBeginsKeepsItsSlot(t *testing.T) {
	s := setup(t, "begins")
	s.command("request", `{}`) // which sets up the source
	name := (&online.Link{Session: "default.late.anew"}).Name()
	databasetest.Exec(t, s.p.Source, `select pg_create_logical_replication_slot($1, 'pgoutput')`, name)
	conn, err := pg.Connect(t.Context(), s.p.Source)
	require.NoError(t, err)
	defer pg.Close(conn)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into instar.attempt (enterprise_id, session, fence) values ('late', 'default.late.anew', 1)`)
	require.NoError(t, err)
	swept := make(chan error, 1)
	go func() {
		_, err := s.p.Sweep(t.Context())
		swept <- err
	}()
	slots := `select count(*)::text from pg_replication_slots where slot_name = $1`
	require.Eventually(t, func() bool {
		return databasetest.Ask(t, s.p.Source, slots, name) == "0" ||
			databasetest.Ask(t, s.p.Source, `select count(*)::text from pg_locks where relation = 'instar.attempt'::regclass and not granted`) == "1"
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-swept)
	require.Equal(t, "1", databasetest.Ask(t, s.p.Source, slots, name))
	databasetest.Exec(t, s.p.Source, `update instar.attempt set ended = true`)
	_, err = s.p.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0", databasetest.Ask(t, s.p.Source, slots, name))
}

// untold is a session that has failed after its switch, as nobody has acknowledged that, and whose undo is performed twice.
func untold(t *testing.T, tenant, body string) *session {
	t.Helper()
	s := setup(t, tenant)
	s.p.Told = refusesOwn
	s.command("request", body)
	require.Equal(t, machine.Failed, s.e.State)
	s.twice = true
	return s
}

// refusesOwn is when nobody acknowledges that a tenant is in its own database.
func refusesOwn(_ context.Context, r database.Route) error {
	if r.IsolationMode == cutover.Dedicated {
		return &database.UnheardError{Enterprise: r.Enterprise, Epoch: r.Epoch, Resolvers: []string{"one"}}
	}
	return nil
}
