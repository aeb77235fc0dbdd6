package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// progress is how far the reading of the WAL is, in the numbers that emitted messages have and by the clock of the database.
// A number is given out before its transaction commits, so a later one may be published before it; and those of rolled back
// transactions never come. So what was given out is looked at from time to time, together with the end of the WAL: when
// that was reached, nothing up to the number is unread.
type progress struct {
	number int64     // the greatest that was published or parked
	at     time.Time // everything that was committed before was
}

func (p progress) with(q progress) progress {
	p.number = max(p.number, q.number)
	if q.at.After(p.at) {
		p.at = q.at
	}
	return p
}

// advance takes in rows that were published, and the last look if all that was committed before it is settled.
func (e *walEngine) advance(rows []*row) {
	for _, r := range rows {
		if r.line != nil {
			e.reached = e.reached.with(progress{r.line.Number, r.line.CreatedAt.Time})
		}
	}
	if e.ahead.end > 0 && e.settled >= e.ahead.end {
		e.reached, e.ahead.end = e.reached.with(e.ahead.progress), 0
	}
	e.r.reached(e.reached)
}

// ahead is what was given out at a time, and where the WAL ended then; end is 0 for none.
type ahead struct {
	progress
	end uint64
}

// look is the next look at what was given out.
func (e *walEngine) look(ctx context.Context) error {
	if e.ahead.end > 0 {
		return nil
	}
	err := e.pool.QueryRow(ctx, `select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0), now(), (pg_current_wal_insert_lsn() - '0/0')::bigint`).
		Scan(&e.ahead.number, &e.ahead.at, &e.ahead.end)
	if err != nil {
		return fmt.Errorf("relay: cannot ask how far the WAL is: %w", err)
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
		on conflict (source, shard) do update set seq = greatest(c.seq, excluded.seq), reading = greatest(c.seq, excluded.seq), system_identifier = excluded.system_identifier, owner = excluded.owner,
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
	if err := pool.QueryRow(ctx, `select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0), extract(epoch from now() - $1::timestamptz)::float8`, p.at).Scan(&last, &seconds); err != nil {
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
