package online_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// small is a server that has one worker of logical replication: one that applies leaves none to copy.
var small = postgres.Suite{Config: with("max_logical_replication_workers", "1")}

// two is a server on which one session replicates at a time.
var two = postgres.Suite{Config: with("max_logical_replication_workers", "2")}

// usual is a server with as many workers as Postgres comes with.
var usual = postgres.Suite{Config: with("max_logical_replication_workers", "4")}

func with(setting, value string) map[string]string {
	config := maps.Clone(databasetest.Config)
	config[setting] = value
	return config
}

// link is one of a session whose databases are new, and that replicates the table settings.
func link(t *testing.T, suite *postgres.Suite, session string) *online.Link {
	t.Helper()
	l := &online.Link{Source: databasetest.Shared(t, suite, 5, "acme"), Target: pg.Address{DSN: suite.Database(t)}, Session: session, Enterprise: "acme"}
	require.NoError(t, (&cutover.Source{Address: l.Source}).Setup(t.Context()))
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), l.Target, nil))
	databasetest.Exec(t, l.Target, `create schema instar; create table instar.marker (session text primary key, token text not null, set_at timestamptz not null default now())`)
	l.Tables = []*catalog.Table{inspect(t, l.Source, databasetest.Catalogue).Table("settings")}
	return l
}

// Where other subscriptions have all workers, Postgres copies nothing and says nothing: the plan says it, a session waits a while for others and then says it, and one that was overtaken in that does.
func TestALackOfWorkersIsTold(t *testing.T) {
	t.Parallel()
	l := link(t, &small, "s8")
	l.Patience = 2 * time.Second
	source, target := l.Source, l.Target
	problems, err := l.CheckTarget(t.Context(), pg.Address{DSN: target.DSN})
	require.NoError(t, err)
	require.Equal(t, []string{"0 of 1 workers of logical replication of the tenant's server are in use, and 2 are needed, one of them to copy tables: raise max_logical_replication_workers there, or wait for other moves"}, problems)
	require.NoError(t, l.Publish(t.Context()))
	require.NoError(t, l.Slot(t.Context()))
	err = l.Subscribe(t.Context())
	require.ErrorContains(t, err, "raise max_logical_replication_workers")
	again, _ := pg.Transient(err)
	require.True(t, again)
	subscriptions := func() string {
		return databasetest.Ask(t, target, `select coalesce(string_agg(subenabled::text, ' '), 'none') from pg_subscription`)
	}
	require.Equal(t, "none", subscriptions())

	databasetest.Exec(t, target, fmt.Sprintf(`create subscription %[1]s connection %[2]s publication %[1]s with (create_slot = false, slot_name = %[1]s)`, pg.Ident(l.Name()), pg.Literal(source.DSN))) // as several do at once
	require.NoError(t, l.Subscribe(t.Context()), "it is there")
	err = l.AwaitCopy(t.Context())
	require.ErrorContains(t, err, "no worker of the tenant's server copies instar.marker, settings: 1 of 1 workers of logical replication run there, 1 of them for this session")

	problems, err = (&online.Link{Session: "s9"}).CheckTarget(t.Context(), target)
	require.NoError(t, err)
	require.Equal(t, []string{"1 of 1 workers of logical replication of the tenant's server are in use (" + l.Name() + "), and 2 are needed, one of them to copy tables: raise max_logical_replication_workers there, or wait for other moves"}, problems)
	databasetest.Exec(t, target, fmt.Sprintf(`alter subscription %s disable`, pg.Ident(l.Name())))
	require.ErrorContains(t, l.AwaitCopy(t.Context()), "was disabled")
	require.NoError(t, l.Remove(t.Context()))
}

// The copies of another session end: whoever waits for a worker of theirs does not stand still, however long they take.
func TestASessionWaitsForTheCopiesOfAnother(t *testing.T) {
	t.Parallel()
	first, second := link(t, &usual, "s10"), link(t, &usual, "s11")
	second.Patience = 100 * time.Millisecond
	long, err := databasetest.Open(t, first.Target).Begin(t.Context())
	require.NoError(t, err)
	_, err = long.Exec(t.Context(), `lock table public.settings, instar.marker in share mode`) // which no slot waits for
	require.NoError(t, err)
	running := func(l *online.Link, what string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return databasetest.Ask(t, first.Target, `select concat_ws(' ', count(*) filter (where relid is null), count(*) filter (where relid is not null)) from pg_stat_subscription where subname = $1 and pid is not null`, l.Name()) == what
		}, time.Minute, 10*time.Millisecond)
	}
	for _, l := range []*online.Link{first, second} {
		require.NoError(t, l.Publish(t.Context()))
		require.NoError(t, l.Slot(t.Context()))
		require.NoError(t, l.Subscribe(t.Context()))
		running(l, map[*online.Link]string{first: "1 2", second: "1 0"}[l])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*second.Patience)
	defer cancel()
	require.ErrorIs(t, second.AwaitCopy(ctx), context.DeadlineExceeded)
	require.NoError(t, long.Rollback(t.Context()))
	for _, l := range []*online.Link{second, first} {
		require.NoError(t, l.AwaitCopy(t.Context()))
		require.NoError(t, l.Remove(t.Context()))
	}
}

// Two who look for room at the same moment do not both find the same: the second waits for the subscription of the first, and then for its end.
func TestRoomIsGivenOnce(t *testing.T) {
	t.Parallel()
	first, second := link(t, &two, "s12"), link(t, &two, "s13")
	server := pg.Address{DSN: two.Cluster(t).DSN("postgres")}
	for _, l := range []*online.Link{first, second} {
		l.Target = pg.Address{DSN: server.DSN, Database: databasetest.Ask(t, l.Target, `select current_database()`)}
		require.NoError(t, l.Publish(t.Context()))
		require.NoError(t, l.Slot(t.Context()))
	}
	direct := first.Target
	through, at, goesOn := databasetest.Freeze(t, direct, "max_logical_replication_workers") // there is room: next it subscribes
	first.Target = through
	ended := map[*online.Link]chan error{first: make(chan error, 1), second: make(chan error, 1)}
	subscribe := func(l *online.Link) { go func() { ended[l] <- l.Subscribe(t.Context()) }() }
	subscribe(first)
	<-at
	subscribe(second)
	databasetest.AwaitLock(t, server, `%pg_advisory_xact_lock%`)
	goesOn()
	require.NoError(t, <-ended[first])
	first.Target = direct
	require.NoError(t, first.AwaitCopy(t.Context()))
	require.Equal(t, first.Name(), databasetest.Ask(t, server, `select string_agg(subname, ' ') from pg_subscription`), "which has the room")
	require.NoError(t, first.Remove(t.Context()))
	require.NoError(t, <-ended[second])
	require.NoError(t, second.AwaitCopy(t.Context()))
	require.NoError(t, second.Remove(t.Context()))
}
