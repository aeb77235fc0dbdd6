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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
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

func (w *World) config() outbox.Config {
	c := outbox.Config{
		Name: source, DSN: dsn, Mode: w.o.Mode, Batch: w.o.Batch, Poll: 300 * time.Millisecond, Lease: 6 * time.Second,
		Attempts: 2, BaseBackoff: 200 * time.Millisecond, MaxBackoff: time.Second,
	}
	if w.o.Strange {
		c.Types = &outbox.Types{Names: []string{"order.>"}, Unknown: outbox.ParkUnknown}
	}
	return c
}

func (p *process) run(ctx context.Context) error {
	w := p.w
	nc, err := streams.Connect(streams.ConnectOptions{Name: p.place.name, Log: p.log, URL: url, Dial: func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(url, append(opts, nats.SetCustomDialer(p), nats.RetryOnFailedConnect(true))...)
	}})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := streams.JetStream(nc)
	if err != nil {
		return err
	}
	r := &relay.Relay{
		Config: w.config(), NC: nc, JS: js, Replicas: w.o.Replicas, Fsync: w.o.Fsync, Node: p.place.name, Log: p.log,
		Leases: &shard.NATSLeases{JS: js, Source: source, Node: p.place.name, Life: 3 * time.Second, Log: p.log},
		Dial:   func(context.Context, string, string) (net.Conn, error) { return p.connect(true) },
	}
	return r.Run(ctx)
}

const url = "nats://127.0.0.1:4222"

// prepare makes what a server has when relays start: the bucket of their leases, and perhaps the stream.
func (w *World) prepare() {
	w.server.Auto(true)
	defer w.server.Auto(false)
	nc, err := nats.Connect(url, nats.InProcessServer(w.server))
	if err == nil {
		defer nc.Close()
		js, errOf := streams.JetStream(nc)
		err = errors.Join(errOf, streams.EnsureBucket(context.Background(), js, streams.Names{}.Bucket(streams.OwnersBucket), "owners", 0, w.o.Replicas), w.stream(js))
	}
	if err != nil {
		panic(err)
	}
}

// stream makes the stream of the outbox, where it is not as a relay makes it.
func (w *World) stream(js jetstream.JetStream) error {
	if !w.o.Forgets {
		return nil
	}
	c := sink.Stream{Name: stream, Prefix: "outbox", Replicas: w.o.Replicas}.Config()
	c.Duplicates = 100 * time.Millisecond
	_, err := js.CreateStream(context.Background(), c)
	return err
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
