package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// walEngine reads what applications emit into the WAL, through a replication slot.
type walEngine struct {
	r      *Relay
	pool   *pgxpool.Pool
	shards *shards
	pub    *publisher
	settings
	lot  *lot
	feed *feed

	settled uint64    // everything that was committed before this is stored
	again   int64     // everything that earlier sessions have read was committed before this
	told    time.Time // when Postgres was told so
	looked  time.Time // at the slot
	beat    time.Time // of the heart
	until   uint64    // draining: how far
	reached progress
	ahead   ahead
	taken   *taken // nil: there was no look
}

// serve waits for the one shard, then publishes what the slot sends.
func (e *walEngine) serve(ctx context.Context) error {
	e.lot = &lot{r: e.r, pool: e.pool, shards: e.shards, pub: e.pub}
	if err := e.shards.await(ctx, e.r.Config.Poll); err != nil {
		return err
	}
	err := e.open(ctx)
	if e.feed != nil {
		defer e.feed.close()
	}
	for err == nil {
		err = e.step(ctx)
	}
	err = e.unreadable(ctx, err)
	if fatal := (*PermanentError)(nil); errors.As(err, &fatal) { // the slot may have gone since this relay came
		err = errors.Join(err, e.r.refuseAppends(ctx, e.pool))
	}
	return e.shards.ended(ctx, err, e.lot.begun, e.leave)
}

// open takes the shard over and starts the stream of changes.
func (e *walEngine) open(ctx context.Context) error {
	h := e.shards.held[0]
	accepted, err := e.shards.o.notSetBack(ctx, e.pool, 0)
	if errors.Is(err, errSetBack) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	if err := e.notWentBack(ctx); err != nil {
		return err
	}
	s, err := e.shards.o.open(ctx, 0, position{lsn: true})
	switch {
	case errors.Is(err, errForeign):
		return permanent(err)
	case err != nil:
		return err
	}
	if err := s.reclaim(ctx, e.pool, accepted); err != nil {
		return err
	}
	if err := e.resume(ctx); err != nil {
		return err
	}
	if err := e.lot.load(ctx, s); err != nil {
		return err
	}
	if e.again, err = lastNumber(ctx, e.pool, sqlFlushed); err != nil {
		return err
	}
	start, err := e.slot(ctx, s)
	if err != nil {
		return err
	}
	h.s, e.settled = s, start                // what leaves from here on says how far the slot may be told
	if s.pos.zero() || start > s.confirmed { // it was made now, or by one that ended before it could say so
		if s.pos.zero() {
			s.pos = position{at: start, lsn: true}
		}
		s.confirmed = start
		if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, []*session{s}); err != nil {
			return err
		}
	}
	if err := e.shards.o.note(ctx, e.pool, s); err != nil {
		return err
	}
	if err := e.reads(ctx, s); err != nil {
		return err
	}
	e.r.Log.Info("reads the WAL", "slot", e.r.Config.Slot, "position", s.pos.String(), "readBack", len(s.seen))
	e.feed, err = startFeed(ctx, e.r, e.walPrefix)
	return err
}

// step publishes what has come, or waits for it.
func (e *walEngine) step(ctx context.Context) error {
	if _, err := e.shards.tend(ctx); err != nil {
		return err
	}
	h := e.shards.held[0]
	if h == nil || h.s == nil {
		return fmt.Errorf("%w: the lease was lost", errFenced)
	}
	e.r.stands(e.shards)
	paused, draining, changed := e.r.switches()
	if err := e.care(ctx); err != nil {
		return err
	}
	rest := e.r.Config.Poll
	if !paused {
		wait, err := e.lot.retry(ctx)
		if err != nil {
			return err
		}
		rest = min(rest, wait)
		got := e.feed.take(e.r.Config.Batch)
		if err := e.publish(ctx, h, got); err != nil {
			return err
		}
		if draining {
			if err := e.drained(ctx, len(got.rows) == 0 && wait > 0); err != nil {
				return err
			}
		}
		if len(got.rows) > 0 {
			return ctx.Err()
		}
	}
	if due := e.shards.due(time.Now(), e.pub.can.maxAge); len(due) > 0 {
		if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, due); err != nil {
			return err
		}
	}
	e.r.well()
	t := time.NewTimer(rest)
	defer t.Stop()
	came := e.feed.came
	if paused {
		came = nil
	}
	select {
	case <-came:
	case <-e.r.wake:
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// publish stores rows and tells Postgres how far it can forget.
func (e *walEngine) publish(ctx context.Context, h *shard, got portion) error {
	if got.err != nil {
		return got.err
	}
	rows := got.rows
	for len(rows) > 0 && !rows[0].pos.after(h.s.pos) { // sent again since the slot was confirmed last
		rows = rows[1:]
	}
	if len(rows) > 0 {
		e.r.at("read")
		if err := e.lot.deliver(ctx, rows, []int{0}, rows[len(rows)-1].pos); err != nil {
			return err
		}
	}
	if e.settled = max(e.settled, got.upto); int64(e.settled) >= e.again { // a place in the log
		h.s.aside = nil // what was parked and has not come is of another cluster, whose tables were restored here
	}
	e.advance(rows)
	if !h.s.pos.after(h.s.last) || time.Since(e.told) < time.Second { // when nothing comes it is told with the look at the slot
		return nil
	}
	return e.tell(ctx, false)
}

// tell confirms what is stored: Postgres may drop the WAL before it. What it drops is covered by a marker that the database
// knows of, so that a stream that was set back behind it is noticed.
func (e *walEngine) tell(ctx context.Context, answer bool) error {
	e.told = time.Now()
	s := e.shards.held[0].s
	if s.confirmed = max(s.confirmed, e.settled); s.pos.after(s.last) || s.confirmed > s.said {
		if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, []*session{s}); err != nil {
			return err
		}
	}
	if err := e.shards.o.note(ctx, e.pool, s); err != nil {
		return err
	}
	return e.feed.confirm(e.settled, answer)
}

