package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// progress is how far the reading of the WAL is, by the numbers that emitted messages have and by the clock of the database.
// A number is given out before its transaction commits, perhaps long before, and those of rolled back transactions never come.
// So published messages are counted, and what was given out is looked at from time to time, together with who may have
// taken numbers and has not ended. When all of those have, and what was in the WAL by then is read, nothing up to the
// number that was looked at is unread.
type progress struct {
	number int64     // so many numbers are of messages that were published or parked, or of nobody
	at     time.Time // everything that was committed before was
}

// ahead is a look at the WAL: it has been read when what was settled reaches its end; 0 is none.
type ahead struct {
	at    time.Time
	end   uint64
	fence bool // the writers that were looked at have ended
}

// taken are the numbers that were given out at a time.
type taken struct {
	upto    int64
	writers []string // may have taken some of them and commit later
	beyond  int64    // greater ones that were published since
}

// advance takes in rows that were published, and the last look if all that was committed before it is settled.
func (e *walEngine) advance(rows []*row) {
	for _, r := range rows {
		if r.line == nil {
			continue
		}
		if e.reached.number++; e.taken != nil && r.line.Number > e.taken.upto {
			e.taken.beyond++
		}
		e.reached.since(r.line.CreatedAt.Time)
	}
	if e.ahead.end > 0 && e.settled >= e.ahead.end {
		e.reached.since(e.ahead.at)
		if e.ahead.fence {
			e.reached.number, e.taken = e.taken.upto+e.taken.beyond, nil
		}
		e.ahead = ahead{}
	}
	e.r.reached(e.reached)
}

func (p *progress) since(t time.Time) {
	if t.After(p.at) {
		p.at = t
	}
}

// look is the next look. The order of the statements matters.
func (e *walEngine) look(ctx context.Context) error {
	if e.ahead.end > 0 {
		return nil
	}
	var last int64
	var writers []string
	var batch pgx.Batch
	batch.Queue(sqlMark).QueryRow(func(r pgx.Row) error { return r.Scan(&last) })
	batch.Queue(`select coalesce(array_agg(distinct virtualtransaction), '{}') from pg_locks where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
		and database = (select oid from pg_database where datname = current_database()) and relation = pg_get_serial_sequence('outbox_log', 'seq')::regclass`).QueryRow(func(r pgx.Row) error { return r.Scan(&writers) })
	batch.Queue(`select clock_timestamp(), (pg_current_wal_insert_lsn() - '0/0')::bigint`).QueryRow(func(r pgx.Row) error { return r.Scan(&e.ahead.at, &e.ahead.end) })
	if err := e.pool.SendBatch(ctx, &batch).Close(); err != nil {
		e.ahead = ahead{}
		return fmt.Errorf("relay: cannot ask how far the WAL is: %w", err)
	}
	if e.taken == nil {
		e.taken = &taken{upto: last, writers: writers}
	}
	e.taken.writers = slices.DeleteFunc(e.taken.writers, func(w string) bool { return !slices.Contains(writers, w) })
	e.ahead.fence = len(e.taken.writers) == 0
	return nil
}

// resume goes on from what the database knows of an earlier relay.
func (e *walEngine) resume(ctx context.Context) error {
	err := e.pool.QueryRow(ctx, `select seq, updated_at from outbox_cursor where source = $1 and shard = 0`, e.shards.o.source).Scan(&e.reached.number, &e.reached.at)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	return nil
}

// save tells those who look into the database how far the relay is.
func (e *walEngine) save(ctx context.Context) error {
	if e.reached.at.IsZero() {
		return nil
	}
	o := e.shards.o
	_, err := e.pool.Exec(ctx, `insert into outbox_cursor as c (source, shard, seq, reading, system_identifier, owner, updated_at) values ($1, 0, $2, $2, $3, $4, $5)
		on conflict (source, shard) do update set seq = excluded.seq, reading = excluded.seq, system_identifier = excluded.system_identifier, owner = excluded.owner,
			updated_at = greatest(c.updated_at, excluded.updated_at)`, o.source, e.reached.number, o.cluster, o.node, e.reached.at)
	if err != nil {
		return fmt.Errorf("relay: cannot write outbox_cursor: %w", err)
	}
	return nil
}

// unread is how many events mode wal has not yet read, and how long at most the oldest of them waits. It counts numbers:
// rolled back ones too, until the next look.
func (r *Relay) unread(ctx context.Context, pool *pgxpool.Pool) (rows int64, oldest time.Duration, err error) {
	r.mu.Lock()
	p := r.state.reached
	r.mu.Unlock()
	if p.at.IsZero() {
		return 0, 0, errors.New("nothing was read yet")
	}
	var last int64
	var seconds float64
	if err := pool.QueryRow(ctx, `select (`+sqlMark+`), extract(epoch from now() - $1::timestamptz)::float8`, p.at).Scan(&last, &seconds); err != nil {
		return 0, 0, err
	}
	if last <= p.number {
		return 0, 0, nil
	}
	return last - p.number, time.Duration(max(0, seconds) * float64(time.Second)), nil
}

func (r *Relay) reached(p progress) {
	r.mu.Lock()
	r.state.reached = p
	r.mu.Unlock()
}
