package relay

import (
	"context"
	"time"

	"github.com/bcc94042/instar/streams/outbox"
)

// status is what the relay knows of itself.
type status struct {
	problem   string
	fenceWait time.Duration
	slotBytes int64
	rate      meter
	shards    map[int]string // positions of those that are open
}

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

func (r *Relay) sent(n int, took time.Duration) {
	if n == 0 {
		return
	}
	r.Meter.Sent(n, took)
	r.mu.Lock()
	r.state.rate.add(n, time.Now())
	r.state.problem = ""
	r.mu.Unlock()
}

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

// Status is how the relay stands, as far as it knows itself, and what the database counts.
func (r *Relay) Status(ctx context.Context) (outbox.Status, error) {
	r.init()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return outbox.Status{Mode: r.Config.Mode, FenceWait: r.state.fenceWait.Seconds(), Rate: r.state.rate.rate(now), Problem: r.state.problem, At: now}, nil
}

func (r *Relay) slotBytes(n int64) {
	r.mu.Lock()
	r.state.slotBytes = n
	r.mu.Unlock()
}
