package tables

// Server, a database with connections. A client's bytes come in through receive, in the client's goroutine, and become messages in the queue of the connection; Step executes them up to
// the next statement (session.go). What was answered up to the end of a round trip waits in the queue of the connection until it is delivered.

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/bcc94042/instar/internal/simulation/model/wire"
)

// Options say what database is modelled.
type Options struct {
	Now    func() time.Time // the clock of the database; nil is time.Now
	Mode   string           // of the outbox: log, or claim
	Shards int              // of the outbox; 0 is 4
}

// Server is the model. It is safe for concurrent use, since clients write to it; but only one goroutine may drive it.
type Server struct {
	types *pgtype.Map

	mu    sync.Mutex
	d     *database
	conns []*conn // by their ids, ascending
	last  int
	auto  bool
}

// New is a database with an empty outbox.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Mode, o.Shards = cmp.Or(o.Mode, "log"), cmp.Or(o.Shards, 4)
	return &Server{types: pgtype.NewMap(), d: newDatabase(o)}
}

// Request is something that waits: a statement for its execution, or an answer for its delivery.
type Request struct {
	Conn int
	What string // the name of the statement; of an answer, of the last one that it is to
}

// Dial opens a connection, and returns the client's end and the id of the connection.
func (s *Server) Dial() (net.Conn, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	c := &conn{s: s, id: s.last, prepared: map[string]*statement{}}
	c.end = wire.NewConn(func(b []byte) error { return s.receive(c, b) }, func() { s.closed(c) })
	s.conns = append(s.conns, c)
	return c.end, c.id
}

func (s *Server) receive(c *conn, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.finished {
		return net.ErrClosed
	}
	if err := c.feed(b); err != nil {
		return err
	}
	s.run()
	return nil
}

// closed is told that a client has closed its end: what it has sent is executed yet, and then its transaction ends.
func (s *Server) closed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.finished {
		c.in, c.closing = append(c.in, message{kind: 'X'}), true
		c.out = nil
	}
	s.run()
}

// run does everything there is to do, with Auto.
func (s *Server) run() {
	for s.auto {
		ready := s.ready()
		for _, c := range s.conns {
			for _, o := range c.out {
				c.end.Push(o.bytes)
			}
			c.out = nil
		}
		if len(ready) == 0 {
			return
		}
		ready[0].step()
		s.sweep()
	}
}

// Auto makes everything happen at once, or ends that.
func (s *Server) Auto(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = on
	s.run()
}

// ready are the connections that have something to execute and wait for no other one.
func (s *Server) ready() (list []*conn) {
	for _, c := range s.conns {
		if len(c.in) > 0 && (c.x == nil || c.x.on == nil || c.x.on.ended) {
			list = append(list, c)
		}
	}
	return list
}

// Pending is what may be executed next, by connection.
func (s *Server) Pending() (all []Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ready() {
		all = append(all, Request{c.id, c.upcoming()})
	}
	return all
}

// Step executes what a connection has sent, up to its next statement or the end of its transaction.
func (s *Server) Step(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(id); c != nil {
		c.step()
		s.sweep()
	}
}

// Outbound is what may be delivered next, by connection.
func (s *Server) Outbound() (all []Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if len(c.out) > 0 {
			all = append(all, Request{c.id, c.out[0].what})
		}
	}
	return all
}

// Deliver gives a connection the next of its answers.
func (s *Server) Deliver(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(id); c != nil && len(c.out) > 0 {
		c.end.Push(c.out[0].bytes)
		c.out = c.out[1:]
	}
}

// Kill breaks a connection. What is pending from it is executed as far as it need not wait, or lost; its transaction ends. With linger the server does not find out, and the transaction stays open until [Server.End].
func (s *Server) Kill(id int, lose, linger bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(id)
	if c == nil {
		return
	}
	if lose {
		c.in = nil
	}
	for slices.Contains(s.ready(), c) && !c.finished {
		c.step()
	}
	c.end.End()
	c.out = nil
	if c.lingers = linger && c.x != nil; !c.lingers {
		c.finish()
		s.sweep()
	}
}

// End ends the transactions of connections that the server has not found broken.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.lingers {
			c.finish()
		}
	}
	s.sweep()
}

// end ends all connections.
func (s *Server) end() {
	for _, c := range s.conns {
		c.finish()
	}
	s.sweep()
}

// Close ends all connections.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

func (s *Server) find(id int) *conn {
	for _, c := range s.conns {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (s *Server) sweep() {
	s.conns = slices.DeleteFunc(s.conns, func(c *conn) bool { return c.finished })
}
