package builtin

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Until a draining program closes connections that clients keep open without asking anything, it answers for this
// long on them, with "Connection: close".
const lead = time.Second

// And so long it waits for the first request on a connection that is new: a process has 10 s to end.
const asksWithin = 4 * time.Second

// acceptor is what a program does on its public socket.
type acceptor interface {
	Serve(net.Listener) error       // until the listener is closed
	Drain(ctx context.Context) bool // ends what was accepted; false when ctx ended first
}

// serve follows the protocol of the package until SIGTERM; private answers what is asked on the private socket.
func serve(a acceptor, private http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	socks, err := open()
	if err != nil {
		return err
	}
	p := &program{acceptor: a, sockets: socks, failed: make(chan error, 2)}
	if socks.private == nil {
		if err := p.activate(); err != nil {
			return err
		}
	} else {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /-/activate", p.handleActivate)
		mux.Handle("/", private)
		srv := &http.Server{Handler: owned(cmp.Or(os.Getenv("INSTAR_SECRET"), os.Getenv("INSTAR_OWNER")), mux), ReadHeaderTimeout: 10 * time.Second}
		defer srv.Close()
		go func() { p.failed <- srv.Serve(socks.private) }()
	}
	select {
	case err := <-p.failed:
		return err
	case <-ctx.Done():
		return p.drain()
	}
}

// owned lets only who started this program steer it: other users of the machine reach loopback, too, and other programs of the same
// gateway have the same INSTAR_OWNER.
func owned(owner string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get("Instar-Owner")
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/-/") &&
			subtle.ConstantTimeCompare([]byte(owner), []byte(given)) != 1 {
			http.Error(w, "not the owner", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type program struct {
	acceptor acceptor
	sockets  *sockets
	failed   chan error

	mu       sync.Mutex
	listener net.Listener  // set when active
	served   chan struct{} // closed when nothing more is accepted on it
}

func (p *program) handleActivate(w http.ResponseWriter, _ *http.Request) {
	if err := p.activate(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// activate begins to accept on the public socket; the second time it does nothing.
func (p *program) activate() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	l, err := p.sockets.public()
	if err != nil {
		return err
	}
	p.listener, p.served = l, make(chan struct{})
	go func() {
		defer close(p.served)
		if err := p.acceptor.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
			p.failed <- fmt.Errorf("cannot accept: %w", err)
		}
	}()
	return nil
}

// drain stops accepting and ends what was accepted. Others go on accepting on the same socket. A connection that is accepted as the
// listener is closed is known when Serve has returned, not before.
func (p *program) drain() error {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		<-p.served
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !p.acceptor.Drain(ctx) {
		return errors.New("requests were still running after a minute")
	}
	return nil
}

// web accepts HTTP.
type web struct {
	server   http.Server
	draining atomic.Bool
	changed  chan struct{} // gets a token when a connection may have ended, or rests

	mu    sync.Mutex
	conns map[net.Conn]http.ConnState
}

func newWeb(h http.Handler) *web {
	w := &web{changed: make(chan struct{}, 1), conns: map[net.Conn]http.ConnState{}}
	w.server = http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         w.note,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if w.draining.Load() {
				rw.Header().Set("Connection", "close")
			}
			h.ServeHTTP(rw, r)
		}),
	}
	return w
}

func (w *web) Serve(l net.Listener) error { return w.server.Serve(l) }

func (w *web) note(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.conns[c] = state; state {
	case http.StateClosed, http.StateHijacked:
		delete(w.conns, c)
	case http.StateNew, http.StateActive:
		return
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// resting reports whether nobody waits for an answer, or may be about to ask, and none whether there are no connections at all.
func (w *web) resting(may bool) (resting, none bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, state := range w.conns {
		if state == http.StateActive || state == http.StateNew && may {
			return false, false
		}
	}
	return true, len(w.conns) == 0
}

// Drain lets clients end their connections by themselves for a moment, and then waits for requests only. Those that have not been read
// yet are waited for, too, which http.Server does not: it closes their connections without an answer. On a new connection they have
// some seconds.
func (w *web) Drain(ctx context.Context) bool {
	w.draining.Store(true)
	patience, firstAsk := time.NewTimer(lead), time.NewTimer(asksWithin)
	defer patience.Stop()
	defer firstAsk.Stop()
	for patient, may := true, true; ; {
		resting, none := w.resting(may)
		if none || resting && !patient {
			return w.server.Shutdown(ctx) == nil
		}
		select {
		case <-w.changed:
		case <-patience.C:
			patient = false
		case <-firstAsk.C:
			may = false
		case <-ctx.Done():
			return false
		}
	}
}
