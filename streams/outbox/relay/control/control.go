package control

// Between a relay and the loop of its mode. Wake, Pause, Resume and Drain of the relay set switches here, which the loops read each turn; the loops report what they have stored
// (Publish), which shards are open (Stands) and what they wait for (Problem, FenceWait), and that leaves through Status and Meter.

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// Meter takes the figures of a relay. Its methods are called by several goroutines of the relay and must not block.
type Meter interface {
	Sent(rows int, took time.Duration) // a batch was stored
	Tried(tries, rows int)             // so many of its rows took so many tries
	Parked(reason string)              // an aggregate has to wait
	Restarted(reason string)           // something failed, and the shards were opened again
	FenceWait(d time.Duration)         // a read waited for open writers
	Lag(rows int64)                    // rows behind, also the number for back-pressure
}

// NoMeter measures nothing.
type NoMeter struct{}

// Sent does nothing.
func (NoMeter) Sent(int, time.Duration) {}

// Tried does nothing.
func (NoMeter) Tried(int, int) {}

// Parked does nothing.
func (NoMeter) Parked(string) {}

// Restarted does nothing.
func (NoMeter) Restarted(string) {}

// FenceWait does nothing.
func (NoMeter) FenceWait(time.Duration) {}

// Lag does nothing.
func (NoMeter) Lag(int64) {}

// QueryTimeout is how long a query may take that a relay waits for again and again: a database that is cut off does not say so.
const QueryTimeout = 30 * time.Second

// Control is that of one relay.
type Control struct {
	Meter Meter
	Log   *slog.Logger
	Hook  func(at string) // a test stops the relay here; may be nil

	woken chan struct{}

	mu       sync.Mutex
	paused   bool
	draining bool
	changed  chan struct{} // closed when paused or draining change

	problem   string
	fenceWait time.Duration
	rate      rate
	shards    map[int]sink.Position // of those that are open
}

// New is the control of a relay that is neither paused nor draining.
func New(meter Meter, log *slog.Logger) *Control {
	return &Control{
		Meter: meter, Log: log, woken: make(chan struct{}, 1), changed: make(chan struct{}),
		rate: rate{start: time.Now()}, shards: map[int]sink.Position{},
	}
}

// Wake lets the relay look for rows that were just committed. It never blocks.
func (c *Control) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Woken receives after Wake.
func (c *Control) Woken() <-chan struct{} { return c.woken }

// Pause stops reading and publishing, or resumes it.
func (c *Control) Pause(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.switchTo(paused, c.draining)
}

// Drain asks the relay to publish everything that is committed now, and to end then. It resumes a paused relay.
func (c *Control) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.switchTo(false, true)
	}
}

func (c *Control) switchTo(paused, draining bool) {
	if paused == c.paused && draining == c.draining {
		return
	}
	c.paused, c.draining = paused, draining
	close(c.changed)
	c.changed = make(chan struct{})
}

// Switches returns what is asked of the relay now, and a channel that is closed at the next change.
func (c *Control) Switches() (paused, draining bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused, c.draining, c.changed
}

// At says where the relay is, for tests.
func (c *Control) At(point string) {
	if c.Hook != nil {
		c.Hook(point)
	}
}

// Publish stores a batch by a function that says how many of its rows are stored, and counts those.
func (c *Control) Publish(items []sink.Item, publish func() (stored int, err error)) (int, error) {
	began := time.Now()
	c.At("publish")
	stored, err := publish()
	c.At("published")
	c.sent(items[:stored], time.Since(began))
	return stored, err
}

func (c *Control) sent(list []sink.Item, took time.Duration) {
	n := len(list)
	if n == 0 {
		return
	}
	c.Meter.Sent(n, took)
	for _, it := range list {
		if it.Row.Attempts > 1 {
			c.Meter.Tried(it.Row.Attempts, 1)
			n--
		}
	}
	c.Meter.Tried(1, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate.add(len(list), time.Now())
	c.problem = ""
}

// Problem records why the relay makes no progress; nil means that a turn was completed.
func (c *Control) Problem(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = ""
	if err != nil {
		c.problem = err.Error()
	}
}

// FenceWait records for how long open writers have held the relay back; 0 means that they no longer do.
func (c *Control) FenceWait(d time.Duration) {
	if d > 0 {
		c.Meter.FenceWait(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenceWait = d
}

// Stands records which shards are open, and their positions.
func (c *Control) Stands(sessions []*session.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.shards)
	for _, s := range sessions {
		c.shards[s.Shard] = s.Pos
	}
}

// Position is that of the shard that is furthest behind.
func (c *Control) Position() (at int64, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.shards {
		if !open || int64(p) < at {
			at, open = int64(p), true
		}
	}
	return at, open
}

// Status is what was recorded last. The shards are reported as those of node.
func (c *Control) Status(node string) outbox.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	st := outbox.Status{FenceWait: c.fenceWait.Seconds(), Rate: c.rate.perSecond(now), Problem: c.problem, At: now}
	for n, p := range c.shards {
		st.Shards = append(st.Shards, outbox.Shard{Number: n, Owner: node, Position: p.String()})
	}
	slices.SortFunc(st.Shards, func(a, b outbox.Shard) int { return a.Number - b.Number })
	return st
}
