package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/limits"
)

// Limits are what one client, and all of them together, may hold and ask. A client is a token; without tokens an address
// (of IPv6 a network of 64 bits); of connections always an address; over NATS what [natsClient] makes of it. A bound of 0 is
// none.
type Limits struct {
	Connections limits.Bound // of HTTP that are open
	Watches     limits.Bound // and blocking reads of discovery
	Waits       limits.Bound // requests that wait for more than their answer: settle, Prefer: wait, minRevision
	Commands    limits.Bound // that wait for their turn, or for the answer of the engine
	Questions   limits.Bound // over NATS that wait for their turn or are under way
	Rate        int          // requests a second of one client that has no rate of its own, over HTTP and NATS; 0 is no limit
	Burst       int          // at once after a silence; 0 is as many as in a second

	// CommandsAtOnce is how many commands the engine has from this process at once, and from one client at most; 0 is no bound. Clients take
	// turns: see [limits.Turns].
	CommandsAtOnce int

	Entities int // of machines whose entities can end, that live in one namespace as far as this process knows; 0 is no bound
}

// DefaultLimits leave a client a quarter of what there is.
var DefaultLimits = Limits{
	Connections: limits.Bound{All: 24000, Each: 6000}, Watches: limits.Bound{All: 20000, Each: 5000},
	Waits: limits.Bound{All: 4096, Each: 1024}, Commands: limits.Bound{All: 4096, Each: 1024}, Questions: limits.Bound{All: 4096, Each: 1024}, CommandsAtOnce: 256,
}

// WatchMemory is what a watch takes of the memory of the process, with its connection: one of all machines, which takes most.
const WatchMemory = 72 << 10

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
	batches               *limits.Pool
	conns, watches, waits *limits.Pool
	asked, pending        *limits.Pool
	questions, commands   *limits.Queue // of asked, and of pending
	rate                  *limits.Rate
	entities              *limits.Quota // of a namespace
}

// Turns of commands: which part of all turns those share who ask for much, beside small clients, so that these do not fall behind by what is slow; and
// after how long the turn of a command passes that the engine has not answered, as while a partition has no owner. What is only slow, as on a disk that
// is, should not pass: it would be before the commands of others.
const (
	fewOf      = 32
	turnWithin = time.Second
)

// Reads of the micro service: how many are under way at once, and how many those share who ask for much, beside small clients.
const (
	microWorkers = 64
	microFew     = 8
)

// spareConnections are told that there are too many, instead of being closed.
var spareConnections = limits.Bound{All: 256, Each: 64}

func newLimiters(l Limits, paces map[string]limits.Pace) *limiters {
	b := &limiters{
		batches: limits.NewPool("batches", batchesAtOnce),
		conns:   limits.NewPool("connections", l.Connections), watches: limits.NewPool("watches", l.Watches),
		waits: limits.NewPool("waits", l.Waits), asked: limits.NewPool("questions", l.Questions), pending: limits.NewPool("commands", l.Commands), rate: limits.NewRate("rate", limits.Pace{PerSecond: l.Rate, Burst: l.Burst}, paces),
	}
	b.questions = limits.NewQueue(b.asked, limits.Turns{All: microWorkers, Few: microFew})
	b.commands = limits.NewQueue(b.pending, limits.Turns{All: l.CommandsAtOnce, Few: l.CommandsAtOnce / fewOf, Hold: turnWithin})
	return b
}

func (b *limiters) counts(others []*limits.Pool) limits.Counts {
	return limits.Counts{Pools: append([]*limits.Pool{b.conns, b.watches, b.waits, b.asked, b.pending, b.batches}, others...), Queues: []*limits.Queue{b.questions, b.commands}, Rates: []*limits.Rate{b.rate}, Quotas: []*limits.Quota{b.entities}}
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

// tooMany is the problem of a place that was not given: the client's own fault, or that of all.
func tooMany(err error, after time.Duration) *Problem {
	var full *limits.Full
	code := codeUnavailable
	if errors.As(err, &full) && full.Own {
		code = codeRateLimited
	}
	return problem(code, err.Error()).with("Retry-After", retryAfter(after))
}

// retryAfter is in whole seconds, at least one.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// paced counts a request of a client.
func (s *Server) paced(client string) *Problem {
	wait, ok := s.limits.rate.Allow(client)
	if ok {
		return nil
	}
	return problem(codeRateLimited, "this client asks more often than its rate (limits.rate, or its own) allows; nothing was done").with("Retry-After", retryAfter(wait))
}

// paces are those of clients that have one of their own.
func (o *Options) paces() map[string]limits.Pace {
	own := map[string]limits.Pace{}
	for _, t := range o.Tokens {
		if t.Rate > 0 {
			own[tokenClient(t.Name)] = limits.Pace{PerSecond: t.Rate, Burst: t.Burst}
		}
	}
	for _, u := range o.Users {
		own[userClient(u.Account, u.Name)] = limits.Pace{PerSecond: u.Rate, Burst: u.Burst}
	}
	return own
}

func tokenClient(name string) string { return "token " + name }

func userClient(account, user string) string { return "account " + account + " " + user }

// client is who a request is counted with.
func (q *request) client() string {
	if q.who != anonymous {
		return tokenClient(q.who.name)
	}
	return "address " + limits.Client(q.r.RemoteAddr)
}

// mayWait takes one of the places of those who wait.
func (q *request) mayWait() (leave func(), err error) {
	if leave, err = q.limits.waits.Take(q.client()); err != nil {
		return nil, tooMany(err, time.Second)
	}
	return leave, nil
}

// natsClient is who a request over NATS is counted with, as far as it can be told. One that came from another account over an
// import is of that account, and of its user where the import shares who it is (the server says so, and gives such requests a
// reply of its own). Others are told apart by where their connection has its answers: clients of NATS do that below one
// prefix. Those that name a new one with each request are one client together.
func natsClient(r micro.Request) string {
	if reply := r.Reply(); !strings.HasPrefix(reply, "_R_.") {
		if i := strings.LastIndexByte(reply, '.'); strings.Count(reply, ".") > 1 {
			return "inbox " + reply[:i]
		}
		return "inbox"
	}
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	if json.Unmarshal([]byte(nats.Header(r.Headers()).Get("Nats-Request-Info")), &info) != nil {
		return "account"
	}
	return userClient(info.Account, info.User)
}

// writeChunk is what has to be taken within the time of a write.
const writeChunk = 64 << 10

// deadlines is what a writer of an answer over a connection has.
type deadlines interface{ SetWriteDeadline(time.Time) error }

// extend gives the client the whole time again to take what is written next.
func (w *statusWriter) extend() {
	if w.conn != nil {
		_ = w.conn.SetWriteDeadline(time.Now().Add(w.within)) // it fails where the connection is gone
	}
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
