package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

func inspect(t *testing.T, a pg.Address, c catalog.Catalogue) *catalog.Report {
	t.Helper()
	conn, err := pg.Connect(t.Context(), a)
	require.NoError(t, err)
	defer pg.Close(conn)
	r, err := catalog.Inspect(t.Context(), conn, c)
	require.NoError(t, err)
	return r
}

func TestKindsAreDerived(t *testing.T) {
	t.Parallel()
	r := inspect(t, databasetest.Shared(t, &suite, 3, "acme"), databasetest.Catalogue)
	kinds := map[string]catalog.Kind{}
	place := map[string]int{}
	for i, table := range r.Tables {
		kinds[table.String()], place[table.String()] = table.Kind, i
	}
	require.Equal(t, map[string]catalog.Kind{
		"countries": catalog.Reference, "orders": catalog.Tenant, "settings": catalog.Tenant, "names": catalog.Tenant, "events": catalog.Tenant,
		"lines": catalog.Child, "remarks": catalog.Child,
	}, kinds)
	require.Less(t, place["countries"], place["orders"])
	require.Less(t, place["orders"], place["lines"])
	require.Less(t, place["lines"], place["remarks"])
	require.Empty(t, r.Refused(false))
	require.Len(t, r.Left, 1)

	orders := r.Table("orders")
	require.Equal(t, "text", orders.Format(), "an array of a type that was made there")
	require.NotContains(t, orders.Copied(), `"twice"`)
	require.Equal(t, []string{`"public"."orders_id_seq"`}, orders.Sequences)
	require.Equal(t, "binary", r.Table("lines").Format())
	require.True(t, r.Table("events").Partitioned)

	var online []string
	for _, p := range r.Refused(true) {
		online = append(online, p.String())
	}
	require.Len(t, online, 3)
	require.Contains(t, online[0], "events: it is partitioned")
	require.Contains(t, online[1], "names: its replica identity does not have enterprise_id")
	require.Contains(t, online[2], "orders: its replica identity does not have enterprise_id")
}

func TestWhatCannotBeMovedIsNamedWithItsReason(t *testing.T) {
	t.Parallel()
	a := databasetest.Shared(t, &suite, 1, "acme")
	databasetest.Exec(t, a, `
		create table keyless (enterprise_id text, a int);
		create table nobody (id int primary key);
		create table two (id int primary key, order_id bigint not null references orders, name text not null references names);
		create table base (enterprise_id text primary key); create table heir (primary key (enterprise_id)) inherits (base);
		create table blobs (enterprise_id text primary key, data oid);
		create table away (id int primary key, enterprise_id text, place int not null references nobody);
		create table shy (enterprise_id text primary key);
		select lo_create(0);
		create materialized view mv as select 1 as a`)
	c := databasetest.Catalogue
	c.Tables = map[string]catalog.Rule{"countries": {Kind: catalog.Reference}, "log": {Kind: catalog.Skip}, "gone": {Kind: catalog.Skip}, "nobody": {Kind: catalog.Skip}, "shy": {Kind: catalog.Tenant, Column: "nothing"}}
	reasons := map[string]string{}
	r := inspect(t, a, c)
	for _, p := range r.Refused(false) {
		reasons[p.Table] += p.Reason + ". "
	}
	for table, why := range map[string]string{
		"keyless": "no primary key", "two": "no single foreign key", "base": "inherits", "heir": "inherits", "blobs": "large objects", "away": "leads to nobody, which is skipped",
		"gone": "no such table", "shy": "there is none",
	} {
		require.Contains(t, reasons[table], why, table)
	}
	require.Len(t, reasons, 8, "%v", reasons)
	require.Contains(t, r.Notes[0], "public.mv")
	require.Nil(t, r.Table("shy"), "nothing is asked about its rows")

	c.Tables["two"] = catalog.Rule{Via: "two_order_id_fkey"}
	require.Equal(t, catalog.Child, inspect(t, a, c).Table("two").Kind)
}

// Which rows of a child are written is read from the log, as of the tables that are replicated.
func TestAChildThatCannotBeFollowedIsNamedForModeOnline(t *testing.T) {
	t.Parallel()
	a := databasetest.Shared(t, &suite, 1, "acme")
	databasetest.Exec(t, a, `
		create table parts (name text not null references names, n int, primary key (name, n)) partition by range (n); create table parts_all partition of parts default;
		create unlogged table fleeting (name text primary key references names)`)
	r := inspect(t, a, databasetest.Catalogue)
	var online []string
	for _, p := range r.Refused(true) {
		online = append(online, p.String())
	}
	require.Contains(t, online, "parts: it is partitioned: move it offline")
	require.Contains(t, online, "fleeting: it is unlogged: nothing of it is replicated")
	require.Empty(t, r.Refused(false))
}

func TestAConditionTakesTheTenantAsAText(t *testing.T) {
	t.Parallel()
	table := catalog.Table{Schema: "public", Name: "x", Kind: catalog.Tenant, Column: `a"b`, ColumnType: "text"}
	require.Equal(t, `t."a""b" operator(pg_catalog.=) 'x'' or true --'::text`, table.Where("x' or true --"))
}

// What the shared database demands of new rows only, its old ones may break. The rows of others are not asked.
func TestWhatOldRowsNeedNotMeetIsAskedOfThem(t *testing.T) {
	t.Parallel()
	a, b := databasetest.Shared(t, &suite, 3, "acme", "other"), databasetest.Shared(t, &suite, 0)
	source, target := databasetest.Open(t, a), databasetest.Open(t, b)
	databasetest.Exec(t, a, `insert into public.settings values ('acme', 'one', 'twice'), ('acme', 'two', 'twice'); insert into public.lines select id, 0, 'none' from public.orders where enterprise_id = 'other' limit 1;
		alter table public.settings add constraint other check (value <> 'twice') not valid`)
	_, err := source.Exec(t.Context(), `create unique index concurrently on public.settings (value)`)
	require.ErrorContains(t, err, "could not create unique index")
	databasetest.Exec(t, b, `alter table public.settings add constraint other check (value <> 'twice'); create unique index on public.settings (value); alter table public.lines add check (10 / n > 0)`)
	problems, err := catalog.Broken(t.Context(), source, target, inspect(t, a, databasetest.Catalogue).Tables, "acme")
	require.NoError(t, err)
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	const breaks = "settings: rows of the tenant break what the shared database does not demand: "
	require.Equal(t, []string{breaks + "check ((value <> 'twice'::text))", breaks + "unique (value)"}, texts)
}
