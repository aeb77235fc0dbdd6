package cutover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

func setup(t *testing.T) (*cutover.Source, []*catalog.Table) {
	t.Helper()
	a := databasetest.Shared(t, &suite, 5, "acme", "other")
	conn, err := pg.Connect(t.Context(), a)
	require.NoError(t, err)
	defer pg.Close(conn)
	r, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	require.NoError(t, err)
	s := &cutover.Source{Address: a, Enterprise: "acme", Session: "s1", Attempt: 1}
	require.NoError(t, s.Setup(t.Context()))
	require.NoError(t, s.Setup(t.Context()))
	return s, r.Tables
}

// writes are of a tenant, by table.
func writes(tenant string) map[string]string {
	who := pg.Literal(tenant)
	mine := fmt.Sprintf(`(select min(id) from public.orders where enterprise_id = %s)`, who)
	return map[string]string{
		"insert":           fmt.Sprintf(`insert into public.orders (enterprise_id, total) values (%s, 1)`, who),
		"update":           fmt.Sprintf(`update public.orders set note = 'x' where enterprise_id = %s`, who),
		"delete":           fmt.Sprintf(`delete from public.settings where enterprise_id = %s and key = 'Key 1'`, who),
		"of a child":       `update public.lines set article = 'x' where order_id = ` + mine,
		"into a child":     `insert into public.lines values (` + mine + `, 99, 'x')`,
		"of a grandchild":  `delete from public.remarks where order_id = ` + mine,
		"with its parents": `delete from public.orders where id = ` + mine,
		"of a partition":   fmt.Sprintf(`insert into public.events (enterprise_id, at) values (%s, '2011-01-01')`, who),
		"as a replica":     fmt.Sprintf(`set local session_replication_role = replica; update public.names set nick = nick where enterprise_id = %s`, who),
	}
}

func try(t *testing.T, a pg.Address, sql string) error {
	t.Helper()
	conn := databasetest.Open(t, a)
	defer pg.Close(conn)
	stop := errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			return err
		}
		return stop
	})
	if errors.Is(err, stop) {
		return nil
	}
	return err
}

func TestTheFenceStopsOneTenant(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	before := databasetest.Everything(t, s.Address)
	for range 2 {
		require.NoError(t, s.Fence(t.Context(), tables))
	}
	open := func() []string {
		t.Helper()
		var names []string
		again := *s
		again.Lost = func(_ context.Context, table string) error { names = append(names, table); return nil }
		require.NoError(t, again.Fence(t.Context(), tables))
		return names
	}
	require.Empty(t, open())
	for what, sql := range writes("acme") {
		require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, sql)), what)
	}
	for what, sql := range writes("other") {
		require.NoError(t, try(t, s.Address, sql), what)
	}
	require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, `update public.settings set enterprise_id = 'acme', key = 'moved' where enterprise_id = 'other' and key = 'Key 2'`)), "into the tenant")
	require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, `truncate public.settings`)))
	require.NoError(t, try(t, s.Address, `insert into public.countries values ('at', 'Austria')`), "what is shared is not fenced")
	for table, damage := range map[string]string{"settings": "drop trigger %I on public.settings", "names": "alter table public.names disable trigger %I", "lines": "alter table public.lines enable trigger %I"} {
		databasetest.Exec(t, s.Address, fmt.Sprintf(`do $$ begin execute format('%s', (select min(tgname) from pg_trigger where tgrelid = 'public.%s'::regclass and tgname like 'instar%%')); end $$`, damage, table))
	}
	require.ElementsMatch(t, []string{`"public"."settings"`, `"public"."names"`, `"public"."lines"`}, open(), "one that has not all of it, or not always")
	require.NoError(t, s.Lift(t.Context()))
	require.Len(t, open(), 6)
	for range 2 {
		require.NoError(t, s.Lift(t.Context()))
	}
	require.Equal(t, "0", databasetest.Ask(t, s.Address, `select count(*)::text from pg_trigger where tgname like 'instar%'`))
	for what, sql := range writes("acme") {
		require.NoError(t, try(t, s.Address, sql), what)
	}
	require.Equal(t, "0", databasetest.Ask(t, s.Address, `select count(*)::text from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = 'instar'`))
	require.Equal(t, before, databasetest.Everything(t, s.Address))
}

// A transaction with a snapshot from before the fence cannot see anything that came with it, and is stopped all the same.
func TestAnOldSnapshotDoesNotPassTheFence(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	conn := databasetest.Open(t, s.Address)
	for what, sql := range writes("acme") {
		tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `select count(*) from public.countries`) // its snapshot
		require.NoError(t, err)
		require.NoError(t, s.Fence(t.Context(), tables))
		_, err = tx.Exec(t.Context(), sql)
		require.Contains(t, []string{pg.ReadOnly, pg.Serialization}, pg.State(err), "%s: %v", what, err)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, s.Lift(t.Context()))
	}
}

