package core

// Core, the streams of one account. Publish takes a message to whoever it is for: the API (api.go), a consumer (acks, pulls, flow control) or the
// streams that store its subject (publish.go). What is sent goes to the Outlet, and to the streams that store it. Advance fires what is due.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Outlet is what a core is connected to.
type Outlet interface {
	Send(store.Message)            // to the clients that listen
	Interest(subject string) bool  // whether one does
	Listening(subject string) bool // whether one does by a subscription without wildcards and queue
}

// Options say what server is modelled.
type Options struct {
	Replicas   int   // of streams that may be had: 1 is a single server, 3 a cluster of three
	MaxStore   int64 // bytes that all streams may have in files; 0 is no bound
	MaxMemory  int64 // the same in memory
	MaxPayload int   // of a message; 0 is 1 MiB
	SyncEvery  time.Duration

	Told func(stream string) bool // see the options of package model

	// LateRoom is asked whether a message that was pushed out makes room for another delivery after the consumers know of the one that pushed it out. The
	// server does the two beside each other; nil is never.
	LateRoom func() bool
}

// Core is JetStream. It is for one goroutine at a time.
type Core struct {
	o       Options
	out     Outlet
	now     time.Time
	behind  time.Duration // the clock that stamps, of now: it was set back
	streams map[string]*Stream
	names   []string // of streams, sorted
	routes  map[string][]*Stream
	sent    []store.Message // by the core itself, for streams that store them
	later   []func()
	busy    bool
	ids     uint64 // given out, for names and flow control
	full    bool   // the store takes nothing more, whatever the bounds
}

// New is a core without streams.
func New(o Options, out Outlet) *Core {
	o.Replicas = max(o.Replicas, 1)
	if o.MaxPayload == 0 {
		o.MaxPayload = 1 << 20
	}
	return &Core{o: o, out: out, streams: map[string]*Stream{}, routes: map[string][]*Stream{}}
}

// At sets the time of what comes next. It does not fire what is due; time does not go back.
func (c *Core) At(now time.Time) {
	if now.After(c.now) {
		c.now = now
	}
}

func (c *Core) nanos() int64 { return c.now.UnixNano() }

// wall is what the clock shows that stamps messages, and by which their lives, the windows of ids and schedules end. What the server measures with timers goes by nanos.
func (c *Core) wall() int64 { return c.nanos() - int64(c.behind) }

// SetBack sets the clock back that stamps.
func (c *Core) SetBack(d time.Duration) { c.behind += d }

// Publish takes a message of a client, and reports whether there was anybody in JetStream to take it.
func (c *Core) Publish(m store.Message) bool {
	taken := c.take(m)
	c.Settle()
	return taken
}

func (c *Core) take(m store.Message) bool {
	if strings.HasPrefix(m.To, "$JS"+".") {
		switch rest := m.To[len("$JS"+"."):]; {
		case strings.HasPrefix(rest, "ACK."):
			return c.ack(m)
		case strings.HasPrefix(rest, "FC."):
			return c.flow(m)
		}
	}
	to := c.storing(m.To)
	for _, s := range to {
		s.publish(m)
	}
	return len(to) > 0
}

// storing are the streams that store a subject.
func (c *Core) storing(subject string) []*Stream {
	if to, ok := c.routes[subject]; ok {
		return to
	}
	var to []*Stream
	for _, name := range c.names {
		if s := c.streams[name]; slices.ContainsFunc(s.cfg.Subjects, func(f string) bool { return store.Match(f, subject) }) {
			to = append(to, s)
		}
	}
	if len(c.routes) > 1<<14 {
		clear(c.routes)
	}
	c.routes[subject] = to
	return to
}

// Send hands a message out, and notes it for the streams that store it.
func (c *Core) Send(m store.Message) {
	c.out.Send(m)
	if !strings.HasPrefix(m.To, "_INBOX") && len(c.storing(m.To)) > 0 {
		c.sent = append(c.sent, m)
	}
}

// Settle stores what the core itself has sent.
func (c *Core) Settle() {
	if c.busy {
		return
	}
	c.busy = true
	for c.runLater(); len(c.sent) > 0; c.runLater() {
		m := c.sent[0]
		c.sent = c.sent[1:]
		for _, s := range c.storing(m.To) {
			s.publish(store.Message{To: m.To, Header: m.Header, Data: m.Data})
		}
	}
	c.busy = false
}

