package outbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
)

// planned is a query with its parameters as SQL, and how many rows it may touch.
type planned struct {
	name, query string
	args        []string
	rows        float64
}

const (
	someIDs   = `array(select event_id from outbox_event where phase < 2 and status = 'SENDING' order by shard, next_retry_at limit 100)`
	theToken  = `'00000000-0000-0000-0000-000000000001'`
	noIDs     = `'{}'::uuid[]`
	badFilter = `array[` + theToken + `]::uuid[]`
)

// queries are all that a relay, an operator or an application sends.
var queries = []planned{
	{"claim", sqlClaim, []string{`'{}'::smallint[]`, `100`, `'w'`, `30`, theToken, `10`}, 2500},
	{"claim of a shard", sqlClaim, []string{`'{1}'::smallint[]`, `100`, `'w'`, `30`, theToken, `10`}, 1000},
	{"a large claim", sqlClaim, []string{`'{}'::smallint[]`, `1000`, `'w'`, `30`, theToken, `10`}, 25000},
	{"release expired leases", sqlReleaseExpired, []string{`10`}, 12000}, // all that wait
	{"settle leases", sqlSettleLeases, []string{`10`}, 12000},            // likewise
	{"mark sent", sqlMarkSent, []string{someIDs, theToken}, 500},
	{"mark failed", sqlMarkFailed, []string{someIDs, `array_fill('no'::text, array[100])`, `array_fill(false, array[100])`, theToken, `10`, `1`, `300`}, 500},
	{"release", sqlRelease, []string{someIDs, theToken}, 500},
	{"renew", sqlRenew, []string{someIDs, theToken, `30`}, 500},
	{"purge", sqlPurge, []string{`1000`}, 3000},
	{"redrive all", sqlRedriveEvents, []string{noIDs, `''`, `''`, `''`, `10000`}, 20000},
	{"redrive by id", sqlRedriveEvents, []string{badFilter, `''`, `''`, `''`, `10000`}, 2000},
	{"redrive an aggregate", sqlRedriveEvents, []string{noIDs, `'order'`, `'a7'`, `''`, `10000`}, 2000},
	{"discard all", sqlDiscardEvents, []string{noIDs, `''`, `''`, `''`, `10000`}, 20000},
	{"redrive parked rows", sqlRedriveParked, []string{noIDs, `'order'`, `'a7'`, `''`, `10000`}, 2000},
	{"discard parked rows", sqlDiscardParked, []string{noIDs, `'order'`, `'a7'`, `''`, `10000`}, 2000},
	{"status of events", sqlStatusEvents, []string{`10000`}, 30000},
	{"status of the log", sqlStatusLog, []string{`10000`}, 30000},
	{"parked aggregates of events", sqlParkedEvents, nil, 10000},
	{"parked aggregates of the log", sqlParked, nil, 10000},
	{"tail of events", sqlTailEvents, []string{`50`}, 100},
	{"tail of events after one", sqlTailEventsAfter, []string{`50`, theToken}, 100},
	{"tail of the log", sqlTailLog, []string{`50`}, 1000},
	{"tail of the log after a row", sqlTailLogAfter, []string{`50`, `70000`}, 1000},
	{"whether rows wait", anyWaiting, nil, 12000},
	{"inbox", fmt.Sprintf(sqlHandle, "public"), []string{`'x'`, `'h'`}, 10},
	{"purge of the inbox", sqlPurgeInbox, []string{`604800`, `10000`}, 20000},
	{"pressure", sqlPressure, []string{`'main'`, `7`}, 10},
	{"read of the log", `select * from outbox_log where seq > $1 and seq <= $2 order by seq limit $3`, []string{`70000`, `100000`, `1000`}, 1100},
	{"read on in the log", `select * from outbox_log where seq > $1 order by seq limit $2`, []string{`70000`, `1000`}, 1100},
	{"read of two shards", `select * from outbox_log where seq > $1 and shard = any ($2) order by seq limit $3`, []string{`70000`, `'{0,1}'::smallint[]`, `1000`}, 3000},
}

