package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/outbox"
)

// crowd fills the tables with 30,000 rows each: all but 1000 of the log are parked, behind the first ones of 100 aggregates; all events are
// sent; and all were published late.
func (s *shop) crowd() {
	s.t.Helper()
	for _, table := range []string{"outbox_event", "outbox_log_default", "outbox_parked", "outbox_late"} {
		s.exec(`alter table ` + table + ` set (autovacuum_enabled = off)`)
	}
	s.exec(`insert into outbox_log (event_id, aggregate_type, aggregate_id, event_type, payload, shard)
		select outbox_uuid_v7(), 'order', 'a' || n % 100, 'order.paid', convert_to(repeat('x', 100), 'UTF8'), outbox_shard('order', 'a' || n % 100, 4) from generate_series(1, 30000) n`)
	s.exec(`insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, case when seq <= 100 then 'FAILED' else 'NEW' end,
			case when seq <= 20 then now() when seq <= 100 then now() + interval '1 hour' end from outbox_log where seq <= 29000`)
	s.exec(`insert into outbox_late (shard, seq, event_id, day, marker, sent_at) select shard, seq, event_id, day, seq, now() from outbox_log`)
	s.exec(`insert into outbox_stream (source, mode, shard, stream, subject, marker, cluster, generation) select 'crowd', 'log', n, 's', 'p', 1, 'c', 1 from generate_series(0, 3) n`)
	s.exec(`insert into outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, shard, status, sent_at)
		select event_id, aggregate_type, aggregate_id, event_type, payload, shard, 'SENT', now() - (30000 - seq) * interval '1 second' from outbox_log`)
}

// positional is a query with numbered parameters for its named ones.
func positional(t *testing.T, query string, named pgx.NamedArgs) (string, []string) {
	t.Helper()
	query, values, err := named.RewriteQuery(t.Context(), nil, query, nil)
	require.NoError(t, err)
	args := make([]string, len(values))
	for i, v := range values {
		args[i] = v.(string)
	}
	return query, args
}

func TestNoQueryOfARelayReadsAWholeTable(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.crowd()
	store, err := outbox.Open(t.Context(), s.dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	conn, err := store.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()

	const (
		aggregates = `array_fill('order'::text, array[100])`
		ids        = `array(select 'a' || n from generate_series(0, 99) n)`
		shards     = `array(select shard from outbox_log where seq between %[1]d and %[2]d order by seq)`
		seqs       = `array(select seq from outbox_log where seq between %[1]d and %[2]d order by seq)`
		events     = `array(select event_id from outbox_log where seq between %[1]d and %[2]d order by seq)`
	)
	of := func(what string, from, to int) string { return fmt.Sprintf(what, from, to) }
	late := func(what string) string {
		return `array(select ` + what + ` from outbox_late where shard = 1 and marker >= 29000 order by seq)`
	}
	row := pgx.NamedArgs{
		"source": `'crowd'`, "mode": `'log'`, "shard": "1", "generation": "1", "seq": "30000", "id": "(select event_id from outbox_log where seq = 30000)",
		"state": `'NEW'`, "attempts": "0", "wait": "1", "why": `''`,
	}
	park, parkArgs := positional(t, sqlInsertParked, row)
	wait, waitArgs := positional(t, sqlInsertWaiting, pgx.NamedArgs{"source": `'crowd'`, "mode": `'log'`, "shard": "1", "generation": "1", "seqs": of(seqs, 29001, 30000), "ids": of(events, 29001, 30000)})
	most := s.count(`select max(n) from (select count(*) as n from outbox_parked group by shard) as s`)
	queries := []struct {
		name, query string
		rows        float64
		args        []string
	}{
		{"what is due", sqlDue, 100, []string{`'{0,1,2,3}'`, "1000"}},
		{"what is due next", sqlNext, 20, []string{`'{0,1,2,3}'`}},
		{"heads that are gone", sqlGone, 300, []string{of(shards, 1, 100), of(seqs, 1, 100)}},
		{"heads of aggregates", sqlPromote, 400, []string{aggregates, ids}},
		{"all heads of a shard", sqlHeads, float64(most + 400), []string{"1"}}, // once, when it is opened
		{"no heads", sqlUnpromote, 400, []string{of(shards, 1, 100), of(seqs, 1, 100)}},
		{"count tries", sqlCount, 400, []string{of(shards, 1, 100), of(seqs, 1, 100), `array_fill(1::float8, array[100])`}},
		{"what waits", sqlWaiting, 3000, []string{aggregates, ids, "10", "1000000"}},
		{"what is published", sqlPublished, 5000, []string{of(shards, 1, 1000), of(seqs, 1, 1000), of(seqs, 1, 1000)}},
		{"wait", wait, 3000, waitArgs},
		{"park", park, 10, parkArgs},
		{"what is read again", sqlAside, 1000, []string{"1", "28000"}},
		{"read", sqlRead, 1100, []string{"20000", "1000"}},
		{"read of shards", sqlReadShards, 5000, []string{"20000", "1000", `'{0,1}'`}},
		{"published late", sqlLate, 2000, []string{"1", "29000"}},
		{"discarded", sqlDiscarded, 100, []string{"1"}},
		{"lost by the stream", sqlReclaim, 5000, []string{"1", late("seq"), late("event_id"), late("true")}},
		{"what was sent last", sqlSentUpTo, 2, nil},
		{"what is missing", sqlMissing, 6000, []string{`(select (extract(epoch from sent_at) * 1000000)::bigint from outbox_event order by sent_at desc limit 1 offset 2000)`, of(events, 25000, 30000)}},
	}
	for _, stage := range []string{"before statistics", "with statistics"} {
		if stage == "with statistics" {
			s.exec(`analyze`)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, q := range queries {
				name := strings.Join([]string{q.name, stage, mode}, ", ")
				plan, err := postgres.Explain(t.Context(), conn.Conn(), mode, q.query, q.args...)
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
				if touched > q.rows {
					t.Errorf("%s: touched %.0f rows, not %.0f", name, touched, q.rows)
				}
			}
		}
	}
}
