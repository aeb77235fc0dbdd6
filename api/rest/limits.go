package rest

// The limits of HTTP requests, per client (Client: a token, or an address): connections (Listen), rate (CheckRate, which package
// rpc calls for NATS, too), places for waits and watches (TakeWait, TakeWatch), and the time that a client takes to send and
// to read (begin, extend, Write). Pools and rates are those of package limits; what exceeds one becomes a problem 429 or 503.

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
)

// Timeouts bound how long a client may take. They do not bound how long a watch or a wait may last: a write is one of up to
// 64 KiB, after which the time begins anew.
type Timeouts struct {
	Header time.Duration // until the headers of a request are there
	Body   time.Duration // until the rest of it is
	Write  time.Duration // until a part of an answer is taken
	Idle   time.Duration // between two requests of a connection
}

// DefaultTimeouts are those where nothing else is said.
var DefaultTimeouts = Timeouts{Header: 5 * time.Second, Body: 10 * time.Second, Write: 10 * time.Second, Idle: time.Minute}

func (t Timeouts) orDefault() Timeouts {
	d := DefaultTimeouts
	return Timeouts{cmp.Or(t.Header, d.Header), cmp.Or(t.Body, d.Body), cmp.Or(t.Write, d.Write), cmp.Or(t.Idle, d.Idle)}
}

// limiters are the limits at work.
type limiters struct {
	conns, watches, waits, questions *limits.Pool
	rate                             *limits.Rate
}

// spareConnections beyond the limit are answered with a problem, instead of being closed.
var spareConnections = limits.Bound{All: 256, Each: 64}

func newLimiters(o *Options) *limiters {
	return &limiters{
		conns: limits.NewPool("connections", o.Connections), watches: limits.NewPool("watches", o.Watches), waits: limits.NewPool("waits", o.Waits),
		questions: limits.NewPool("questions", o.Questions),
		rate:      limits.NewRate("rate", o.Rate, o.paces()),
	}
}

// Listen bounds the connections of a listener. It goes below TLS: a handshake is one of them.
func (s *Server) Listen(l net.Listener) net.Listener {
	return limits.Listen(l, s.limits.conns, limits.NewPool("spare connections", spareConnections))
}

// overBound is the key of a context: why the connection of a request is one too many.
type overBound struct{}

func connected(ctx context.Context, c net.Conn) context.Context {
	if err := limits.Over(c); err != nil {
		return context.WithValue(ctx, overBound{}, err)
	}
	return ctx
}

// TooMany is the problem of a request that got no place: 429 if its client has too many, 503 if all clients together have.
func TooMany(err error, after time.Duration) *problem.Problem {
	var full *limits.Full
	code := problem.CodeUnavailable
	if errors.As(err, &full) && full.PerClient {
		code = problem.CodeRateLimited
	}
	return problem.New(code, err.Error()).With("Retry-After", retryAfter(after))
}

// TurnTooLate is for a client that waited for its turn in vain.
func TurnTooLate() *problem.Problem {
	return problem.Unavailable("the turn of this client did not come in time; nothing was done")
}

// retryAfter is in whole seconds, at least one.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// CheckRate counts a request of a client and refuses it (429) when it asks too often; nil lets it pass.
func (s *Server) CheckRate(client string) *problem.Problem {
	wait, ok := s.limits.rate.Allow(client)
	if ok {
		return nil
	}
	return TooOften("this client asks more often than its rate (limits.rate, or its own) allows; nothing was done", wait)
}

// TooOften is the problem (429) of one who is to wait.
func TooOften(detail string, wait time.Duration) *problem.Problem {
	return problem.New(problem.CodeRateLimited, detail).With("Retry-After", retryAfter(wait))
}

