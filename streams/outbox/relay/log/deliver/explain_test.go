package deliver

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
)

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

func TestNoQueryOfParkedRowsReadsAWholeTable(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	relaytest.Crowd(t, pool)

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
	most := relaytest.Count(t, pool, `select max(n) from (select count(*) as n from outbox_parked group by shard) as s`)
	queries := []relaytest.Query{
		{Name: "what is due", Query: sqlDue, Rows: 100, Args: []string{`'{0,1,2,3}'`, "1000"}},
		{Name: "what is due next", Query: sqlNext, Rows: 20, Args: []string{`'{0,1,2,3}'`}},
		{Name: "heads that are gone", Query: sqlGone, Rows: 300, Args: []string{of(shards, 1, 100), of(seqs, 1, 100)}},
		{Name: "heads of aggregates", Query: sqlPromote, Rows: 400, Args: []string{aggregates, ids}},
		{Name: "all heads of a shard", Query: sqlHeads, Rows: float64(most + 400), Args: []string{"1"}}, // once, when it is opened
		{Name: "no heads", Query: sqlUnpromote, Rows: 400, Args: []string{of(shards, 1, 100), of(seqs, 1, 100)}},
		{Name: "count tries", Query: sqlCount, Rows: 400, Args: []string{of(shards, 1, 100), of(seqs, 1, 100), `array_fill(1::float8, array[100])`}},
		{Name: "what waits", Query: sqlWaiting, Rows: 3000, Args: []string{aggregates, ids, "10", "1000000"}},
		{Name: "what is published", Query: sqlPublished, Rows: 5000, Args: []string{of(shards, 1, 1000), of(seqs, 1, 1000), of(seqs, 1, 1000)}},
		{Name: "wait", Query: wait, Rows: 3000, Args: waitArgs},
		{Name: "park", Query: park, Rows: 10, Args: parkArgs},
		{Name: "what is read again", Query: sqlAside, Rows: 1000, Args: []string{"1", "28000"}},
		{Name: "published late", Query: sqlLate, Rows: 2000, Args: []string{"1", "29000"}},
		{Name: "discarded", Query: sqlDiscarded, Rows: 100, Args: []string{"1"}},
		{Name: "lost by the stream", Query: sqlReclaim, Rows: 5000, Args: []string{"1", late("seq"), late("event_id"), late("true")}},
	}
	relaytest.Explain(t, pool, queries)
}