// Reply sends an answer, if somebody waits for one.
func (c *Core) Reply(to string, data []byte) {
	if to != "" {
		c.Send(store.Message{To: to, Data: data})
	}
}

func (c *Core) runLater() {
	for len(c.later) > 0 {
		f := c.later[0]
		c.later = c.later[1:]
		f()
	}
}

// Later does something after what is being done.
func (c *Core) Later(f func()) { c.later = append(c.later, f) }

// ID is a name that was not given out before.
func (c *Core) ID() string {
	c.ids++
	return fmt.Sprintf("MODEL%017d", c.ids)
}

// Consumer is one by its names, or nil.
func (c *Core) Consumer(stream, name string) *consumer.Consumer {
	if s := c.streams[stream]; s != nil {
		return s.consumers[name]
	}
	return nil
}

// NextTimer is when [Core.Advance] has something to do next; false is never.
func (c *Core) NextTimer() (time.Time, bool) {
	next := int64(math.MaxInt64)
	for _, name := range c.names {
		s := c.streams[name]
		next = min(next, s.nextTimer())
		for _, o := range s.order {
			next = min(next, o.NextTimer())
		}
	}
	return time.Unix(0, next), next != math.MaxInt64
}

// mostAtOnce bounds what is due at one instant. What is due again at once as often as that is due for ever, and a panic shows it where a test would just not end.
const mostAtOnce = 100_000

// Advance sets the time and fires what is due, in the order of its times.
func (c *Core) Advance(now time.Time) {
	for rounds := 0; ; rounds++ {
		next, ok := c.NextTimer()
		if !ok || next.After(now) {
			break
		}
		if next.After(c.now) {
			rounds = 0
		} else if rounds > mostAtOnce {
			panic(fmt.Sprintf("model: something is due for ever at %s", next))
		}
		c.At(next)
		due := c.nanos()
		for _, name := range slices.Clone(c.names) {
			s := c.streams[name]
			if s == nil {
				continue
			}
			if s.nextTimer() <= due {
				s.fire()
			}
			for _, o := range slices.Clone(s.order) {
				if o.NextTimer() <= due {
					o.Fire()
				}
			}
		}
		c.Settle()
	}
	c.At(now)
}

// Interested tells that somebody has begun, or ceased, to listen on a subject.
func (c *Core) Interested(subject string) {
	for _, name := range c.names {
		for _, o := range slices.Clone(c.streams[name].order) {
			if subject != "" && o.Config().DeliverSubject == subject {
				o.Interested()
			}
		}
	}
	c.Settle()
}

// StoredBytes is how many bytes the streams of a storage have.
func (c *Core) StoredBytes(t server.StorageType) (n uint64) {
	for _, s := range c.streams {
		if s.cfg.Storage == t {
			n += s.log.Bytes
		}
	}
	return n
}

// room reports whether so much may be stored besides. more is zero for "whether anything may be".
func (c *Core) room(t server.StorageType) bool {
	limit := c.o.MaxStore
	if t == server.MemoryStorage {
		limit = c.o.MaxMemory
	}
	return !c.full && (limit <= 0 || c.StoredBytes(t) <= uint64(limit))
}

// SetFull makes every publish fail for lack of room, or ends that.
func (c *Core) SetFull(full bool) { c.full = full }

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// Now is the time that was set last.
func (c *Core) Now() time.Time { return c.now }

// Interest reports whether a client listens.
func (c *Core) Interest(subject string) bool { return c.out.Interest(subject) }

// Listening reports whether a client listens by a subscription without wildcards and queue.
func (c *Core) Listening(subject string) bool { return c.out.Listening(subject) }

// Deliver sends to clients only.
func (c *Core) Deliver(m store.Message) { c.out.Send(m) }

// Stream is one by its name, or nil.
func (c *Core) Stream(name string) *Stream { return c.streams[name] }

// Names are those of all streams, sorted.
func (c *Core) Names() []string { return c.names }

// Replicas are the most that a stream may have.
func (c *Core) Replicas() int { return c.o.Replicas }