// The fence stands when the writers that were running have ended: what they commit is before it.
func TestTheFenceWaitsForWriters(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	conn := databasetest.Open(t, s.Address)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into public.settings values ('acme', 'late', 'x')`)
	require.NoError(t, err)
	fenced := make(chan error, 1)
	go func() { fenced <- s.Fence(t.Context(), tables) }()
	watcher := databasetest.Open(t, s.Address)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, watcher.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'set local lock_timeout%'`).Scan(&n))
		return n == 1
	}, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, try(t, s.Address, `update public.lines set article = article`+` where order_id in (select id from public.orders where enterprise_id = 'other')`), "others write on")
	select {
	case err := <-fenced:
		require.Fail(t, "it does not wait", "%v", err)
	default:
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-fenced)
	require.Equal(t, "1", databasetest.Ask(t, s.Address, `select count(*)::text from public.settings where key = 'late'`))

	// It does not wait for ever.
	require.NoError(t, s.Lift(t.Context()))
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `update public.settings set value = 'x' where enterprise_id = 'other'`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Fence(ctx, tables), context.DeadlineExceeded)
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestTheRuntimeIsSwitchedAndGivenBackAsItWas(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	databasetest.Exec(t, s.Address, `
		alter table public.tenant_runtime add column plan text;
		insert into public.tenant_runtime (enterprise_id, isolation_mode, database_host, status, updated_at, plan, epoch) values ('acme', 'shared', 'old:5432', 'trial', '2020-01-02', 'gold', 5)`)
	row := func() string {
		return databasetest.Ask(t, s.Address, `select coalesce((select (to_jsonb(r) - 'epoch' - 'region' - 'n')::text from public.tenant_runtime r where enterprise_id = 'acme'), 'none')`)
	}
	was := row()
	previous, err := s.Snapshot(t.Context())
	require.NoError(t, err)
	to := cutover.Runtime{IsolationMode: cutover.Dedicated, DatabaseID: "t1/tenant_acme", DatabaseHost: "h:1", DatabaseName: "tenant_acme", Status: "active"}
	databasetest.Exec(t, s.Address, `update public.tenant_runtime set database_name = 'tenant_ACME'`)
	_, err = s.KeepAndSwitch(t.Context(), to, nil)
	require.ErrorContains(t, err, "leads the tenant acme to tenant_ACME", "somebody else has moved it")
	databasetest.Exec(t, s.Address, `update public.tenant_runtime set database_name = null`)
	for range 2 {
		now, err := s.KeepAndSwitch(t.Context(), to, nil)
		require.NoError(t, err)
		require.Equal(t, int64(6), now.Epoch)
	}
	read, err := s.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "tenant_acme", read.DatabaseName)

	other := *s
	other.Session = "s2"
	_, err = other.Switch(t.Context(), to, to.DatabaseName)
	require.ErrorContains(t, err, "session s1 has the tenant")
	newer := *s
	newer.Attempt = 2
	databasetest.Exec(t, s.Address, `update public.tenant_runtime set plan = 'platinum', status = 'suspended'; alter table public.tenant_runtime add column region text not null default 'eu', add column n int generated always as identity`) // by the application, since
	was = strings.NewReplacer(`"gold"`, `"platinum"`, `"trial"`, `"suspended"`).Replace(was)
	for range 2 {
		now, err := newer.Restore(t.Context(), previous, to.DatabaseName)
		require.NoError(t, err)
		require.Equal(t, int64(7), now.Epoch)
		require.Equal(t, was, row())
	}
	var obsolete *pg.ObsoleteError
	_, err = s.Switch(t.Context(), to, to.DatabaseName)
	require.ErrorAs(t, err, &obsolete, "a zombie")
	require.Equal(t, was, row())

	// What an application's own table leaves open is as a table of this program has it.
	databasetest.Exec(t, s.Address, `alter table public.tenant_runtime alter column status drop not null, alter column isolation_mode drop not null; update public.tenant_runtime set status = null, isolation_mode = null`)
	read, err = s.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "shared active", read.IsolationMode+" "+read.Status)
	databasetest.Exec(t, s.Address, `update public.tenant_runtime set status = 'active', isolation_mode = 'shared'`)

	// A row that was not there is not there afterwards; the epoch rises all the same.
	databasetest.Exec(t, s.Address, `delete from public.tenant_runtime`)
	previous, err = newer.Snapshot(t.Context())
	require.NoError(t, err)
	require.True(t, previous.Absent)
	now, err := newer.Switch(t.Context(), to, to.DatabaseName)
	require.NoError(t, err)
	require.Equal(t, int64(8), now.Epoch)
	now, err = newer.Restore(t.Context(), previous, to.DatabaseName)
	require.NoError(t, err)
	require.Equal(t, cutover.Runtime{IsolationMode: cutover.Shared, Status: "active", Epoch: 9}, now)
	require.Equal(t, "none", row())
	require.NoError(t, newer.End(t.Context()))
	other.Attempt = 1
	require.NoError(t, other.Take(t.Context()), "it is free")
}

