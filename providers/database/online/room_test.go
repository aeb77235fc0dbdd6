package online_test

import (
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

func with(setting, value string) map[string]string {
	config := maps.Clone(databasetest.Config)
	config[setting] = value
	return config
}

// Where other subscriptions have all workers, Postgres copies nothing and says nothing: the plan says it, a session waits a while for others and then says it, and one that was overtaken in that does.
func TestALackOfWorkersIsTold(t *testing.T) {
	t.Parallel()
	source, target := databasetest.Shared(t, &small, 5, "acme"), pg.Address{DSN: small.Database(t)}
	require.NoError(t, (&cutover.Source{Address: source}).Setup(t.Context()))
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), target, nil))
	databasetest.Exec(t, target, `create schema instar; create table instar.marker (session text primary key, token text not null, set_at timestamptz not null default now())`)
	l := &online.Link{Source: source, Target: target, Session: "s8", Enterprise: "acme", Tables: []*catalog.Table{inspect(t, source, databasetest.Catalogue).Table("settings")}, Patience: 2 * time.Second}
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
