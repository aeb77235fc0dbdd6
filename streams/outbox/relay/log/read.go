package log

// Batches of outbox_log, in order and without a gap. read, called by loop.go, tries the cheapest way first: up to the number that is known to be complete, up to the first
// missing number (dense, for a relay of all shards), or behind the writers that were open (fence). The queries are in rows.go; what it returns goes to deliver.Deliver, or says
// when to ask again.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// read is a batch of rows, in order.
type read struct {
	rows []*sink.Row
	upto int64         // without rows: there are none up to here, and none to come
	full bool          // there may be more at once
	wait time.Duration // open writers hold the cursor back: ask again after this
	err  error
}

// reader reads batches of the log behind the fence.
//
// Numbers of the sequence are in another order than transactions commit in, so a cursor that simply follows what it sees loses
// rows. The fence: take the sequence's last value M, then look which transactions hold the lock that every insert takes
// before it takes a number, and wait until those have gone. From then on every row up to M is visible or will never be.
// Only writers of this table are waited for; transactions elsewhere, in other databases too, hold nothing back.
//
// Looking at the locks costs the database a millisecond or more where many transactions are open, for which they all wait. So a relay
// of all shards looks only where a number is missing: as long as each row has the number after the one before it, nothing can come
// between them. While it waits, it looks at the locks for a twentieth of the time at most, or once in [locksWithin], and at the rows in
// between.
type reader struct {
	config  outbox.Config
	control *control.Control
	conn    *pgxpool.Conn

	safe    int64     // every row up to here is visible
	mark    int64     // becomes safe when
	writers []string  // these have gone
	since   time.Time // of the wait for them
	polls   int
	missing bool      // a number that was given out is not visible
	fences  int       // how often the locks were read
	again   time.Time // when to read them next, at the earliest

	limit int // rows of the next batch: fewer when they are large
}

// lockShare: the locks are looked at for at most one part of so many of the time.
const lockShare = 20

// locksWithin is how long the next look at the locks may be delayed at most. A look is also slow because this process or the database stood still meanwhile, which does not mean
// that the next one is.
const locksWithin = time.Second

func newReader(ctx context.Context, pool *pgxpool.Pool, config outbox.Config, control *control.Control) (*reader, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot connect to the database of %s: %w", config.Name, err)
	}
	return &reader{config: config, control: control, conn: conn, limit: min(64, config.Batch)}, nil
}

func (d *reader) close() { d.conn.Release() }

// how a batch is read.
type how int

const (
	known  how = iota // up to what is known to be complete
	dense             // up to the first number that is missing
	fenced            // behind the writers
)

// read is the next batch. It asks everything in one round trip: the sequence, the writers, the rows; each statement
// sees what was committed before it began.
func (d *reader) read(ctx context.Context, q request, list []int, all int) read {
	if q.from < d.safe {
		got := d.ask(ctx, q, list, all, known)
		if len(got.rows) > 0 || got.err != nil {
			return got
		}
	} // otherwise there are only numbers that were rolled back, or are of other shards
	if len(list) == all {
		got := d.ask(ctx, q, list, all, dense)
		if len(got.rows) > 0 || got.err != nil || !d.missing {
			return got
		}
	}
	began := time.Now()
	if began.Before(d.again) {
		return read{wait: d.patient()}
	}
	got := d.ask(ctx, q, list, all, fenced)
	d.fences++
	if now := time.Now(); d.writers != nil {
		d.again = now.Add(min(lockShare*now.Sub(began), locksWithin))
	}
	return got
}

// patient is how long to wait before the rows are read again.
func (d *reader) patient() time.Duration {
	d.polls++
	return min(time.Millisecond<<min(d.polls-1, 5), 20*time.Millisecond)
}

func (d *reader) ask(ctx context.Context, q request, list []int, all int, how how) read {
	batch := &pgx.Batch{}
	var last int64
	var now []string
	switch how {
	case dense:
		batch.Queue(sqlMark).QueryRow(func(r pgx.Row) error { return r.Scan(&last) })
	case fenced:
		batch.Queue(sqlFence).QueryRow(func(r pgx.Row) error { return r.Scan(&last, &now) })
	}
	var got []*sink.Row
	limit, cut := d.limit, false
	query, args := sqlRead, []any{q.from, limit}
	if len(list) < all {
		query, args = sqlReadShards, []any{q.from, limit, list}
	}
	batch.Queue(query, args...).Query(func(rows pgx.Rows) error {
		var err error
		got, cut, err = scan(rows, limit)
		return err
	})
	if how == dense {
		batch.Queue(sqlFlush, max(q.from, d.safe)).Exec(func(pgconn.CommandTag) error { return nil })
	}
	ctx, cancel := context.WithTimeout(ctx, control.QueryTimeout) // a database that is cut off does not say so
	defer cancel()
	if err := d.conn.SendBatch(ctx, batch).Close(); err != nil {
		return read{err: fmt.Errorf("relay: cannot read the outbox of %s: %w", d.config.Name, err)}
	}
	if how != known && last < d.safe { // opening the shards again says what that means
		return read{err: fmt.Errorf("relay: the sequence of %s has gone back from %d to %d", d.config.Name, d.safe, last)}
	}
	switch how {
	case dense:
		d.dense(q.from, last, got)
	case fenced:
		d.fence(last, now)
	}
	upto := d.safe
	if q.upto > 0 {
		upto = min(upto, q.upto)
	}
	full := len(got) == limit || cut
	if d.limit = min(2*limit, d.config.Batch); cut {
		d.limit = max(1, len(got))
	}
	for len(got) > 0 && int64(got[len(got)-1].Pos) > upto {
		got, full = got[:len(got)-1], true
	}
	out := read{rows: got, full: full && len(got) > 0, upto: upto}
	if len(got) == 0 && d.writers != nil && (q.upto == 0 || q.upto > d.safe) { // also up to where others are: it is not known to be empty
		out.wait = d.patient()
	}
	return out
}

// dense takes in rows: up to the first number that is missing nothing can come any more.
func (d *reader) dense(from, last int64, rows []*sink.Row) {
	upto := max(from, d.safe)
	for _, r := range rows {
		if n := int64(r.Pos); n == upto+1 && n <= last {
			upto = n
		} else if n > upto {
			break
		}
	}
	d.missing = last > upto
	if upto == d.safe {
		return
	}
	d.safe, d.again = upto, time.Time{}
	if d.writers != nil && d.mark <= d.safe {
		d.writers = nil
		d.control.FenceWait(0)
	}
}

// fence takes in what the sequence and the writers are now.
func (d *reader) fence(last int64, now []string) {
	if d.writers != nil {
		d.writers = slices.DeleteFunc(d.writers, func(w string) bool { return !slices.Contains(now, w) })
		if len(d.writers) > 0 {
			d.control.FenceWait(time.Since(d.since))
			return
		}
		d.safe, d.writers = max(d.safe, d.mark), nil // the rows of this round trip were read after the last of them
		d.control.FenceWait(0)
	}
	if last <= d.safe {
		return
	}
	if len(now) == 0 {
		d.safe = last
		return
	}
	d.mark, d.writers, d.since, d.polls = last, now, time.Now(), 0
}
