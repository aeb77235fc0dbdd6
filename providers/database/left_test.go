package database_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// What no session is about is found, wherever it is, and so is what a session is about and is not there. Of a move that goes on, or has ended well, there is nothing to tell.
func TestWhatMovesHaveLeftIsFound(t *testing.T) { // not beside the sweeps of others, which remove what it puts away
	s, target := ready(t, "leaving", "tenant_leaving")
	server := pg.Address{DSN: s.p.Server.DSN}
	session := s.e.Key()
	sessions := map[string]bool{session: true}
	left := func() (list []string) {
		known := func(name string) bool { return sessions[name] }
		shared, err := s.p.SharedLeftovers(t.Context(), known)
		require.NoError(t, err)
		own, err := s.p.Leftovers(t.Context(), known)
		require.NoError(t, err)
		for _, l := range append(shared, own...) {
			require.NotEmpty(t, l.Reason)
			if strings.HasPrefix(l.On, "server ") && !strings.Contains(l.Name, "leaving") { // of another test
				continue
			}
			list = append(list, strings.TrimSpace(l.Kind+" "+l.Name+" on "+l.On+" of "+l.Tenant))
		}
		return list
	}
	require.Empty(t, left())

	conn, moved, own := databasetest.Open(t, server), make(chan error, 1), s.p.Server.DSN
	var once sync.Once
	s.p.Server.DSN = databasetest.Through(t, server, func(sql string) databasetest.Fault {
		if strings.Contains(sql, "from instar.put_away") { // the register is read
			once.Do(func() {
				_, err := conn.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'tenant_leaving'; alter database tenant_leaving rename to q_leaving; update instar.tenant_database set stored_as = 'q_leaving', state = 'quarantined' where name = 'tenant_leaving'`)
				moved <- err
			})
		}
		return databasetest.None
	}).DSN
	require.Empty(t, left(), "its session puts it away meanwhile")
	require.NoError(t, <-moved)
	s.p.Server.DSN = own
	databasetest.Exec(t, server, `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'q_leaving'`)
	databasetest.Exec(t, server, `alter database q_leaving rename to tenant_leaving; update instar.tenant_database set state = 'created' where name = 'tenant_leaving'`)
	require.Empty(t, left(), "it is registered where it will be")
	databasetest.Exec(t, server, `update instar.tenant_database set stored_as = name where name = 'tenant_leaving'`)

	stray := (&online.Link{Session: "default.leaving.lost"}).Name()
	databasetest.Exec(t, s.p.Source, `create publication `+stray)
	databasetest.Exec(t, s.p.Source, `select pg_create_logical_replication_slot($1, 'pgoutput')`, stray)
	databasetest.Exec(t, server, `create role leaving_role; comment on role leaving_role is 'instar session default.leaving.lost'`)
	databasetest.Exec(t, server, `create database leaving_database`)
	databasetest.Exec(t, server, `comment on database leaving_database is 'instar session default.leaving.lost'`)
	databasetest.Exec(t, server, `insert into instar.put_away values ('q_leaving', 'tenant_leaving', now() - interval '1 day')`)
	require.Equal(t, []string{
		"slot " + stray + " on shared database of", "publication " + stray + " on shared database of",
		"quarantine q_leaving on server t1 of", "database leaving_database on server t1 of", "role leaving_role on server t1 of",
	}, left())
	databasetest.Exec(t, s.p.Source, `select pg_drop_replication_slot($1)`, stray)
	databasetest.Exec(t, s.p.Source, `drop publication `+stray)
	databasetest.Exec(t, server, `drop role leaving_role`)
	databasetest.Exec(t, server, `drop database leaving_database`)
	databasetest.Exec(t, server, `delete from instar.put_away where stored_as = 'q_leaving'`)

	sessions = nil // as in a store that was restored
	require.Equal(t, []string{"session " + session + " on shared database of leaving", "database tenant_leaving on server t1 of leaving"}, left())
	databasetest.Exec(t, s.p.Source, `delete from public.tenant_runtime`)
	databasetest.Exec(t, s.p.Source, `update instar.attempt set ended = true`)
	both := left()
	require.Len(t, both, 2)
	require.Regexp(t, `^fence instar_fence_[0-9a-f]{12}_\{i,u,d,t\} on public\..*public\.settings.* of leaving$`, both[0])
	require.Equal(t, "database tenant_leaving on server t1 of", both[1])

	sessions = map[string]bool{session: true}
	databasetest.Exec(t, s.p.Source, `update instar.attempt set ended = false`)
	require.NotEmpty(t, target.Database)
	databasetest.Exec(t, server, `drop database tenant_leaving with (force)`)
	both = left()
	require.Len(t, both, 2)
	require.Regexp(t, `^fence instar_fence_.* of leaving$`, both[0], "its session has switched it, and it is not led there any more")
	require.Equal(t, "missing tenant_leaving on server t1 of", both[1])
}

// Where nothing was moved yet there is nothing.
func TestWhereNothingWasMovedNothingIsLeft(t *testing.T) {
	t.Parallel()
	s := setup(t, "unmoved")
	none := func(string) bool { return false }
	shared, err := s.p.SharedLeftovers(t.Context(), none)
	require.NoError(t, err)
	require.Empty(t, shared)
	_, err = s.p.Leftovers(t.Context(), none)
	require.NoError(t, err)
	s.command("request", `{"dryRun":true}`)
	require.Equal(t, machine.Cancelled, s.e.State)
	shared, err = s.p.SharedLeftovers(t.Context(), none)
	require.NoError(t, err)
	require.Empty(t, shared)
	require.Equal(t, "default.unmoved.db", database.SessionName(s.e.Machine, s.e.Key()))
	require.Equal(t, "instance_provisioning/default.unmoved.db", database.SessionName("instance_provisioning", s.e.Key()))
}

// A rollback beside a long reader, such as pg_dump, lets the tenant write; what it leaves of the fence is told, and the sweep drops it when nobody reads.
func TestARollbackBesideALongReader(t *testing.T) {
	t.Parallel()
	s := setup(t, "dumped")
	s.p.Told = refusesOwn
	s.command("request", `{}`)
	require.Equal(t, machine.Failed, s.e.State)
	reader, err := databasetest.Open(t, s.p.Source).Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `select from public.settings`)
	require.NoError(t, err)
	s.command("rollback", `{}`)
	require.Equal(t, machine.RolledBack, s.e.State, "%+v", s.e.Data.(*machine.Data).Undone)
	require.NoError(t, exec(t, s.p.Source, `update public.settings set value = 'x' where enterprise_id = 'dumped'`))
	left := func() []database.Leftover {
		_, err := s.p.Sweep(t.Context())
		require.NoError(t, err)
		list, err := s.p.SharedLeftovers(t.Context(), func(string) bool { return false })
		require.NoError(t, err)
		return list
	}
	require.Len(t, left(), 1)
	require.Equal(t, "fence public.settings", left()[0].Kind+" "+left()[0].On)
	require.NoError(t, reader.Commit(t.Context()))
	require.Empty(t, left())
}
