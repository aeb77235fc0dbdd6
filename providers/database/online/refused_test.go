package online_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A lack of slots, for which all tables fail at once, is waited for; the plan says it before.
// It is not parallel: it takes all slots of the cluster.
func TestALackOfSlotsEnds(t *testing.T) {
	source, target := databasetest.Shared(t, &suite, 5, "acme"), pg.Address{DSN: suite.Database(t)}
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), target, nil))
	conn := databasetest.Open(t, target)
	_, err := conn.Exec(t.Context(), `create schema instar; create table instar.marker (session text primary key, token text not null, set_at timestamptz not null default now())`)
	require.NoError(t, err)
	report := inspect(t, source, databasetest.Catalogue)
	l := &online.Link{Source: source, Target: target, Session: "s6", Enterprise: "acme", Tables: []*catalog.Table{report.Table("orders"), report.Table("settings")}}
	problems, err := l.Check(t.Context())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(problems, " "), "slots")

	databasetest.Exec(t, source, `alter table public.orders replica identity full`)
	take := func(slots int) {
		databasetest.Exec(t, source, `select pg_create_physical_replication_slot('taken_' || i) from generate_series((select count(*) from pg_replication_slots) + 1, $1) i`, slots)
	}
	take(37)
	problems, err = l.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"37 of 40 replication slots of the source are in use, and 4 are needed while tables are copied: raise max_replication_slots, or wait for other moves"}, problems)

	require.NoError(t, l.Publish(t.Context()))
	require.NoError(t, l.Slot(t.Context()))
	take(40)
	require.NoError(t, l.Subscribe(t.Context()))
	copied := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	go func() { copied <- l.AwaitCopy(ctx) }()
	require.Eventually(t, func() bool {
		var errors int
		require.NoError(t, conn.QueryRow(t.Context(), `select coalesce(sum(sync_error_count), 0) from pg_stat_subscription_stats where subname = $1`, l.Name()).Scan(&errors))
		return errors > 10
	}, 30*time.Second, 10*time.Millisecond)
	databasetest.Exec(t, source, `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_type = 'physical'`)
	require.NoError(t, <-copied)
	require.NoError(t, l.Remove(ctx))
}

// What fails is given up after a minute in which nothing got any further, and not for a moment of many errors.
func TestWhenACopyIsGivenUp(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		of  func(second int) (whole int, rows, errors int64)
		end int
	}{
		"it fails all the time":                 {func(n int) (int, int64, int64) { return 2, 0, int64(n) / 5 }, 65},
		"it fails at the same row":              {func(n int) (int, int64, int64) { return 2, int64(n%5) * 100, int64(n) / 5 }, 65},
		"many fail at once":                     {func(n int) (int, int64, int64) { return 2, 0, int64(min(n, 20)) }, 0},
		"another is read":                       {func(n int) (int, int64, int64) { return 2, int64(n), int64(n) / 5 }, 0},
		"others get whole":                      {func(n int) (int, int64, int64) { return n / 30, 0, int64(n) / 5 }, 0},
		"it fails from a table on that is read": {func(n int) (int, int64, int64) { return n / 100, int64(min(n, 50)), int64(n) / 5 }, 165},
		"few fail":                              {func(n int) (int, int64, int64) { return 2, 0, int64(n) / 100 }, 0},
	} {
		require.Equal(t, c.end, online.Refusals(time.Minute, c.of, 300), what)
	}
}

// Many sessions that begin at once let the role of the target in, each for itself.
func TestManyLetTheRoleOfTheTargetIn(t *testing.T) {
	t.Parallel()
	source := databasetest.Shared(t, &suite, 1, "acme")
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	report := inspect(t, source, databasetest.Catalogue)
	for range 10 {
		role := "reader_" + strings.ToLower(rand.Text()[:8])
		databasetest.Exec(t, source, `create role `+role)
		var all errgroup.Group
		for range 8 {
			l := &online.Link{Source: source, From: "user=" + role, Session: rand.Text(), Enterprise: "acme", Tables: []*catalog.Table{report.Table("settings")}}
			all.Go(func() error { return l.Publish(t.Context()) })
		}
		require.NoError(t, all.Wait())
		require.Equal(t, "true", databasetest.Ask(t, source, `select (has_schema_privilege($1, 'instar', 'USAGE') and has_table_privilege($1, 'instar.marker', 'SELECT'))::text`, role))
	}
}

// Of a key that the log does not have nothing is noted: that of a table that is copied whole is compared whole, and what has rows of tenants is refused. Others go on writing to it.
// It is not parallel: a slot waits for every transaction of the cluster.
func TestAKeyThatTheLogDoesNotHave(t *testing.T) {
	source := databasetest.Shared(t, &suite, 1, "acme")
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	databasetest.Exec(t, source, `
		create table public.late (code text not null unique, name text, primary key (code) deferrable);
		create table public.computed (code text not null, low text generated always as (lower(code)) stored primary key);
		create table public.parts (order_id bigint references public.orders, code text not null, low text generated always as (lower(code)) stored, primary key (order_id, low))`)
	report := inspect(t, source, catalog.Catalogue{Tables: map[string]catalog.Rule{"late": {Kind: catalog.Reference}, "computed": {Kind: catalog.Reference}, "countries": {Kind: catalog.Reference}, "log": {Kind: catalog.Skip}}})
	l := &online.Link{Source: source, Session: "s7", Enterprise: "acme", Tables: []*catalog.Table{report.Table("countries"), report.Table("late"), report.Table("computed")}}
	untold, err := l.Note(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, l.Tables[1:], untold)
	databasetest.Exec(t, source, `insert into public.late values ('a', 'x'); update public.late set name = 'y'; insert into public.computed values ('A'); delete from public.computed`)
	require.NoError(t, l.Unslot(t.Context(), 0))
	l.Tables = []*catalog.Table{report.Table("parts")}
	problems, err := l.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"parts: its key has the generated column low, so that it cannot be seen which rows are written: move it offline"}, problems)
}

func inspect(t *testing.T, source pg.Address, c catalog.Catalogue) *catalog.Report {
	t.Helper()
	conn, err := pg.Connect(t.Context(), source)
	require.NoError(t, err)
	defer pg.Close(conn)
	report, err := catalog.Inspect(t.Context(), conn, c)
	require.NoError(t, err)
	return report
}