// load fills the tables with 100,000 rows each, of which most were sent.
func load(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, table := range []string{"outbox_event", "outbox_log_default", "outbox_parked", "outbox_inbox"} {
		run(t, conn, `alter table `+table+` set (autovacuum_enabled = off)`)
	}
	run(t, conn, `insert into outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, shard, status, next_retry_at, sent_at, locked_until, locked_by, lease_token, attempts)
		select outbox_uuid_v7(), 'order', 'a' || n % 2000, 'order.paid', convert_to(repeat('x', 100), 'UTF8'), outbox_shard('order', 'a' || n % 2000, 4), s.status,
			case s.status when 'DEAD' then 'infinity' else now() end, case s.status when 'SENT' then now() - n * interval '1 minute' end,
			case s.status when 'SENDING' then now() + interval '1 hour' end, 'w', case s.status when 'SENDING' then `+theToken+`::uuid end, 1
		from generate_series(1, 100000) n cross join lateral (
			select case when n <= 90000 then 'SENT' when n % 2000 = 7 and n < 92000 then 'DEAD' when n % 100 = 50 then 'FAILED' when n % 100 < 3 then 'SENDING' else 'NEW' end as status) s`)
	run(t, conn, `insert into outbox_log (day, event_id, aggregate_type, aggregate_id, event_type, payload, shard)
		select (clock_timestamp() at time zone 'UTC')::date - 9 + n / 10000, outbox_uuid_v7(), 'order', 'a' || n % 2000, 'order.paid', convert_to(repeat('x', 100), 'UTF8'), outbox_shard('order', 'a' || n % 2000, 4)
		from generate_series(1, 100000) n`)
	run(t, conn, `select outbox_maintain()`)
	run(t, conn, `insert into outbox_cursor (source, shard, seq, reading) select 'main', n, 90000, 91000 from generate_series(0, 3) n`)
	run(t, conn, `insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, case when aggregate_id in ('a7', 'a8') and seq < 2000 then 'DEAD' else 'NEW' end, null
		from outbox_log where seq <= 90000 and aggregate_id in (select 'a' || n from generate_series(0, 100) n)`)
	run(t, conn, `insert into outbox_inbox select n::text, 'h', now() - n * interval '1 minute' from generate_series(1, 100000) n`)
}

// big are tables of which nothing may read all.
func big(relation string) bool {
	return relation == "outbox_event" || strings.HasPrefix(relation, "outbox_log") || relation == "outbox_parked" || relation == "outbox_inbox"
}

func TestNoQueryReadsAWholeTable(t *testing.T) {
	t.Parallel()
	dsn, admin := setup(t, Claim)
	load(t, admin)
	conn := open(t, dsn).Pool // with its settings
	sizes := map[string]int{}
	for _, stage := range []string{"before statistics", "with statistics"} {
		if stage == "with statistics" {
			run(t, admin, `analyze`)
		}
		for _, cached := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, q := range queries {
				t.Run(stage+"/"+cached+"/"+q.name, func(t *testing.T) {
					c, err := conn.Acquire(t.Context())
					require.NoError(t, err)
					defer c.Release()
					plan, err := postgres.Explain(t.Context(), c.Conn(), cached, q.query, q.args...)
					require.NoError(t, err)
					check(t, c.Conn(), sizes, plan, q)
				})
			}
		}
	}
}

// check refuses scans of whole tables, and more rows than a query may touch.
func check(t *testing.T, conn *pgx.Conn, sizes map[string]int, plan *postgres.Step, q planned) {
	t.Helper()
	touched := 0.0
	plan.Walk(func(n *postgres.Step) {
		if !big(n.Relation) || n.Loops == 0 {
			return
		}
		touched += n.Touched()
		if n.Type != "Seq Scan" || n.Relation == "outbox_parked" { // few rows are parked, or all of them are of interest
			return
		}
		if _, known := sizes[n.Relation]; !known {
			var size int
			require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from "+n.Relation).Scan(&size))
			sizes[n.Relation] = size
		}
		require.Less(t, sizes[n.Relation], 10, "%s reads all of %s", q.name, n.Relation) // days to come are empty, the last one is nearly
	})
	require.LessOrEqual(t, touched, q.rows, "rows that were touched")
}
