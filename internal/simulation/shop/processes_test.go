package shop

// The relays of a world in real time: they start, end, and start again.

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/bcc94042/instar/streams/outbox/relay"
)

// process is one relay, from its start to its end.
type process struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	again  time.Time // when the next one starts in its place
	held   time.Time
	dead   bool
}

// boot starts a relay.
func (w *world) boot(name string) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: name, cancel: cancel, done: make(chan struct{})}
	r := Relay{
		Options: w.o, Name: name, DSN: w.dsn + "&pool_max_conns=6", NATS: dialer{w, p}, Log: slog.New(slog.NewTextHandler(&w.notes, nil)).With("relay", name),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return w.dial(ctx, network, addr, p)
		},
	}
	go func() {
		defer close(p.done)
		defer cancel()
		p.err = r.Run(ctx)
	}()
	return p
}

// ended reports whether it has returned.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// dialer connects a relay to the NATS server.
type dialer struct {
	w *world
	p *process
}

// Dial is that of [nats.CustomDialer].
func (d dialer) Dial(string, string) (net.Conn, error) {
	if d.w.isDead(d.p) {
		return nil, errCut
	}
	c, err := d.w.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	return d.w.wire(c, d.p, nil), nil
}

// isDead says whether a process has been crashed. A connection that it makes meanwhile is found by nobody, and does no harm: its context has ended.
func (w *world) isDead(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.dead
}

// revive starts relays where none runs.
func (w *world) revive() {
	for i, p := range w.places {
		if !p.ended() {
			continue
		}
		var permanent *relay.PermanentError
		if errors.As(p.err, &permanent) {
			w.t.Fatalf("I12: %s has ended: %v", p.name, p.err)
		}
		w.mu.Lock()
		again := p.again
		w.mu.Unlock()
		if time.Now().After(again) {
			next := w.boot(p.name)
			w.mu.Lock()
			w.places[i] = next
			w.mu.Unlock()
		}
	}
}