// drained ends the relay when all that was committed when draining began is stored.
func (e *walEngine) drained(ctx context.Context, empty bool) error {
	if e.until == 0 {
		if err := e.pool.QueryRow(ctx, `select (pg_current_wal_lsn() - '0/0')::bigint`).Scan(&e.until); err != nil {
			return fmt.Errorf("relay: cannot ask how far the WAL is: %w", err)
		}
	}
	if empty && e.settled >= e.until {
		return ErrDrained
	}
	return e.tell(ctx, true)
}

// leave ends with a marker that says that nothing is under way.
func (e *walEngine) leave(ctx context.Context, why error) error {
	sessions := e.shards.sessions()
	for _, s := range sessions {
		s.confirmed = max(s.confirmed, e.settled)
	}
	err := e.shards.finish(ctx)
	if err == nil && e.feed != nil { // without it all would be sent again, and passed over
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err = errors.Join(e.shards.o.note(stop, e.pool, sessions...), e.save(stop)); err == nil {
			err = e.feed.confirm(e.settled, false)
		}
	}
	if err != nil {
		e.r.Log.Warn("the next relay has to read back", "error", err)
	}
	return why
}

// portion is what a feed has brought.
type portion struct {
	rows []*row
	upto uint64 // everything that was committed before this has been taken
	err  error
}

// feed reads the slot beside the publishing, up to a bound of rows and bytes ahead.
type feed struct {
	came chan struct{} // something is there

	mu    sync.Mutex
	room  *sync.Cond
	rows  []*row
	bytes int
	marks []mark // ends of transactions, and what Postgres says it has sent
	upto  uint64
	err   error
	done  bool

	heard  atomic.Int64 // when anything came, in nanoseconds
	conn   *walConn
	cancel context.CancelFunc
	gone   chan struct{}
}

// mark is a point that is reached when so many rows have been taken.
type mark struct {
	rows int // of those that are there
	lsn  uint64
}

// Bounds of what a feed holds.
const (
	feedRows  = 4096
	feedBytes = 2 * maxBytes
)

func startFeed(ctx context.Context, r *Relay, prefix string) (*feed, error) {
	conn, err := connectWAL(ctx, r.Config)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &feed{came: make(chan struct{}, 1), conn: conn, cancel: cancel, gone: make(chan struct{})}
	f.room = sync.NewCond(&f.mu)
	f.heard.Store(time.Now().UnixNano())
	go func() {
		defer close(f.gone)
		f.run(inner, &decoder{prefix: prefix}, r)
	}()
	return f, nil
}

func (f *feed) run(ctx context.Context, d *decoder, r *Relay) {
	for {
		data, sent, err := f.conn.next(ctx)
		f.heard.Store(time.Now().UnixNano())
		var c change
		if err == nil && data != nil {
			c, err = d.decode(data)
		}
		if c.kind == '?' {
			r.Log.Error("an emitted message is no event; it is passed over", "prefix", d.prefix, "so far", d.unknown)
		}
		if !f.put(c, data == nil, sent, err) {
			return
		}
	}
}

// put adds what was decoded, and waits while there is too much. idle says that it was Postgres's word on how far it is.
func (f *feed) put(c change, idle bool, sent uint64, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.err = err
	case c.row != nil:
		f.rows = append(f.rows, c.row)
		f.bytes += len(c.row.Payload) + 512
	case c.kind == 'C':
		f.marks = append(f.marks, mark{len(f.rows), c.end})
	case idle && (len(f.marks) == 0 || f.marks[len(f.marks)-1].rows == len(f.rows)):
		f.marks = append(f.marks[:max(0, len(f.marks)-1)], mark{len(f.rows), sent})
	default:
		return !f.done
	}
	select {
	case f.came <- struct{}{}:
	default:
	}
	for !f.done && f.err == nil && (len(f.rows) >= feedRows || f.bytes >= feedBytes) {
		f.room.Wait()
	}
	return !f.done && f.err == nil
}

// take removes up to n rows.
func (f *feed) take(n int) portion {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, len(f.rows))
	p := portion{rows: f.rows[:n:n]}
	for _, r := range p.rows {
		f.bytes -= len(r.Payload) + 512
	}
	f.rows = append([]*row(nil), f.rows[n:]...)
	i := 0
	for ; i < len(f.marks) && f.marks[i].rows <= n; i++ {
		f.upto = f.marks[i].lsn
	}
	f.marks = append(f.marks[:0:0], f.marks[i:]...)
	for i := range f.marks {
		f.marks[i].rows -= n
	}
	if p.upto = f.upto; len(f.rows) == 0 {
		p.err = f.err
	}
	f.room.Signal()
	return p
}

// waits says that the feed is not full: if nothing comes, nothing was sent.
func (f *feed) waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rows) < feedRows && f.bytes < feedBytes
}

func (f *feed) confirm(lsn uint64, answer bool) error { return f.conn.confirm(lsn, answer) }

func (f *feed) close() {
	f.mu.Lock()
	f.done = true
	f.room.Signal()
	f.mu.Unlock()
	f.cancel()
	<-f.gone
	f.conn.close()
}
