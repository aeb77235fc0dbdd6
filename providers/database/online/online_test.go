package online_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// The whole way of mode online, with writers until the fence, and with all of what it makes gone at the end.
func TestATenantIsCopiedWhileItIsWrittenTo(t *testing.T) {
	t.Parallel()
	source, target := databasetest.Shared(t, &suite, 30, "acme", "other"), pg.Address{DSN: suite.Database(t)}
	// What the report demands for mode online; partitioned tables are moved offline.
	databasetest.Exec(t, source, `
		drop table public.events;
		alter table public.orders replica identity using index orders_tenant;
		create unique index names_tenant on public.names (enterprise_id, name); alter table public.names replica identity using index names_tenant`)
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), target, nil))
	databasetest.Exec(t, target, `drop table public.events`)
	conn, err := pg.Connect(t.Context(), source)
	require.NoError(t, err)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	pg.Close(conn)
	require.NoError(t, err)
	require.Empty(t, report.Refused(true))

	s := &cutover.Source{Address: source, Enterprise: "acme", Session: "s1", Attempt: 1}
	require.NoError(t, s.Setup(t.Context()))
	m := &mover.Mover{Source: source, Target: target, Session: "s1", Fence: 1, Enterprise: "acme", Tables: report.Tables, RangeRows: 20}
	require.NoError(t, m.Take(t.Context()))
	require.NoError(t, m.Prepare(t.Context()))

	writer := databasetest.Open(t, source)
	written, stop := make(chan int, 1), make(chan struct{})
	go func() {
		n := 0
		defer func() { written <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := writer.Exec(context.Background(), fmt.Sprintf(`
				with o as (insert into public.orders (enterprise_id, total) values ('acme', %[1]d), ('other', %[1]d) returning id, enterprise_id) insert into public.lines select id, 1, 'x' from o where enterprise_id = 'acme';
				update public.orders set note = 'n%[1]d' where enterprise_id = 'acme' and id %% 5 = %[1]d %% 5;
				delete from public.orders where enterprise_id = 'acme' and id < 40 and id %% 11 = %[1]d %% 11;
				insert into public.settings values ('acme', 'new %[1]d', 'x')`, n))
			if err != nil {
				if pg.State(err) != pg.ReadOnly {
					n = -1
				}
				return
			}
			n++
		}
	}()
	l := &online.Link{Source: source, Target: target, Session: "s1", Enterprise: "acme", Tables: report.Tables}
	problems, err := l.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	for range 2 {
		require.NoError(t, l.Publish(t.Context()))
		require.NoError(t, l.Slot(t.Context()))
		require.NoError(t, l.Subscribe(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, l.AwaitCopy(ctx))
	require.NoError(t, l.CatchUp(ctx))
	status, err := l.Status(ctx)
	require.NoError(t, err)
	require.Len(t, status.Whole, status.Tables)

	began := time.Now()
	require.NoError(t, s.Fence(ctx, report.Tables))
	require.NoError(t, l.CatchUp(ctx))
	v, err := m.Verify(ctx, true)
	require.NoError(t, err)
	require.Empty(t, v.Open())
	t.Logf("from the fence to the end of the comparison: %s", time.Since(began))
	close(stop)
	require.Positive(t, <-written)
	for _, d := range v.Discrepancies { // what is replicated is complete by itself
		require.Contains(t, []string{"lines", "remarks", "countries"}, d.Table)
	}
	for _, table := range databasetest.Tables {
		if table != "events" {
			require.Equal(t, databasetest.Rows(t, source, table, "acme"), databasetest.Rows(t, target, table, ""), table)
		}
	}
	for range 2 {
		require.NoError(t, l.Remove(ctx))
	}
	require.NoError(t, s.Lift(ctx))
	require.Equal(t, "0 0", databasetest.Ask(t, source, `select (select count(*) from pg_publication)::text || ' ' || (select count(*) from pg_replication_slots where database = current_database())::text`))
	require.Equal(t, "0", databasetest.Ask(t, target, `select count(*)::text from pg_subscription s join pg_database d on d.oid = subdbid where datname = current_database()`))
}

// What is undone in the middle of the initial copy leaves no slot behind.
// It is not parallel: a slot waits for every transaction of the cluster.
func TestItIsRemovedInTheMiddleOfTheCopy(t *testing.T) {
	source, target := databasetest.Shared(t, &suite, 200, "acme"), pg.Address{DSN: suite.Database(t)}
	databasetest.Exec(t, source, `create schema instar; create table instar.marker (session text primary key, token text not null, set_at timestamptz not null default now())`)
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), target, nil))
	m := &mover.Mover{Source: source, Target: target, Session: "s2", Fence: 1, Enterprise: "acme"}
	require.NoError(t, m.Take(t.Context()))
	conn, err := pg.Connect(t.Context(), source)
	require.NoError(t, err)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	pg.Close(conn)
	require.NoError(t, err)
	l := &online.Link{Source: source, Target: target, Session: "s2", Enterprise: "acme", Tables: []*catalog.Table{report.Table("settings")}}
	require.NoError(t, l.Publish(t.Context()))
	require.NoError(t, l.Slot(t.Context()))
	locked := databasetest.Open(t, target)
	tx, err := locked.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table public.settings in share mode`) // its copy does not end
	require.NoError(t, err)
	require.NoError(t, l.Subscribe(t.Context()))
	watcher := databasetest.Open(t, source)
	require.Eventually(t, func() bool {
		var there bool
		require.NoError(t, watcher.QueryRow(t.Context(), `select exists (select from pg_replication_slots where database = current_database() and slot_name like 'pg\_%\_sync\_%')`).Scan(&there))
		return there
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, l.Remove(t.Context()))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "0", databasetest.Ask(t, source, `select count(*)::text from pg_replication_slots where database = current_database()`))
}

// The user in tenants.source.from is found in each form of it, and its files are those of the tenant's server: none is read here.
func TestTheRoleInTheAddressForTheTarget(t *testing.T) {
	t.Parallel()
	source := databasetest.Shared(t, &suite, 1, "acme")
	role := "it's " + rand.Text()[:8]
	databasetest.Exec(t, source, `create role `+pg.Ident(role))
	quoted, escaped := strings.ReplaceAll(role, "'", `\'`), url.PathEscape(role)
	for from, named := range map[string]bool{
		"postgres://" + escaped + ":pw@nowhere,elsewhere:5433/db?sslrootcert=/nowhere&sslmode=verify-full": true,
		"postgresql:///db?service=none&user=" + escaped:                                                    true,
		"host=nowhere user='" + quoted + "' sslcert=/nowhere sslkey=/nowhere passfile=/nowhere":            true,
		"user = " + strings.ReplaceAll(quoted, " ", `\ `) + " sslrootcert=/nowhere":                        true,
		"service=none password='x user=" + strings.ReplaceAll(quoted, " ", `\ `) + "' port=5433":           false,
		"postgres://nowhere/db?sslrootcert=/nowhere":                                                       false,
		"": false,
	} {
		l := &online.Link{Source: source, From: from, Session: "s5", Enterprise: "acme"}
		problems, err := l.Check(t.Context())
		require.NoError(t, err, from)
		if named {
			require.Equal(t, []string{"the role of tenants.source.from lacks: ALTER ROLE " + pg.Ident(role) + " REPLICATION"}, problems, from)
		} else {
			require.Empty(t, problems, from)
		}
	}
}

