package relay

import (
	"context"
	"slices"
	"time"

	"github.com/bcc94042/instar/streams/outbox"
)

// status is what the relay knows of itself.
type status struct {
	problem   string
	fenceWait time.Duration
	rate      meter
	shards    map[int]position // of those that are open
}

// Meter takes the figures of a relay. Its methods are called by the relay's own goroutine and must not block.
type Meter interface {
	Sent(rows int, took time.Duration) // a batch was stored
	Tried(tries, rows int)             // so many of its rows took so many tries
	Parked(reason string)              // an aggregate has to wait
	Restarted(reason string)           // something failed, and the shards were opened again
	FenceWait(d time.Duration)         // a read waited for open writers
	Lag(rows int64)                    // rows behind, also the number for back-pressure
}

type noMeter struct{}

func (noMeter) Sent(int, time.Duration) {}
func (noMeter) Tried(int, int)          {}
func (noMeter) Parked(string)           {}
func (noMeter) Restarted(string)        {}
func (noMeter) FenceWait(time.Duration) {}
func (noMeter) Lag(int64)               {}

// meter counts rows per second over the last minute.
type meter struct {
	start time.Time
	slots [60]int64
	at    int64 // second of the last count
}

func (m *meter) add(n int, now time.Time) {
	m.turn(now)
	m.slots[m.at%60] += int64(n)
}

// turn empties the seconds that have passed since the last count.
func (m *meter) turn(now time.Time) {
	s := now.Unix()
	for i := max(m.at+1, s-59); i <= s; i++ {
		m.slots[i%60] = 0
	}
	m.at = max(m.at, s)
}

func (m *meter) rate(now time.Time) float64 {
	m.turn(now)
	sum := int64(0)
	for _, n := range m.slots {
		sum += n
	}
	return float64(sum) / min(60, max(1, now.Sub(m.start).Seconds()))
}

func (r *Relay) sent(list []item, took time.Duration) {
	n := len(list)
	if n == 0 {
		return
	}
	r.Meter.Sent(n, took)
	for _, it := range list {
		if it.row.attempts > 1 {
			r.Meter.Tried(it.row.attempts, 1)
			n--
		}
	}
	r.Meter.Tried(1, n)
	n = len(list)
	r.mu.Lock()
	r.state.rate.add(n, time.Now())
	r.state.problem = ""
	r.mu.Unlock()
}

// well says that there is nothing to complain of: a turn was made, and nothing waits.
func (r *Relay) well() { r.problem(nil) }

func (r *Relay) problem(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.problem = ""
	if err != nil {
		r.state.problem = err.Error()
	}
}

func (r *Relay) fenceWait(d time.Duration) {
	if d > 0 {
		r.Meter.FenceWait(d)
	}
	r.mu.Lock()
	r.state.fenceWait = d
	r.mu.Unlock()
}

// Status is how the relay itself stands; [outbox.Store.Status] adds what the database counts. Shards are those that this
// relay holds, with the positions of their last rows in the stream.
func (r *Relay) Status(context.Context) (outbox.Status, error) {
	r.init()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	st := outbox.Status{
		Mode: r.Config.Mode, FenceWait: r.state.fenceWait.Seconds(), Rate: r.state.rate.rate(now),
		Problem: r.state.problem, At: now,
	}
	for n, p := range r.state.shards {
		st.Shards = append(st.Shards, outbox.Shard{Number: n, Owner: r.Node, Position: p.String()})
	}
	slices.SortFunc(st.Shards, func(a, b outbox.Shard) int { return a.Number - b.Number })
	return st, nil
}

// stands notes where the shards stand.
func (r *Relay) stands(l *shards) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.shards == nil {
		r.state.shards = map[int]position{}
	}
	clear(r.state.shards)
	for n, h := range l.held {
		if h.s != nil {
			r.state.shards[n] = h.s.pos
		}
	}
}

// position is that of the shard that is furthest behind.
func (r *Relay) position() (at int64, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.state.shards {
		if !open || int64(p) < at {
			at, open = int64(p), true
		}
	}
	return at, open
}
