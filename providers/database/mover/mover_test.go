package mover_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// world is a shared database, and an empty one of a tenant.
type world struct {
	source, target pg.Address
	tables         []*catalog.Table
}

func setup(t *testing.T, orders int) *world {
	t.Helper()
	w := &world{source: databasetest.Shared(t, &suite, orders, "acme", "other"), target: pg.Address{DSN: suite.Database(t)}}
	require.NoError(t, databasetest.Migrations().Apply(t.Context(), w.target, nil))
	conn, err := pg.Connect(t.Context(), w.source)
	require.NoError(t, err)
	defer pg.Close(conn)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	require.NoError(t, err)
	require.Empty(t, report.Refused(false))
	w.tables = report.Tables
	return w
}

func (w *world) attempt(fence uint64) *mover.Mover {
	return &mover.Mover{Source: w.source, Target: w.target, Session: "default.acme.db", Fence: fence, Enterprise: "acme", Tables: w.tables, RangeRows: 7}
}

func (w *world) begin(t *testing.T, fence uint64) *mover.Mover {
	t.Helper()
	m := w.attempt(fence)
	require.NoError(t, m.Take(t.Context()))
	require.NoError(t, m.Prepare(t.Context()))
	return m
}

// A connection that has made something before, as one has that rests after the migrations, asks no table what there is.
func TestATargetIsSetUpByTwoAtATime(t *testing.T) {
	t.Parallel()
	kept := &pg.Kept{}
	t.Cleanup(kept.Close)
	target := pg.Address{DSN: suite.Database(t), Name: "instar 1 default.acme.db"}
	first, err := pg.Connect(t.Context(), target)
	require.NoError(t, err)
	defer pg.Close(first)
	target.Kept = kept
	used, err := pg.Connect(t.Context(), target)
	require.NoError(t, err)
	_, err = used.Exec(t.Context(), `create table public.migrated (); create schema if not exists public`)
	require.NoError(t, err)
	pg.Close(used)

	tx, err := first.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, pg.Alone(t.Context(), tx, "instar.session"))
	second := make(chan error, 1)
	go func() {
		second <- (&mover.Mover{Target: target, Session: "default.acme.db", Fence: 1}).Take(t.Context())
	}()
	require.Eventually(t, func() bool { // it has seen that there is no schema
		var waits bool
		return first.QueryRow(t.Context(), `select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits) == nil && waits
	}, time.Minute, 10*time.Millisecond)
	_, err = tx.Exec(t.Context(), `create schema instar`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-second)
}

func TestEveryRowArrivesAndNoOther(t *testing.T) {
	t.Parallel()
	w := setup(t, 40)
	before := databasetest.Everything(t, w.source)
	m := w.begin(t, 1)
	var told []mover.Progress
	var mu sync.Mutex
	m.Told = func(p mover.Progress) { mu.Lock(); defer mu.Unlock(); told = append(told, p) }
	p, err := m.Copy(t.Context())
	require.NoError(t, err)
	require.Equal(t, p.Total, p.Rows)
	require.Positive(t, p.Bytes)
	require.NotEmpty(t, told)
	v, err := m.Verify(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	require.Equal(t, len(databasetest.Tables), v.Tables)
	require.Equal(t, p.Rows, v.Rows)
	_, err = m.Sequences(t.Context())
	require.NoError(t, err)
	databasetest.Same(t, w.source, w.target, "acme")
	require.Equal(t, before, databasetest.Everything(t, w.source), "the source is only read")
	require.Equal(t, databasetest.Ask(t, w.source, `select last_value::text from public.orders_id_seq`), databasetest.Ask(t, w.target, `select last_value::text from public.orders_id_seq`))
	databasetest.Exec(t, w.target, `insert into public.orders (enterprise_id, total) values ('acme', 1)`)

	look, at, err := mover.Look(t.Context(), w.target, m.Session)
	require.NoError(t, err)
	require.Equal(t, p.Rows, look.Rows)
	require.WithinDuration(t, time.Now(), at, time.Minute)
}

// A copy is interrupted at random points until it is done; what is done stays done.
func TestItGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	random := rand.New(rand.NewPCG(1, 2))
	require.NoError(t, w.attempt(1).Take(t.Context()))
	for fence := uint64(2); ; fence++ {
		require.Less(t, fence, uint64(400))
		m := w.attempt(fence)
		ctx, cancel := context.WithCancel(t.Context())
		var ranges atomic.Int64
		stop := random.Int64N(5)
		m.Told = func(mover.Progress) {
			if ranges.Add(1) > stop {
				cancel()
			}
		}
		var err error
		for _, do := range []func(context.Context) error{m.Take, m.Prepare, func(ctx context.Context) error { _, err := m.Copy(ctx); return err }} {
			if err = do(ctx); err != nil {
				break
			}
		}
		cancel()
		if err == nil {
			break
		}
		again, _ := pg.Transient(err)
		require.True(t, again, "%v", err)
	}
	require.Equal(t, "0", databasetest.Ask(t, w.target, `select count(*)::text from instar.range where done_at is null`))
	v, err := w.last(t).Verify(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	databasetest.Same(t, w.source, w.target, "acme")
}

// What was written between the cut into ranges and the copy, or since that, as in a long pause, is no one large range.
func TestWhatWasWrittenSinceIsCutToo(t *testing.T) {
	t.Parallel()
	w := setup(t, 10)
	add := func(prefix string) {
		databasetest.Exec(t, w.source, `insert into public.settings select 'acme', $1 || lpad(i::text, 4, '0'), 'x' from generate_series(1, 40) i`, prefix)
	}
	largest := func() string {
		return databasetest.Ask(t, w.target, `select max(rows)::text from instar.range where table_name = 'settings'`)
	}
	m := w.begin(t, 1)
	add("since-")
	ctx, cancel := context.WithCancel(t.Context())
	m.Told = func(mover.Progress) { cancel() } // and it is interrupted
	_, err := m.Copy(ctx)
	require.Error(t, err)
	m = w.begin(t, 2)
	_, err = m.Copy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "7", largest())
	databasetest.Same(t, w.source, w.target, "acme")

	add("then-")
	v, err := m.Verify(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, v.Discrepancies, 1)
	require.True(t, v.Discrepancies[0].Repaired)
	require.Equal(t, "7", largest())
	databasetest.Same(t, w.source, w.target, "acme")
}

func (w *world) last(t *testing.T) *mover.Mover {
	t.Helper()
	m := w.attempt(1000)
	require.NoError(t, m.Take(t.Context()))
	return m
}

// Connections are cut by the servers in the middle of ranges.
func TestItGoesOnAfterConnectionsWereLost(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	m := w.begin(t, 2)
	m.Rate = 60_000
	done := make(chan error, 1)
	go func() { _, err := m.Copy(t.Context()); done <- err }()
	killer := databasetest.Open(t, w.target)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, killer.QueryRow(t.Context(), `select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity where query ilike 'copy %' and datname = current_database()`).Scan(&n))
		return n > 0
	}, 20*time.Second, time.Millisecond)
	err := <-done
	again, _ := pg.Transient(err)
	require.True(t, again, "%v", err)
	m = w.begin(t, 4)
	_, err = m.Copy(t.Context())
	require.NoError(t, err)
	databasetest.Same(t, w.source, w.target, "acme")
}

// A zombie of an earlier attempt goes on copying: it commits nothing after the next one has taken over.
func TestAnEarlierAttemptCommitsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	zombie := w.begin(t, 2)
	zombie.Rate = 30_000
	started := make(chan struct{})
	var once sync.Once
	zombie.Told = func(mover.Progress) { once.Do(func() { close(started) }) }
	ended := make(chan error, 1)
	go func() { _, err := zombie.Copy(t.Context()); ended <- err }()
	<-started
	m := w.begin(t, 4)
	before := databasetest.Ask(t, w.target, `select count(*)::text from instar.range where done_at is not null`)
	require.Error(t, <-ended)
	_, err := zombie.Copy(t.Context())
	var obsolete *pg.ObsoleteError
	require.ErrorAs(t, err, &obsolete)
	require.Equal(t, uint64(4), obsolete.Seen)
	require.ErrorAs(t, zombie.Take(t.Context()), &obsolete)
	require.Equal(t, before, databasetest.Ask(t, w.target, `select count(*)::text from instar.range where done_at is not null`))
	_, err = m.Copy(t.Context())
	require.NoError(t, err)
	databasetest.Same(t, w.source, w.target, "acme")
}

// Rows change all the time: the comparison repairs the target to what one snapshot of the source had.
func TestWritersDuringTheCopyAndTheComparison(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	m := w.begin(t, 2)
	stop, written := make(chan struct{}), make(chan int, 1)
	conn := databasetest.Open(t, w.source)
	go func() {
		n := 0
		defer func() { written <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			n++
			_, err := conn.Exec(context.Background(), fmt.Sprintf(`
				with o as (insert into public.orders (enterprise_id, total) values ('acme', %[1]d) returning id)
					insert into public.lines select id, 1, 'new' from o;
				update public.orders set total = total + 1 where enterprise_id = 'acme' and id %% 7 = %[1]d %% 7;
				delete from public.orders where enterprise_id = 'acme' and id %% 50 = %[1]d %% 50 and id < 120;
				update public.names set name = 'moved' || %[1]d where nick = (select min(nick) from public.names where enterprise_id = 'acme' and name not like 'moved%%');
				insert into public.settings values ('acme', 'Late %[1]d', 'x')`, n))
			if err != nil {
				return
			}
		}
	}()
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	v, err := m.Verify(t.Context(), true)
	close(stop)
	require.Positive(t, <-written)
	require.NoError(t, err)
	require.Empty(t, v.Open(), "%+v", v)
	// Every table is of one snapshot: no line without its order, no remark without its line.
	for _, orphans := range []string{
		`select count(*)::text from public.lines where order_id not in (select id from public.orders)`,
		`select count(*)::text from public.remarks where (order_id, n) not in (select order_id, n from public.lines)`,
	} {
		require.Equal(t, "0", databasetest.Ask(t, w.target, orphans))
	}
	v, err = m.Verify(t.Context(), true) // nobody writes any more
	require.NoError(t, err)
	require.Empty(t, v.Open())
	databasetest.Same(t, w.source, w.target, "acme")
}

func TestTheComparisonFindsEveryKindOfDifference(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	m := w.begin(t, 1)
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	for name, c := range map[string]struct{ sql, table, kind string }{
		"a row less":           {`delete from public.settings where key = 'Key 3'`, "settings", mover.RowCountMismatch},
		"a row more":           {`insert into public.settings values ('acme', 'foreign', '')`, "settings", mover.RowCountMismatch},
		"a value":              {`update public.names set nick = 'x' where nick = 'acme5'`, "names", mover.ChecksumMismatch},
		"null for empty":       {`update public.settings set value = '' where key = 'Key 1'`, "settings", mover.ChecksumMismatch},
		"a row of another":     {`update public.settings set enterprise_id = 'other' where key = 'Key 9'`, "settings", mover.ChecksumMismatch},
		"a blank in some json": {`update public.orders set plain = '{"b": 1}' where id = (select min(id) from public.orders)`, "orders", mover.ChecksumMismatch},
	} {
		databasetest.Exec(t, w.target, `set session_replication_role = replica; `+c.sql)
		v, err := m.Verify(t.Context(), false)
		require.NoError(t, err, name)
		require.Len(t, v.Discrepancies, 1, name)
		require.Equal(t, c.table, v.Discrepancies[0].Table, name)
		require.Equal(t, c.kind, v.Discrepancies[0].Type, name)
		require.LessOrEqual(t, len(v.Discrepancies[0].Ranges), 2, name)
		v, err = m.Verify(t.Context(), true)
		require.NoError(t, err, name)
		require.Empty(t, v.Open(), name)
		databasetest.Same(t, w.source, w.target, "acme")
	}
}

// As long as a snapshot is held, the source cannot clean up after anybody: behind a fence none outlives the statement that reads a range. What others write, too, is read in one.
func TestTheComparisonBehindAFenceHoldsNoSnapshot(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	m := w.begin(t, 2)
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	for _, fenced := range []bool{true, false} {
		watcher := databasetest.Open(t, w.source)
		var mu sync.Mutex
		var failed error
		held, of := 0, map[string]int{}
		m.Fenced = fenced
		m.Source = databasetest.Through(t, w.source, func(sql string) databasetest.Fault {
			mu.Lock()
			defer mu.Unlock()
			for _, t := range m.Tables {
				if strings.Contains(sql, "from "+t.Quoted()+" ") {
					of[t.String()]++
				}
			}
			if !strings.Contains(sql, `from "public".`) || strings.Contains(sql, `"countries"`) {
				return databasetest.None
			}
			var n int
			err := watcher.QueryRow(context.Background(), `select count(backend_xmin) from pg_stat_activity where datname = current_database() and application_name like 'instar 2 %'`).Scan(&n)
			held, failed = held+n, errors.Join(failed, err)
			return databasetest.None
		})
		v, err := m.Verify(t.Context(), true)
		require.NoError(t, err)
		require.Empty(t, v.Discrepancies)
		mu.Lock()
		require.NoError(t, failed)
		require.Equal(t, fenced, held == 0, "%d of the statements began with a snapshot of an earlier one", held)
		require.Greater(t, of["orders"], 8, "its ranges are read one by one")
		mu.Unlock()
	}
}

func TestTheRateIsLimited(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	m := w.begin(t, 1)
	m.Rate = 10_000
	began := time.Now()
	p, err := m.Copy(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began).Seconds(), float64(p.Bytes-2*m.Rate)/float64(m.Rate))
	require.Greater(t, p.Bytes, 2*m.Rate, "enough to be limited")
}

// The source may have any isolation by default.
func TestASourceWithRepeatableRead(t *testing.T) {
	t.Parallel()
	w := setup(t, 20)
	name := databasetest.Ask(t, w.source, `select quote_ident(current_database())`)
	databasetest.Exec(t, w.source, `alter database `+name+` set default_transaction_isolation = 'repeatable read'`)
	databasetest.Exec(t, w.source, `alter database `+name+` set default_transaction_read_only = 'on'`)
	m := w.begin(t, 1)
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	v, err := m.Verify(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	databasetest.Same(t, w.source, w.target, "acme")
}

func TestATargetWithoutTheTableIsAnError(t *testing.T) {
	t.Parallel()
	w := setup(t, 5)
	databasetest.Exec(t, w.target, `drop table public.settings`)
	m := w.attempt(1)
	require.NoError(t, m.Take(t.Context()))
	err := m.Prepare(t.Context())
	require.ErrorContains(t, err, "settings")
	again, _ := pg.Transient(err)
	require.False(t, again)
	require.False(t, errors.Is(err, context.Canceled))
}