// Two who switch the same row at once, as sessions that name its tenant in two ways, do not lead it one after the other: the later one finds where it leads by then.
func TestTwoSwitchesOfOneRow(t *testing.T) {
	t.Parallel()
	for _, row := range []string{"none", "shared"} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			if row == "shared" {
				databasetest.Exec(t, s.Address, `insert into public.tenant_runtime (enterprise_id) values ('acme')`)
			}
			other, err := databasetest.Open(t, s.Address).Begin(t.Context())
			require.NoError(t, err)
			_, err = other.Exec(t.Context(), `insert into public.tenant_runtime (enterprise_id, database_name) values ('acme', 'tenant_ACME') on conflict (enterprise_id) do update set database_name = 'tenant_ACME'`)
			require.NoError(t, err)
			switched := make(chan error, 1)
			go func() {
				_, err := s.KeepAndSwitch(t.Context(), cutover.Runtime{IsolationMode: cutover.Dedicated, DatabaseName: "tenant_acme", Status: "active"}, nil)
				switched <- err
			}()
			databasetest.AwaitLock(t, s.Address, "%")
			require.NoError(t, other.Commit(t.Context()))
			require.ErrorContains(t, <-switched, "leads the tenant acme to tenant_ACME")
			require.Equal(t, "tenant_ACME", databasetest.Ask(t, s.Address, `select database_name from public.tenant_runtime`))
		})
	}
}

// Nor is a row given back what it had where it was led elsewhere since it was looked at.
func TestARowThatIsLedElsewhereIsNotRestored(t *testing.T) {
	t.Parallel()
	for _, row := range []string{"none", "shared"} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			if row == "shared" {
				databasetest.Exec(t, s.Address, `insert into public.tenant_runtime (enterprise_id) values ('acme')`)
			}
			_, err := s.KeepAndSwitch(t.Context(), cutover.Runtime{IsolationMode: cutover.Dedicated, DatabaseName: "tenant_acme", Status: "active"}, nil)
			require.NoError(t, err)
			other, err := databasetest.Open(t, s.Address).Begin(t.Context())
			require.NoError(t, err)
			_, err = other.Exec(t.Context(), `update public.tenant_runtime set database_name = 'elsewhere'`)
			require.NoError(t, err)
			restored := make(chan error, 1)
			go func() { restored <- s.RestoreKept(t.Context(), "tenant_acme") }()
			databasetest.AwaitLock(t, s.Address, "%")
			require.NoError(t, other.Commit(t.Context()))
			require.ErrorContains(t, <-restored, "leads the tenant acme to elsewhere")
			require.Equal(t, "elsewhere", databasetest.Ask(t, s.Address, `select database_name from public.tenant_runtime`))
		})
	}
}

// An attempt that its own session has overtaken stays overtaken when another session has had the tenant since, or had it all the time.
func TestAnOldAttemptOfAnEarlierSessionTakesNothing(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	databasetest.Exec(t, s.Address, `drop table if exists instar.past, instar.shut`) // as an earlier version has set it up
	at := func(session string, attempt uint64) *cutover.Source {
		c := *s
		c.Session, c.Attempt = session, attempt
		return &c
	}
	require.NoError(t, at("s1", 5).Take(t.Context()))
	var held *pg.HeldError
	require.ErrorAs(t, at("s3", 9).Take(t.Context()), &held, "its undo")
	require.NoError(t, at("s1", 8).Take(t.Context()))
	require.NoError(t, at("s1", 8).End(t.Context()))
	require.NoError(t, at("s2", 2).Take(t.Context()))
	require.NoError(t, at("s2", 2).End(t.Context()))
	var obsolete *pg.ObsoleteError
	for session, seen := range map[string]uint64{"s1": 8, "s2": 2, "s3": 9} {
		require.ErrorAs(t, at(session, seen-1).Take(t.Context()), &obsolete, session)
		require.Equal(t, seen, obsolete.Seen, session)
	}
	require.NoError(t, at("s1", 9).Take(t.Context()))
}
