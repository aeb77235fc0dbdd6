package databasetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Forget removes what an earlier run of a test has left of tenants' databases on a server, so that it may use the same names.
func Forget(t *testing.T, server pg.Address, names ...string) {
	t.Helper()
	if Ask(t, server, `select (to_regclass('instar.tenant_database') is not null)::text`) != "true" {
		return
	}
	left := Ask(t, server, `select coalesce(string_agg(datname, ' '), '') from pg_database where datname = any($1)
		or datname in (select stored_as from instar.tenant_database where name = any($1) union select stored_as from instar.put_away where name = any($1))`, names)
	for database := range strings.FieldsSeq(left) {
		unlink(t, server, database)
		Exec(t, server, `drop database `+pg.Ident(database)+` with (force)`)
	}
	for _, name := range names {
		Exec(t, server, `drop role if exists `+pg.Ident(name))
	}
	for _, table := range []string{"tenant_database", "put_away", "tenant_past"} {
		Exec(t, server, `delete from instar.`+table+` where name = any($1)`, names)
	}
}

// unlink ends the subscriptions of a database, and removes what the source, on the same server, has kept for them.
func unlink(t *testing.T, server pg.Address, database string) {
	t.Helper()
	const of = `select coalesce(string_agg(subname, ' '), '') from pg_subscription join pg_database d on d.oid = subdbid where datname = $1`
	for link := range strings.FieldsSeq(Ask(t, server, of, database)) {
		Exec(t, server, `alter database `+pg.Ident(database)+` allow_connections true`)
		for _, sql := range []string{` disable`, ` set (slot_name = none)`} {
			Exec(t, pg.Address{DSN: server.DSN, Database: database}, `alter subscription `+pg.Ident(link)+sql)
		}
		Exec(t, pg.Address{DSN: server.DSN, Database: database}, `drop subscription `+pg.Ident(link))
		require.Eventually(t, func() bool { return unslotted(t, server, link) }, time.Minute, 20*time.Millisecond, "its slots are in use")
	}
}

// unslotted frees slots, drops those that are free, and reports whether none is left.
func unslotted(t *testing.T, server pg.Address, link string) bool {
	t.Helper()
	const free = `select count(*)::text from pg_replication_slots where slot_name like $1 || '%' and
		case when active_pid is null then pg_drop_replication_slot(slot_name) is not null else pg_terminate_backend(active_pid) end`
	in := Ask(t, server, `select coalesce(string_agg(distinct database, ' '), '') from pg_replication_slots where slot_name like $1 || '%'`, link)
	for source := range strings.FieldsSeq(in) {
		Ask(t, pg.Address{DSN: server.DSN, Database: source}, free, link)
	}
	return in == ""
}
