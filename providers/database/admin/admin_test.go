package admin_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// server is one on which nothing has these names.
func server(t *testing.T, names ...string) *admin.Server {
	t.Helper()
	s := &admin.Server{Name: "t1", DSN: suite.Cluster(t).DSN("postgres")}
	require.NoError(t, s.Setup(t.Context()))
	databasetest.Forget(t, pg.Address{DSN: s.DSN}, names...)
	return s
}

func names(t *testing.T, s *admin.Server, like string) string {
	t.Helper()
	return databasetest.Ask(t, pg.Address{DSN: s.DSN}, `select coalesce(string_agg(datname, ' ' order by datname), '') from pg_database where datname like $1`, like)
}

func TestADatabaseIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_once", "tenant_foreign")
	spec := admin.Spec{Name: "tenant_once", Session: "s1", Fence: 1}
	var all sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		all.Go(func() { errs[i] = s.Create(t.Context(), spec) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, "instar session s1", databasetest.Ask(t, pg.Address{DSN: s.DSN}, `select shobj_description(oid, 'pg_database') from pg_database where datname = 'tenant_once'`))

	var refused *pg.RefusedError
	require.ErrorAs(t, s.Create(t.Context(), admin.Spec{Name: "tenant_once", Session: "s2", Fence: 9}), &refused)
	require.Contains(t, refused.Message, "belongs to session s1")
	databasetest.Exec(t, pg.Address{DSN: s.DSN}, `create database tenant_foreign`)
	require.ErrorAs(t, s.Create(t.Context(), admin.Spec{Name: "tenant_foreign", Session: "s1", Fence: 1}), &refused)
	require.Contains(t, refused.Message, "not made here")
	require.NoError(t, s.Quarantine(t.Context(), admin.Spec{Name: "tenant_foreign", Session: "s1", Fence: 2}, 0))
	require.Equal(t, "tenant_foreign", names(t, s, "%foreign%"), "it is never touched")
}

func role(t *testing.T, s *admin.Server, spec admin.Spec, sealed string) secret.Credentials {
	t.Helper()
	c := secret.New(spec.Name)
	got, err := s.Role(t.Context(), spec, func() (secret.Credentials, string, error) { return c, sealed, nil })
	require.NoError(t, err)
	require.Equal(t, sealed, got)
	return c
}

func TestARoleGetsInByItsPasswordOnly(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_role", "tenant_role2")
	spec := admin.Spec{Name: "tenant_role", Session: "s1", Fence: 1}
	require.NoError(t, s.Create(t.Context(), spec))
	first := role(t, s, spec, "first")
	_, err := s.Role(t.Context(), spec, func() (secret.Credentials, string, error) { panic("it has some") })
	require.NoError(t, err, "the same call again")
	databasetest.Exec(t, pg.Address{DSN: s.DSN, Database: spec.Name}, `create table public.a (id int)`)
	require.NoError(t, s.Grant(t.Context(), spec.Name, spec.Name, []string{"public"}))
	enter := func(database string, c secret.Credentials) error {
		config, err := pgx.ParseConfig(s.DSN)
		require.NoError(t, err)
		config.Database, config.User, config.Password = database, c.User, c.Password
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			return err
		}
		defer pg.Close(conn)
		_, err = conn.Exec(t.Context(), `insert into public.a values (1)`)
		return err
	}
	require.NoError(t, enter(spec.Name, first))
	spec.Fence = 2
	second := role(t, s, spec, "second")
	require.Error(t, enter(spec.Name, first), "rotated")
	require.NoError(t, enter(spec.Name, second))
	require.NoError(t, s.Try(t.Context(), spec.Name, second))
	elsewhere := *s
	elsewhere.Host = "127.0.0.1:1"
	require.ErrorContains(t, elsewhere.Try(t.Context(), spec.Name, second), "at 127.0.0.1:1", "it is what applications are told that counts")
	require.NoError(t, s.Shut(t.Context(), spec))
	require.Error(t, enter(spec.Name, second))
	require.NoError(t, s.Admit(t.Context(), spec))
	require.NoError(t, enter(spec.Name, second))

	other := admin.Spec{Name: "tenant_role2", Session: "s2", Fence: 1}
	require.NoError(t, s.Create(t.Context(), other))
	require.Error(t, enter(other.Name, second), "another tenant's database is closed to it")
}