// paces are the rates of clients that have one of their own.
func (o *Options) paces() map[string]limits.Pace {
	own := map[string]limits.Pace{}
	for _, t := range o.Tokens {
		if t.Rate > 0 {
			own[tokenClient(t.Name)] = limits.Pace{PerSecond: t.Rate, Burst: t.Burst}
		}
	}
	for _, u := range o.Users {
		own[UserClient(u.Account, u.Name)] = limits.Pace{PerSecond: u.Rate, Burst: u.Burst}
	}
	return own
}

func tokenClient(name string) string { return "token " + name }

// UserClient is the client as which a user of NATS is counted.
func UserClient(account, user string) string { return "account " + account + " " + user }

// Client is the client as which a request is counted.
func (q *Request) Client() string {
	if q.Who != auth.Anonymous {
		return tokenClient(q.Who.Name)
	}
	return "address " + limits.Client(q.R.RemoteAddr)
}

// TakeWait takes one of the places of those who wait; leave gives it back. The error is a [*problem.Problem].
func (q *Request) TakeWait() (leave func(), err error) { return q.server.TakeWait(q.Client()) }

// TakeWait is [Request.TakeWait] of a client that is named.
func (s *Server) TakeWait(client string) (leave func(), err error) {
	if leave, err = s.limits.waits.Take(client); err != nil {
		return nil, TooMany(err, time.Second)
	}
	return leave, nil
}

// writeChunk is how many bytes a client has to take within the time of a write.
const writeChunk = 64 << 10

// deadlines is what a writer of an answer over a connection has.
type deadlines interface{ SetWriteDeadline(time.Time) error }

// extend gives the client the whole time again to take what is written next, or all but a hundredth of it: an answer that is written at once has its
// deadline set once.
func (w *statusWriter) extend() {
	now := time.Now()
	if w.conn == nil || now.Sub(w.extended) < w.within/100 {
		return
	}
	w.extended = now
	_ = w.conn.SetWriteDeadline(now.Add(w.within)) // it fails where the connection is gone
}

// begin is called before anything of an answer is written. What the client still sends is read first, as the HTTP server would
// do within the time of the first write.
func (w *statusWriter) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.body != nil {
		_, _ = io.CopyN(io.Discard, w.body, maxBody) // it ends with the body, or with the time that it may take
	}
	w.extend()
}

func (w *statusWriter) Write(b []byte) (n int, err error) {
	w.begin(http.StatusOK)
	for {
		w.extend()
		m, err := w.ResponseWriter.Write(b[n:min(n+writeChunk, len(b))])
		n += m
		if err != nil || n == len(b) {
			w.late = w.late || errors.Is(err, os.ErrDeadlineExceeded)
			return n, err
		}
	}
}

// User is a user of NATS with a rate of its own, by the names that the server gives in Nats-Request-Info.
type User struct {
	Account, Name string
	Rate, Burst   int
}

// TakeWatch takes one of the places of watches; leave gives it back. The error is a [*problem.Problem].
func (q *Request) TakeWatch() (leave func(), err error) {
	giveBack, err := q.server.limits.watches.Take(q.Client())
	if err != nil {
		return nil, TooMany(err, 5*time.Second)
	}
	done, ok := q.server.Enter()
	if !ok {
		giveBack()
		return nil, problem.Unavailable("the server is stopping")
	}
	q.server.metrics.watches.Inc()
	return func() {
		q.server.metrics.watches.Dec()
		done()
		giveBack()
	}, nil
}

// Enter has [Server.Wait] wait until leave is called. It is false when the server is being closed.
func (s *Server) Enter() (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Err() != nil {
		return nil, false
	}
	s.watches.Add(1)
	return s.watches.Done, true
}

// Counts are the pools, the queue and the rates of this package, for metrics.
func (s *Server) Counts() limits.Counts {
	return limits.Counts{Pools: []*limits.Pool{s.limits.conns, s.limits.watches, s.limits.waits, s.limits.questions}, Queues: []*limits.Queue{s.Reads}, Rates: []*limits.Rate{s.limits.rate}}
}
