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

// Smooth is a rate per second, over about the last ten seconds, when so much more was done in some time. One of 0 is not known yet.
func Smooth(rate float64, more int64, in time.Duration) float64 {
	weight := 1 - math.Exp(-in.Seconds()/window.Seconds())
	if rate == 0 {
		weight = 1
	}
	return rate + weight*(float64(more)/in.Seconds()-rate)
}

func (c *counter) add(table string, rows, bytes int64) Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows, c.bytes, c.pending = c.rows+rows, c.bytes+bytes, c.pending+rows
	now := time.Now()
	if c.last.IsZero() {
		c.last = c.began
	}
	if dt := now.Sub(c.last); dt >= 100*time.Millisecond {
		c.rate = Smooth(c.rate, c.pending, dt)
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
	p.estimate()
	return p
}

// estimate is the time that is left, by the rate.
func (p *Progress) estimate() {
	if left := p.Total - p.Rows; left > 0 && p.Rate > 0 {
		p.ETA = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
}

// With is a copy that has more rows, which others have copied there, and a rate over both.
func (p Progress) With(rows, bytes int64, rate float64) Progress {
	p.Rows, p.Bytes, p.Rate, p.ETA = p.Rows+rows, p.Bytes+bytes, rate, 0
	p.Total = max(p.Total, p.Rows) // more may have been written since they were counted
	p.estimate()
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
	p.estimate()
	return p, at, nil
}

// Planned is how many rows tables had when they were planned.
func Planned(ctx context.Context, target pg.Address, session string, tables []string) (rows int64, err error) {
	conn, err := pg.Connect(ctx, named(target, "instar look"))
	if err != nil {
		return 0, err
	}
	defer pg.Close(conn)
	err = conn.QueryRow(ctx, `select coalesce(sum(rows), 0)::bigint from instar.moved where session = $1 and table_name = any($2)`, session, tables).Scan(&rows)
	return rows, err
}
