package mover

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/bcc94042/instar/providers/database/pg"
)

// counter adds up what is copied, and how fast.
type counter struct {
	mu                 sync.Mutex
	total, rows, bytes int64
	began, last        time.Time
	base               int64   // rows when it began
	rate               float64 // rows per second, smoothed
	pending            int64   // rows since the rate was taken
}

// window is over how long the rate is smoothed.
const window = 10 * time.Second

func (c *counter) add(table string, rows, bytes int64) Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows, c.bytes, c.pending = c.rows+rows, c.bytes+bytes, c.pending+rows
	now := time.Now()
	if c.last.IsZero() {
		c.last = c.began
	}
	if dt := now.Sub(c.last); dt >= 100*time.Millisecond {
		latest := float64(c.pending) / dt.Seconds()
		weight := 1 - math.Exp(-dt.Seconds()/window.Seconds())
		if c.rate == 0 {
			weight = 1
		}
		c.rate += weight * (latest - c.rate)
		c.last, c.pending = now, 0
	}
	return c.at(table)
}

func (c *counter) progress(table string) Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(table)
}

func (c *counter) at(table string) Progress {
	p := Progress{Table: table, Rows: c.rows, Total: c.total, Bytes: c.bytes, Rate: c.rate}
	if elapsed := time.Since(c.began).Seconds(); p.Rate == 0 && elapsed > 0 {
		p.Rate = float64(c.rows-c.base) / elapsed
	}
	if left := c.total - c.rows; left > 0 && p.Rate > 0 {
		p.ETA = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
	return p
}

// Look reads how far a session's copy is, from the target; the rate is that of the ranges that were done in the last seconds.
func Look(ctx context.Context, target pg.Address, session string) (p Progress, at time.Time, err error) {
	conn, err := pg.Connect(ctx, named(target, "instar look"))
	if err != nil {
		return p, at, err
	}
	defer pg.Close(conn)
	var recent int64
	var since float64
	err = conn.QueryRow(ctx, `
		with r as (select r.* from instar.range r join instar.moved m using (table_name) where m.session = $1)
		select coalesce((select table_name from r where done_at is not null order by done_at desc limit 1), ''),
			(select coalesce(sum(rows), 0)::bigint from r), (select coalesce(sum(rows), 0)::bigint from instar.moved where session = $1),
			(select coalesce(sum(bytes), 0)::bigint from r), coalesce((select max(done_at) from r), 'epoch'),
			(select coalesce(sum(rows), 0)::bigint from r where done_at > now() - $2::interval),
			coalesce((select extract(epoch from clock_timestamp() - min(done_at)) from r where done_at > now() - $2::interval), 0)::float8`, session, window).
		Scan(&p.Table, &p.Rows, &p.Total, &p.Bytes, &at, &recent, &since)
	if err != nil {
		return p, at, err
	}
	if recent > 0 {
		p.Rate = float64(recent) / max(since, 0.1)
	}
	if left := p.Total - p.Rows; left > 0 && p.Rate > 0 {
		p.ETA = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
	return p, at, nil
}
