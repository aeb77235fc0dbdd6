package relays

// A relay is a process: streams/outbox/relay as it is, on connections of its own.

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/shop"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// dsn is that of the database; how it is reached is up to who dials.
const dsn = "postgres://relay@127.0.0.1/model?sslmode=disable&pool_max_conns=6"

// place is where processes run one after the other.
type place struct {
	name  string
	clock *pinned.Clock
	now   *process // nil while none runs
	again time.Time
}

// process is one relay, from its start to its end.
type process struct {
	w      *World
	place  *place
	held   time.Time
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it runs any more
	err    error

	mu   sync.Mutex
	dead bool
}

var errCut = errors.New("this process was cut off")

// Dial connects to the NATS server.
func (p *process) Dial(string, string) (net.Conn, error) { return p.connect(false) }

func (p *process) connect(db bool) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errCut
	}
	return p.w.connect(p.place.name, p, db)
}

// boot starts a process in a place.
func (w *World) boot(at *place) {
	w.trace.Step(at.name, "starts", "", nil)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{w: w, place: at, log: slog.New(w.trace.Handler(at.name)), cancel: cancel, done: make(chan struct{})}
	at.now = p
	w.all = append(w.all, p)
	go func() {
		defer close(p.done)
		pinned.Use(at.clock)
		defer cancel()
		p.err = p.run(ctx)
	}()
}

func (p *process) run(ctx context.Context) error {
	r := shop.Relay{Options: p.w.o, Name: p.place.name, DSN: dsn, NATS: p, Log: p.log, Dial: func(context.Context, string, string) (net.Conn, error) { return p.connect(true) }}
	return r.Run(ctx)
}

// prepare makes what a server has when relays start.
func (w *World) prepare() {
	w.server.Auto(true)
	defer w.server.Auto(false)
	nc, err := nats.Connect("", nats.InProcessServer(w.server))
	if err == nil {
		defer nc.Close()
		err = shop.Prepare(context.Background(), nc, w.o)
	}
	if err != nil {
		panic(err)
	}
}

// crash ends a process at once: nothing that it does afterwards reaches anybody.
func (w *World) crash(p *process, lose bool) {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	for _, x := range w.wiresOf(p) {
		w.cut(x, lose, false)
	}
	p.cancel()
	if p.place.now == p {
		p.place.now = nil
	}
}

// revive starts processes where none runs.
func (w *World) revive() {
	for _, at := range w.places {
		if p := at.now; p != nil {
			select {
			case <-p.done:
				if p.err != nil {
					w.ended(p)
				}
				w.crash(p, true)
				at.again = time.Now().Add(time.Second)
			default:
			}
		}
		if at.now == nil && !w.over.Load() && !time.Now().Before(at.again) {
			w.boot(at)
		}
	}
}

// ended is told that a relay has ended by itself.
func (w *World) ended(p *process) {
	w.trace.Note(p.place.name, "ended: %v", p.err)
	var permanent *relay.PermanentError
	if errors.As(p.err, &permanent) {
		w.fail("I12", "%s has ended: %v", p.place.name, p.err)
	}
}