func TestALateCreateIsRefusedAfterTheUndo(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_late", "tenant_late2")
	var obsolete *pg.ObsoleteError
	const grace = 24 * time.Hour // longer than the sweep of the test beside it, on the same server, is ahead
	for _, made := range []bool{true, false} {
		spec := admin.Spec{Name: "tenant_late", Session: "s1", Fence: 3}
		if made {
			require.NoError(t, s.Create(t.Context(), spec))
		} else {
			spec.Name = "tenant_late2"
		}
		undo := spec
		undo.Fence = 4
		require.NoError(t, s.Quarantine(t.Context(), undo, grace))
		require.ErrorAs(t, s.Create(t.Context(), spec), &obsolete)
		require.NoError(t, s.Quarantine(t.Context(), undo, grace), "again")
		require.ErrorAs(t, s.Quarantine(t.Context(), spec, grace), &obsolete)
	}
	require.Regexp(t, `^q_[0-9a-f]{8}_4_tenant_late$`, names(t, s, "%tenant\\_late%"))

	// The next life of the tenant begins beside it.
	require.NoError(t, s.Create(t.Context(), admin.Spec{Name: "tenant_late", Session: "s1", Fence: 7}))
	require.NoError(t, s.Quarantine(t.Context(), admin.Spec{Name: "tenant_late", Session: "s1", Fence: 8}, 0))
}

// What a session has undone stays undone while others have the name, and when they have gone.
func TestALateCreateIsRefusedAfterOthersHadTheName(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_after")
	spec := func(session string, fence uint64) admin.Spec {
		return admin.Spec{Name: "tenant_after", Session: session, Fence: fence}
	}
	var obsolete *pg.ObsoleteError
	require.NoError(t, s.Create(t.Context(), spec("s1", 3)))
	require.NoError(t, s.Quarantine(t.Context(), spec("s1", 5), 0))
	require.NoError(t, s.Create(t.Context(), spec("s2", 1)))
	require.NoError(t, s.Quarantine(t.Context(), spec("s3", 7), 0), "it never had one")
	require.NoError(t, s.Quarantine(t.Context(), spec("s2", 2), 0))
	require.ErrorAs(t, s.Create(t.Context(), spec("s1", 3)), &obsolete)
	require.Equal(t, uint64(5), obsolete.Seen)
	require.ErrorAs(t, s.Create(t.Context(), spec("s3", 6)), &obsolete)
	require.Equal(t, uint64(7), obsolete.Seen)
	require.NoError(t, s.Create(t.Context(), spec("s1", 6)), "a new life of it")
	require.NoError(t, s.Quarantine(t.Context(), spec("s1", 6), 0))
}

