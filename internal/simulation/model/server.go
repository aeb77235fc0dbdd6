package model

// Server, a core with connections. A client's bytes come in through receive, in the client's goroutine, and become operations in the queue of the
// connection; pump takes effect of what is no publish; process gives a publish to subscribers (route.go) and to JetStream (package core). What
// goes to clients waits in the queue of their connection.

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/api"
	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/internal/simulation/model/wire"
)

// Options say what server is modelled. The zero value is a single server without bounds that syncs every write.
type Options struct {
	Now        func() time.Time // nil is time.Now
	Name       string           // of the server; empty is "model"
	Replicas   int              // the most that a stream may have: 1, or 3 for a cluster of three behind one address
	MaxStore   int64            // bytes that all streams may have in files; 0 is no bound
	MaxPayload int              // of a message; 0 is 1 MiB
	LateRoom   func() bool      // see [core.Options]
	SyncEvery  time.Duration    // how often what was written is synced to disk; 0 is before each answer

	// Told are the streams that are synced only when [Server.Sync] or [Server.SyncTo] says so; nil is none.
	Told func(stream string) bool
}

// Packet is something that a client has published, the first of its connection that is not processed.
type Packet struct {
	Conn           int
	Subject, Reply string
	Header, Data   []byte
	Behind         int // packets of the same connection after it
}

// Delivery is something that waits for a client, the first of its connection.
type Delivery struct {
	Conn           int
	Subject, Reply string
	Header, Data   []byte
	Behind         int // deliveries of the same connection after it
}

// Server is the model. It is safe for concurrent use, since clients write to it; but only one goroutine may drive it.
type Server struct {
	o Options

	mu    sync.Mutex
	core  *core.Core
	api   *api.API
	conns []*conn // by their ids, ascending
	last  int     // id
	subs  subscriptions
	turn  uint64 // of the members of queue groups
	auto  bool
	timer *time.Timer
	at    time.Time // when the timer fires
}

// New is a server without streams.
func New(o Options) *Server {
	o.Name = cmp.Or(o.Name, "model")
	o.MaxPayload = cmp.Or(o.MaxPayload, 1<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, subs: newSubscriptions()}
	s.begin()
	return s
}

// begin is JetStream without streams.
func (s *Server) begin() {
	o := s.o
	s.core = core.New(core.Options{Replicas: o.Replicas, MaxStore: o.MaxStore, MaxPayload: o.MaxPayload, SyncEvery: o.SyncEvery, Told: o.Told, LateRoom: o.LateRoom}, outlet{s})
	s.api = api.New(s.core)
	s.api.Name = o.Name
}

// conn is a connection as the server sees it.
type conn struct {
	id       int
	end      *wire.Conn
	parser   wire.Parser
	ops      []wire.Op
	out      []outgoing
	subs     map[string]*subscription
	answers  bool // it wants to know that nobody listens
	verbose  bool
	deaf     bool // it does not get what it publishes itself
	finished bool
}

// outgoing is what waits for a client. What is no message of somebody's goes by itself.
type outgoing struct {
	Delivery
	bytes   []byte
	control bool
}

// Connect opens a connection, and returns the client's end. It never fails; to dial with nats.go, give it InProcessConn.
func (s *Server) Connect() net.Conn {
	c, _ := s.connect()
	return c
}

// InProcessConn is Connect for nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.Connect(), nil }

func (s *Server) connect() (*wire.Conn, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	c := &conn{id: s.last, subs: map[string]*subscription{}, parser: wire.Parser{MaxPayload: s.o.MaxPayload}}
	c.end = wire.NewConn(func(b []byte) error { return s.receive(c, b) }, func() { s.closed(c) })
	s.conns = append(s.conns, c)
	c.end.Push(fmt.Appendf(nil, `INFO {"server_id":%q,"server_name":%q,"version":%q,"proto":1,"host":"127.0.0.1","port":4222,"headers":true,"max_payload":%d,"jetstream":true,"client_id":%d}`+"\r\n",
		"MODEL", s.o.Name, server.VERSION, s.o.MaxPayload, c.id))
	return c.end, c.id
}

// receive takes bytes of a client.
func (s *Server) receive(c *conn, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.finished {
		return net.ErrClosed
	}
	c.parser.Feed(b)
	for {
		op, ok, err := c.parser.Next()
		if err != nil {
			c.end.Push([]byte("-ERR '" + err.Error() + "'\r\n"))
			s.finish(c, true)
			return nil
		}
		if !ok {
			break
		}
		c.ops = append(c.ops, op)
	}
	s.pump(c)
	if s.auto {
		s.run(c)
	}
	return nil
}

// run processes everything of a connection.
func (s *Server) run(c *conn) {
	for len(c.ops) > 0 && !c.finished {
		s.processFirst(c)
	}
	s.arm()
}

