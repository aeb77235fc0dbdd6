// Package rest serves routes over HTTP. A request goes: handler.go (limits of the connection, request id, trace) → router.go (of all machines that there are) → route.go (who asks, rate,
// parameters) → the route's Serve, which reads with body.go and header.go and answers with request.go. Every error is a problem.
package rest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/limits"
)

// Options are what a [Server] works with. All but the bounds and Hosts are needed.
type Options struct {
	Tokens   []auth.Token
	Users    []User // of NATS that have a rate of their own
	Open     bool   // requests without a token are of "anonymous", who may do everything
	ReadOnly bool   // requests of browsers change nothing

	Page  func(machine, key string) string // of an entity, as a path; nil has none
	Hosts []string                         // names besides those of loopback, and addresses, under which an open server may be asked; nil takes all

	Connections, Watches, Waits, Questions limits.Bound
	Rate                                   limits.Pace   // of clients that have none of their own
	Timeouts                               Timeouts      // what is 0 is as in [DefaultTimeouts]
	TurnWithin                             time.Duration // a read whose turn does not come within it is refused

	NC       *nats.Conn        // asked only whether it is connected, by those who explain an error
	Version  string            // of the document
	Absent   map[string]string // by words of paths that there would be with it, a section of the configuration
	Registry *prometheus.Registry
	Tracer   trace.Tracer
	Log      *slog.Logger
}

// Server serves the routes of a [Router] over HTTP: it knows who asks, bounds what each may hold, and answers problems.
type Server struct {
	o      Options
	Open   bool
	Log    *slog.Logger
	Nc     *nats.Conn
	Keys   *auth.Keyring
	origin *http.CrossOriginProtection // where no token is needed, a browser would let any page send commands
	tracer trace.Tracer

	untraced bool // nobody traces

	router atomic.Pointer[Router] // what is served now

	metrics *metrics
	limits  *limiters
	Reads   *limits.Queue // of storage, over HTTP, and all requests over NATS

	ending  context.Context // ends when watches must end
	close   context.CancelFunc
	mu      sync.Mutex
	watches sync.WaitGroup
}

// New fails for a token that cannot be, and where metrics of its names are registered already.
func New(o Options) (*Server, error) {
	o.Timeouts = o.Timeouts.orDefault()
	keys, err := auth.NewKeyring(o.Tokens, o.Open)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, Open: o.Open, Log: o.Log, Nc: o.NC, Keys: keys, origin: http.NewCrossOriginProtection(), tracer: o.Tracer, limits: newLimiters(&o),
	}
	_, s.untraced = o.Tracer.(noop.Tracer)
	s.Reads = limits.NewQueue(s.limits.questions, readTurns)
	s.ending, s.close = context.WithCancel(context.Background())
	if s.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, err
	}
	s.Use(s.NewRouter())
	return s, nil
}

// HTTPServer is a server for the handler with limits that a door needs: nobody holds a connection by sending slowly, or by
// taking an answer slowly, and no header is large. Its listener is to be one of [Server.Listen].
func (s *Server) HTTPServer(addr string, tlsConfig *tls.Config) *http.Server {
	return &http.Server{
		Addr: addr, Handler: s.Handler(), TLSConfig: tlsConfig, ConnContext: connected, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: s.o.Timeouts.Header, IdleTimeout: s.o.Timeouts.Idle,
		WriteTimeout: s.o.Timeouts.Write, // of what is written first; each write has the whole time again
		ErrorLog:     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
}

// Closing ends when watches must end: the server stops.
func (s *Server) Closing() context.Context { return s.ending }

// Wait returns when watches, and what else was entered, have ended.
func (s *Server) Wait() { s.watches.Wait() }

// EndWatches ends the watches with a last event; none begins any more.
func (s *Server) EndWatches() {
	s.mu.Lock()
	s.close() // under the lock, so that no watch begins behind the wait
	s.mu.Unlock()
}