// What is read ends at the mark, whatever is written after it, and has what was committed before it by those who do not wait for the log.
// It is not parallel: a slot waits for every transaction of the cluster.
func TestWhatIsNotedEndsAtTheMark(t *testing.T) {
	source := databasetest.Shared(t, &suite, 1, "acme")
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	databasetest.Exec(t, source, `do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$`)
	conn, err := pg.Connect(t.Context(), source)
	require.NoError(t, err)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	pg.Close(conn)
	require.NoError(t, err)
	l := &online.Link{Source: source, Session: "s3", Enterprise: "acme", Tables: []*catalog.Table{report.Table("settings")}}
	_, err = l.Note(t.Context(), nil)
	require.NoError(t, err)
	writer := databasetest.Open(t, source)
	noted := func(before online.Mark, most int) (keys []string, more bool) {
		n, err := l.Touched(t.Context(), before, most)
		require.NoError(t, err)
		for _, r := range n.Rows {
			keys = append(keys, r.Key[1])
		}
		require.NoError(t, l.Forget(t.Context(), n.Until, func(ctx context.Context, do func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, writer, do) }))
		return keys, n.More
	}
	for _, key := range []string{"a", "b", "c"} {
		_, err = writer.Exec(t.Context(), `insert into public.settings values ('acme', $1, 'x')`, key)
		require.NoError(t, err)
	}
	first, err := l.Mark(t.Context())
	require.NoError(t, err)
	databasetest.Exec(t, source, `insert into public.settings values ('acme', 'late', 'x')`)
	second, err := l.Mark(t.Context())
	require.NoError(t, err)

	keys, more := noted(first, 1)
	require.Equal(t, []string{"a"}, keys)
	require.True(t, more)
	keys, more = noted(first, 1000)
	require.Equal(t, []string{"b", "c"}, keys)
	require.False(t, more)
	keys, _ = noted(second, 1000)
	require.Equal(t, []string{"late"}, keys)
	require.NoError(t, l.Unslot(t.Context(), 0))
}

// What was noted of other tables, as by an earlier version, is noted anew: what a transaction that is open has written to one that comes is told as well.
// It is not parallel: a slot waits for every transaction of the cluster.
func TestWhatIsNotedIsOfAllTables(t *testing.T) {
	source := databasetest.Shared(t, &suite, 1, "acme")
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	conn, err := pg.Connect(t.Context(), source)
	require.NoError(t, err)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	pg.Close(conn)
	require.NoError(t, err)
	l := &online.Link{Source: source, Session: "s4", Enterprise: "acme", Tables: []*catalog.Table{report.Table("settings")}}
	_, err = l.Note(t.Context(), nil)
	require.NoError(t, err)
	writer := databasetest.Open(t, source)
	tx, err := writer.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into public.countries values ('zz', 'New')`)
	require.NoError(t, err)
	l.Tables = append(l.Tables, report.Table("countries"))
	noted := make(chan error, 1)
	go func() {
		untold, err := l.Note(context.WithoutCancel(t.Context()), nil)
		if err == nil && len(untold) > 0 {
			err = fmt.Errorf("untold: %v", untold)
		}
		noted <- err
	}()
	databasetest.AwaitLock(t, source, "%pg_create_logical_replication_slot%") // for what was written before
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-noted)
	databasetest.Exec(t, source, `delete from public.countries where code = 'zz'; insert into public.settings values ('acme', 'a', 'x')`)
	mark, err := l.Mark(t.Context())
	require.NoError(t, err)
	n, err := l.Touched(t.Context(), mark, 1000)
	require.NoError(t, err)
	require.Equal(t, []online.Touch{{Table: l.Tables[1], Key: []string{"zz"}, Moved: true}, {Table: l.Tables[0], Key: []string{"acme", "a"}, Moved: true}}, n.Rows)
	require.NoError(t, l.Unslot(t.Context(), 0))
}