// pump takes effect of what is no publish, up to the next publish.
func (s *Server) pump(c *conn) {
	for len(c.ops) > 0 && c.ops[0].Kind != wire.Pub {
		op := c.ops[0]
		c.ops = c.ops[1:]
		s.control(c, op)
	}
	if len(c.ops) == 0 {
		c.ops = nil
	}
}

// processFirst processes the first publish of a connection, and what follows it.
func (s *Server) processFirst(c *conn) {
	op := c.ops[0]
	c.ops = c.ops[1:]
	s.core.At(s.o.Now())
	s.process(c, op)
	s.pump(c)
}

// closed is told that a client has closed its end. What it has sent is still processed.
func (s *Server) closed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(c, false)
}

// finish ends a connection. What it has sent is processed, or lost with it.
func (s *Server) finish(c *conn, lose bool) {
	if lose {
		c.ops = nil
	}
	if !c.finished {
		c.finished = true
		c.out = nil
		s.core.At(s.o.Now())
		for _, sub := range sorted(c.subs) {
			s.unsubscribe(sub)
		}
		c.end.End()
	}
	if len(c.ops) == 0 {
		s.conns = slices.DeleteFunc(s.conns, func(x *conn) bool { return x == c })
	}
}

// Pending are the packets that are to be processed next, the first of each connection, by connection.
func (s *Server) Pending() []Packet {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Packet
	for _, c := range s.conns {
		if len(c.ops) > 0 {
			op := c.ops[0]
			behind := 0
			for _, o := range c.ops[1:] {
				if o.Kind == wire.Pub {
					behind++
				}
			}
			all = append(all, Packet{c.id, op.Subject, op.Reply, op.Header, op.Data, behind})
		}
	}
	return all
}

// Step processes the i-th of the packets that [Server.Pending] has shown, which must not have changed since.
func (s *Server) Step(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.conns) {
		if len(c.ops) == 0 {
			continue
		}
		if i--; i < 0 {
			s.processFirst(c)
			if c.finished {
				s.finish(c, false)
			}
			return
		}
	}
}

// Outbound are the deliveries that are next, the first of each connection, by connection.
func (s *Server) Outbound() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Delivery
	for _, c := range s.conns {
		if len(c.out) > 0 {
			d := c.out[0].Delivery
			for _, o := range c.out[1:] {
				if !o.control {
					d.Behind++
				}
			}
			all = append(all, d)
		}
	}
	return all
}

// Deliver sends a connection the next of what waits for it.
func (s *Server) Deliver(conn int) { s.next(conn, true) }

// Drop loses the next of what waits for a connection.
func (s *Server) Drop(conn int) { s.next(conn, false) }

func (s *Server) next(id int, push bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(id)
	if c == nil || len(c.out) == 0 {
		return
	}
	if push {
		c.end.Push(c.out[0].bytes)
	}
	c.out = c.out[1:]
	for len(c.out) > 0 && c.out[0].control {
		c.end.Push(c.out[0].bytes)
		c.out = c.out[1:]
	}
}

func (s *Server) find(id int) *conn {
	i, ok := slices.BinarySearchFunc(s.conns, id, func(c *conn, id int) int { return cmp.Compare(c.id, id) })
	if !ok {
		return nil
	}
	return s.conns[i]
}

// push queues something for a client, or sends it at once.
func (s *Server) push(c *conn, o outgoing) {
	if c.finished {
		return
	}
	if s.auto || o.control && len(c.out) == 0 {
		c.end.Push(o.bytes)
		return
	}
	c.out = append(c.out, o)
}

// Advance sets the time and fires what is due.
func (s *Server) Advance(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Advance(now)
}

// NextTimer is when [Server.Advance] has something to do next; false is never.
func (s *Server) NextTimer() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.NextTimer()
}

// Auto makes everything happen at once, and time by itself; or ends that. What waits is processed and delivered.
func (s *Server) Auto(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = on
	if !on {
		if s.timer != nil {
			s.timer.Stop()
			s.timer, s.at = nil, time.Time{}
		}
		return
	}
	for _, c := range slices.Clone(s.conns) {
		for _, o := range c.out {
			c.end.Push(o.bytes)
		}
		c.out = nil
		s.run(c)
	}
	s.arm()
}

// arm sets the timer to what is due next.
func (s *Server) arm() {
	next, ok := s.core.NextTimer()
	if !ok || !s.at.IsZero() && !next.Before(s.at) {
		return // a timer that fires too early looks again
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.at = next
	s.timer = time.AfterFunc(max(next.Sub(s.o.Now()), 0), s.tick)
}

func (s *Server) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.auto {
		s.at = time.Time{}
		s.core.Advance(s.o.Now())
		s.arm()
	}
}

// Kill breaks a connection. What is pending from it is processed first, or lost.
func (s *Server) Kill(conn int, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(conn); c != nil {
		for !lose && len(c.ops) > 0 {
			s.processFirst(c)
		}
		s.finish(c, true)
	}
}

// Close ends every connection and the time.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = false
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, c := range slices.Clone(s.conns) {
		s.finish(c, true)
	}
}
