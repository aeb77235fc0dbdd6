package relaytest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
)

// Query is one that a relay sends, with its parameters as SQL, and how many rows it may touch.
type Query struct {
	Name, Query string
	Rows        float64
	Args        []string
}

// Crowd fills the tables with 30,000 rows each: all but 1000 of the log are parked, behind the first ones of 100 aggregates; all events are
// sent; and all were published late.
func Crowd(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, table := range []string{"outbox_event", "outbox_log_default", "outbox_parked", "outbox_late"} {
		Exec(t, pool, `alter table `+table+` set (autovacuum_enabled = off)`)
	}
	for _, fill := range []string{
		`insert into outbox_log (event_id, aggregate_type, aggregate_id, event_type, payload, shard)
		select outbox_uuid_v7(), 'order', 'a' || n % 100, 'order.paid', convert_to(repeat('x', 100), 'UTF8'), outbox_shard('order', 'a' || n % 100, 4) from generate_series(1, 30000) n`,
		`insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, case when seq <= 100 then 'FAILED' else 'NEW' end,
			case when seq <= 20 then now() when seq <= 100 then now() + interval '1 hour' end from outbox_log where seq <= 29000`,
		`insert into outbox_late (shard, seq, event_id, day, marker, sent_at) select shard, seq, event_id, day, seq, now() from outbox_log`,
		`insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, generation) select 'crowd', 'log', n, 's', 'p', 1, 'c', 1 from generate_series(0, 3) n`,
		`insert into outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, shard, status, sent_at)
		select event_id, aggregate_type, aggregate_id, event_type, payload, shard, 'SENT', now() - (30000 - seq) * interval '1 second' from outbox_log`,
	} {
		Exec(t, pool, fill)
	}
}

// Explain refuses queries that read a whole table, and those that touch more rows than they may.
func Explain(t *testing.T, pool *pgxpool.Pool, queries []Query) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, stage := range []string{"before statistics", "with statistics"} {
		if stage == "with statistics" {
			Exec(t, pool, `analyze`)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, q := range queries {
				name := strings.Join([]string{q.Name, stage, mode}, ", ")
				plan, err := postgres.Explain(t.Context(), conn.Conn(), mode, q.Query, q.Args...)
				require.NoError(t, err, name)
				touched := 0.0
				plan.Walk(func(n *postgres.Step) {
					if !strings.HasPrefix(n.Relation, "outbox_") || n.Loops == 0 {
						return
					}
					touched += n.Touched()
					if n.Type == "Seq Scan" && n.Touched() >= 10 {
						t.Errorf("%s reads all of %s", name, n.Relation)
					}
				})
				if touched > q.Rows {
					t.Errorf("%s: touched %.0f rows, not %.0f", name, touched, q.Rows)
				}
			}
		}
	}
}