func TestQuarantineEndsConnectionsAndIsSweptAfterItsGracePeriod(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_gone")
	spec := admin.Spec{Name: "tenant_gone", Session: "s1", Fence: 1}
	require.NoError(t, s.Create(t.Context(), spec))
	role(t, s, spec, "x")
	conn := databasetest.Open(t, pg.Address{DSN: s.DSN, Database: spec.Name})
	spec.Fence = 2
	require.NoError(t, s.Quarantine(t.Context(), spec, time.Hour))
	require.Error(t, conn.Ping(t.Context()))
	aside := names(t, s, "q%tenant\\_gone")
	require.NotEmpty(t, aside)
	_, err := pg.Connect(t.Context(), pg.Address{DSN: s.DSN, Database: aside})
	require.Error(t, err)

	gone, err := s.Sweep(t.Context(), time.Now())
	require.NoError(t, err)
	require.NotContains(t, gone, "tenant_gone")
	gone, err = s.Sweep(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Contains(t, gone, "tenant_gone")
	require.Empty(t, names(t, s, "%tenant\\_gone"))
	require.Equal(t, "0", databasetest.Ask(t, pg.Address{DSN: s.DSN}, `select count(*)::text from pg_roles where rolname = 'tenant_gone'`))
}

// Each life of a tenant leaves a database of its own; its role goes with the last, and one that cannot be dropped keeps no other.
func TestEachLifeIsSwept(t *testing.T) { // before those beside it, whose databases it would sweep
	s := server(t, "tenant_lives", "tenant_bound")
	for i := range 2 {
		for _, name := range []string{"tenant_lives", "tenant_bound"} {
			spec := admin.Spec{Name: name, Session: "s1", Fence: uint64(i)*2 + 1}
			require.NoError(t, s.Create(t.Context(), spec))
			role(t, s, spec, "x")
			spec.Fence++
			require.NoError(t, s.Quarantine(t.Context(), spec, time.Hour*time.Duration(i+1)))
		}
	}
	databasetest.Exec(t, pg.Address{DSN: s.DSN}, `create schema bound authorization tenant_bound`) // so that this role cannot be dropped
	roles := func() string {
		return databasetest.Ask(t, pg.Address{DSN: s.DSN}, `select coalesce(string_agg(rolname, ' ' order by rolname), '') from pg_roles where rolname in ('tenant_lives', 'tenant_bound')`)
	}
	gone, err := s.Sweep(t.Context(), time.Now().Add(90*time.Minute))
	require.NoError(t, err)
	require.Contains(t, gone, "tenant_lives")
	require.Equal(t, "tenant_bound tenant_lives", roles())
	require.Len(t, strings.Fields(names(t, s, "q%tenant\\_lives")), 1)

	gone, err = s.Sweep(t.Context(), time.Now().Add(150*time.Minute))
	require.ErrorContains(t, err, "cannot drop role tenant_bound")
	require.Contains(t, gone, "tenant_lives", "the one before it in the order of names does not keep it")
	require.Equal(t, "tenant_bound", roles())
	require.Empty(t, names(t, s, "q%tenant\\_lives"))
	databasetest.Exec(t, pg.Address{DSN: s.DSN}, `drop schema bound`)
	gone, err = s.Sweep(t.Context(), time.Now().Add(150*time.Minute))
	require.NoError(t, err)
	require.Contains(t, gone, "tenant_bound")
	require.Empty(t, roles())
}

func TestATemplateIsWholeOrAbsent(t *testing.T) {
	t.Parallel()
	s := server(t, "tenant_templated")
	set, hash := databasetest.Migrations(), strings.ToLower(rand.Text()) // of no run before
	_, err := s.Template(t.Context(), hash, func(context.Context, pg.Address) error { return errors.New("a bad migration") })
	require.ErrorContains(t, err, "a bad migration")
	require.Empty(t, names(t, s, "instar\\_template\\_"+hash+"%"))
	fills := 0
	for range 2 {
		name, err := s.Template(t.Context(), hash, func(ctx context.Context, a pg.Address) error { fills++; return set.Apply(ctx, a, nil) })
		require.NoError(t, err)
		require.NoError(t, s.Create(t.Context(), admin.Spec{Name: "tenant_templated", Session: "s1", Fence: 1, Template: name}))
	}
	require.Equal(t, 1, fills)
	applied, err := set.Applied(t.Context(), s.Address("tenant_templated", ""))
	require.NoError(t, err)
	require.Len(t, applied, 2)
	require.Equal(t, "00001_tables.sql", applied[0].Name)
}

// The template of migrations that are not the present ones any more goes when it has not been used for a while.
func TestAFormerTemplateIsDropped(t *testing.T) {
	t.Parallel()
	s := server(t)
	hash := strings.ToLower(rand.Text())
	name, err := s.Template(t.Context(), hash, func(context.Context, pg.Address) error { return nil })
	require.NoError(t, err)
	databasetest.Exec(t, pg.Address{DSN: s.DSN}, `update instar.template set used_at = '2020-01-02' where name = $1`, name)
	sweep := func(present string, before string) []string {
		at, err := time.Parse(time.DateOnly, before)
		require.NoError(t, err)
		gone, err := s.SweepTemplates(t.Context(), present, at)
		require.NoError(t, err)
		return gone
	}
	require.Empty(t, sweep(name, "2020-01-03"), "it is the present one")
	require.Empty(t, sweep("instar_template_x", "2020-01-01"), "it was used since")
	require.Equal(t, name, names(t, s, name))
	require.Equal(t, []string{name}, sweep("instar_template_x", "2020-01-03"))
	require.Empty(t, names(t, s, name))
	require.Empty(t, sweep("instar_template_x", "2020-01-03"))
}

// Servers restart, and others end connections that rest: what is kept is not relied on.
func TestAConnectionThatHasEndedIsNotKept(t *testing.T) {
	t.Parallel()
	s, kept := server(t), &pg.Kept{}
	defer kept.Close()
	a := pg.Address{DSN: s.DSN, Name: "instar resting", Kept: kept}
	pid := func() (n int) {
		conn, err := pg.Connect(t.Context(), a)
		require.NoError(t, err)
		defer pg.Close(conn)
		require.NoError(t, conn.QueryRow(t.Context(), `select pg_backend_pid()`).Scan(&n))
		return n
	}
	first := pid()
	require.Equal(t, first, pid())
	databasetest.Exec(t, pg.Address{DSN: s.DSN}, `select pg_terminate_backend($1, 60000)`, first)
	require.NotEqual(t, first, pid())
	conn, err := pg.Connect(t.Context(), a)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `begin`)
	require.NoError(t, err)
	second := conn.PgConn().PID()
	pg.Close(conn)
	require.NotEqual(t, int(second), pid(), "one in a transaction")
}

