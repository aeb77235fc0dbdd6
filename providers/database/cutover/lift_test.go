package cutover_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Whoever reads a table for long, such as pg_dump, keeps no fence standing: the tenant's writers are let in at once, and the triggers go when nobody reads.
func TestAFenceIsLiftedBesideALongReader(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	require.NoError(t, s.Fence(t.Context(), tables))
	long, err := databasetest.Open(t, s.Address).Begin(t.Context())
	require.NoError(t, err)
	_, err = long.Exec(t.Context(), `select from public.settings; select from public.lines; select from public.events`)
	require.NoError(t, err)
	left := func() string {
		return databasetest.Ask(t, s.Address, `select (select count(distinct tgrelid) from pg_trigger where tgname like 'instar%' and tgparentid = 0) || ' ' || (select count(*) from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = 'instar')`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for range 2 {
		require.NoError(t, s.Lift(ctx))
		for what, sql := range writes("acme") {
			require.NoError(t, try(t, s.Address, sql), what)
		}
		require.Equal(t, "3 3", left(), "of what is read")
		var unfenced *cutover.UnfencedError
		_, err = s.KeepAndSwitch(ctx, cutover.Runtime{DatabaseName: "tenant_acme"}, []string{"public.settings", "public.orders"})
		require.ErrorAs(t, err, &unfenced)
		require.Equal(t, []string{"public.settings", "public.orders"}, unfenced.Tables, "what lets everybody through is no fence")

		require.NoError(t, s.Fence(ctx, tables))
		require.NoError(t, s.Sweep(ctx))
		for what, sql := range writes("acme") {
			require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, sql)), what)
		}
	}
	require.NoError(t, s.Lift(ctx))
	list, err := s.Tenants(ctx)
	require.NoError(t, err)
	require.Empty(t, list[0].Fenced, "nobody is refused")
	require.NotEmpty(t, list[0].Passed)
	require.NoError(t, long.Commit(ctx))
	require.NoError(t, s.Sweep(ctx))
	require.Equal(t, "0 0", left())
}

// A table has another name, or is in another schema, than when its fence was raised: that is lifted all the same, and a new fence on it is one.
func TestAFenceIsLiftedFromATableThatWasRenamed(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	before := databasetest.Everything(t, s.Address)
	rename := func(sql ...string) {
		for _, statement := range sql {
			databasetest.Exec(t, s.Address, statement)
		}
		conn := databasetest.Open(t, s.Address)
		report, err := catalog.Inspect(t.Context(), conn, catalog.Catalogue{Schemas: []string{"public", "app"}, Tables: databasetest.Catalogue.Tables})
		require.NoError(t, err)
		tables = report.Tables
	}
	rename(`create schema app`)
	lift := func() {
		t.Helper()
		require.NoError(t, s.Lift(t.Context()))
		require.Equal(t, "0 0", databasetest.Ask(t, s.Address, `select (select count(*) from pg_trigger where tgname like 'instar%') || ' ' || (select count(*) from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = 'instar')`))
	}
	const write = `update app.choices set value = 'x' where enterprise_id = 'acme'; update app.lines set article = 'x' where order_id in (select id from public.orders where enterprise_id = 'acme')`
	require.NoError(t, s.Fence(t.Context(), tables))
	rename(`alter table public.settings rename to choices`, `alter table public.choices set schema app`, `alter table public.lines set schema app`)
	require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, write)))
	lift()
	require.NoError(t, try(t, s.Address, write))

	require.NoError(t, s.Fence(t.Context(), tables))
	rename(`alter table app.choices set schema public`, `alter table public.choices rename to settings`, `alter table app.lines set schema public`)
	require.NoError(t, s.Fence(t.Context(), tables))
	for what, sql := range writes("acme") {
		require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, sql)), what)
	}
	lift()
	databasetest.Exec(t, s.Address, `drop schema app`)
	require.Equal(t, before, databasetest.Everything(t, s.Address))
}

// To drop what is left of a fence takes longer than there is time for, where many tables are read: the fence is lifted, which is all that is asked for.
func TestWhatIsLeftOfAFenceDoesNotFailItsEnd(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	require.NoError(t, s.Fence(t.Context(), tables))
	long, err := databasetest.Open(t, s.Address).Begin(t.Context())
	require.NoError(t, err)
	_, err = long.Exec(t.Context(), `select from public.settings, public.lines, public.events, public.names, public.orders, public.remarks limit 0`)
	require.NoError(t, err)
	direct := s.Address
	through := func(drops func()) {
		s.Address = databasetest.Through(t, direct, func(sql string) databasetest.Fault {
			if strings.Contains(sql, "in access exclusive mode") {
				drops()
			}
			return databasetest.None
		})
	}
	var tries atomic.Int32
	through(func() { tries.Add(1) })
	require.NoError(t, s.Lift(t.Context()))
	require.Positive(t, tries.Load())
	require.Less(t, tries.Load(), int32(4*6), "each waits for 200 ms: within a moment not all tables are tried as often as by a sweep")
	for what, sql := range writes("acme") {
		require.NoError(t, try(t, direct, sql), what)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	through(cancel) // the time of whoever lifts it is over
	require.NoError(t, s.Lift(ctx))
	require.ErrorIs(t, ctx.Err(), context.Canceled, "while what is left was dropped")
}

// A fence is raised while what an earlier one has left is dropped: it waits for that, and stands.
func TestAFenceIsRaisedWhileAnEarlierOneGoes(t *testing.T) {
	t.Parallel()
	s, tables := setup(t)
	require.NoError(t, s.Fence(t.Context(), tables))
	sweep, err := databasetest.Open(t, s.Address).Begin(t.Context())
	require.NoError(t, err)
	_, err = sweep.Exec(t.Context(), `
		lock table public.settings;
		do $$ declare t record; begin
			for t in select tgname, tgfoid::regprocedure as calls from pg_trigger where tgrelid = 'public.settings'::regclass and tgname like 'instar%' loop
				execute format('drop trigger %I on public.settings', t.tgname);
			end loop;
			execute format('drop function %s', t.calls);
		end $$`)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Fence(t.Context(), tables) }()
	require.Eventually(t, func() bool {
		return databasetest.Ask(t, s.Address, `select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == "1"
	}, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, sweep.Commit(t.Context()))
	require.NoError(t, <-ended)
	for what, sql := range writes("acme") {
		require.Equal(t, pg.ReadOnly, pg.State(try(t, s.Address, sql)), what)
	}
}