// What one has used rests for the next, under no name, and without what was prepared: a table may have another column by then.
func TestAConnectionRestsForTheNext(t *testing.T) {
	t.Parallel()
	s, idle := server(t), &pg.Idle{For: 5 * time.Minute}
	at := func(name string, do func(*pgx.Conn)) {
		kept := &pg.Kept{Idle: idle}
		defer kept.Close()
		conn, err := pg.Connect(t.Context(), pg.Address{DSN: s.DSN, Name: name, Kept: kept})
		require.NoError(t, err)
		defer pg.Close(conn)
		do(conn)
	}
	columns := func(conn *pgx.Conn) int {
		rows, err := conn.Query(t.Context(), `select * from pg_temp.growing`)
		require.NoError(t, err)
		rows.Close()
		require.NoError(t, rows.Err())
		return len(rows.FieldDescriptions())
	}
	name := func(pid uint32) string {
		return databasetest.Ask(t, pg.Address{DSN: s.DSN}, `select coalesce(max(application_name), 'it has ended') from pg_stat_activity where pid = $1::int`, pid)
	}
	var first uint32
	at("instar 1 one", func(conn *pgx.Conn) {
		first = conn.PgConn().PID()
		_, err := conn.Exec(t.Context(), `create temp table growing (a int)`)
		require.NoError(t, err)
		require.Equal(t, 1, columns(conn))
		_, err = conn.Exec(t.Context(), `alter table pg_temp.growing add b int`)
		require.NoError(t, err)
	})
	require.Equal(t, "instar idle", name(first))
	at("instar 2 two", func(conn *pgx.Conn) {
		require.Equal(t, first, conn.PgConn().PID())
		require.Equal(t, "instar 2 two", name(first))
		require.Equal(t, 2, columns(conn))
		_, err := conn.Exec(t.Context(), `begin`)
		require.NoError(t, err)
	})
	idle.For = time.Millisecond
	at("instar 3 three", func(conn *pgx.Conn) {
		require.NotEqual(t, first, conn.PgConn().PID(), "that one was in a transaction")
		first = conn.PgConn().PID()
	})
	require.Eventually(t, func() bool { return name(first) == "it has ended" }, 30*time.Second, 50*time.Millisecond, "it rests for a moment")
}

// A node that stands still while it makes the register keeps no other from it for longer than a few seconds.
func TestANodeThatIsFrozenWhileItMakesTheRegister(t *testing.T) {
	t.Parallel()
	s := server(t)
	still := *s
	through, at, goesOn := databasetest.Freeze(t, pg.Address{DSN: s.DSN}, "pg_advisory")
	still.DSN = through.DSN
	ended := make(chan error, 1)
	go func() { ended <- still.Setup(context.WithoutCancel(t.Context())) }()
	<-at
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, s.Setup(ctx))
	goesOn()
	again, _ := pg.Transient(<-ended)
	require.True(t, again)
}
