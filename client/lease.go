package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// ErrReplaced says that another process has registered the same instance: this one is the older.
var ErrReplaced = errors.New("another process has registered this instance")

// Lease is a registration that is kept alive until Drain or Close, or until it is replaced.
type Lease struct {
	InstanceID string
	Service    string

	client *Client
	reg    Registration
	stop   context.CancelFunc
	nudge  chan struct{} // send a heartbeat now
	done   chan struct{} // closed when no heartbeat will be sent any more

	mu         sync.Mutex
	renewing   chan struct{} // closed when the registration under way is over; nil: there is none
	unsure     bool          // a registration was sent, and nobody knows what became of it
	generation uint64
	revision   uint64
	inFlight   func() int
	weight     *int
	status     string
	output     string
	draining   bool
	err        error
}

// registered is the answer to a registration.
type registered struct {
	InstanceID string `json:"instanceId"`
	Generation uint64 `json:"generation"`
	Revision   uint64 `json:"revision"`
	Outcome    string `json:"outcome"`
}

const (
	registerTries = 5                      // until the generation is known
	drainBeat     = 200 * time.Millisecond // between heartbeats and looks while it drains
	leastBeat     = 50 * time.Millisecond
)

// Register registers an instance and keeps it alive. It returns when the registry has accepted it; the first heartbeat
// follows at once. ctx bounds the registration only, of which each try at each URL has 5 s, and which is tried up to five times
// where no registry can answer. What it refuses is an [*Error]. The instance is found by others as soon as its check says so.
func (c *Client) Register(ctx context.Context, reg Registration) (*Lease, error) {
	a, err := c.register(ctx, &reg)
	if err != nil {
		return nil, fmt.Errorf("cannot register %s at %s: %w", reg.Service, reg.NodeAddress, err)
	}
	reg.InstanceID = a.InstanceID
	beats, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lease{
		InstanceID: a.InstanceID, Service: reg.Service, client: c, reg: reg, stop: stop, status: "passing",
		generation: a.Generation, revision: a.Revision, nudge: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go func() {
		defer close(l.done)
		l.keep(beats)
	}()
	return l, nil
}

// register sends the registration until its generation is known: a registry that has stored it may answer before it has
// processed it. The same key makes it one registration.
func (c *Client) register(ctx context.Context, reg *Registration) (registered, error) {
	key, body := fresh(), reg.wire(c.namespace())
	var stored registered // of the last answer that said so
	for try := 1; ; try++ {
		var a registered
		err := c.do(ctx, request{method: http.MethodPost, path: "/v1/register", in: body, out: &a, key: key})
		if err == nil {
			stored = a
		}
		switch {
		case err == nil && a.Generation > 0, err != nil && !later(err):
			return a, err
		case try == registerTries && stored.InstanceID != "": // it will be processed
			return stored, nil
		case try == registerTries:
			return a, err
		}
		if !wait(ctx, retryAfter(err, time.Duration(try)*100*time.Millisecond)) {
			return a, errors.Join(ctx.Err(), err)
		}
	}
}

// Generation is the one of the registration; it rises when the instance had to be registered again.
func (l *Lease) Generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation
}

// Revision is the one of the registration: asked for with it as minRevision, discovery knows the instance.
func (l *Lease) Revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// Done is closed when the lease has ended, and no heartbeat is sent any more; Err says why.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is [ErrReplaced] if that ended the lease, and nil while it lasts and after Drain or Close.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// InFlight sets what counts the requests under way; see also [Lease.Handler]. A drain ends early only when it says 0: of an
// instance that never says anything the registry waits for the deadline.
func (l *Lease) InFlight(count func() int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight = count
}

// Report says how the instance feels, and why (500 bytes of that are sent), with a heartbeat at once. It holds until the next
// report; at first the instance is well. One that is not well is not found any more after [Policy].Fall
// such heartbeats, 3 by default.
func (l *Lease) Report(well bool, output string) {
	l.mu.Lock()
	l.status, l.output = "passing", output
	if !well {
		l.status = "failing"
	}
	l.mu.Unlock()
	l.hurry()
}

// Weight says what part of the traffic the instance can take from now on, as [Registration].Weight does: 100 is usual, and 0 is
// none as long as others have more. A heartbeat is sent at once.
func (l *Lease) Weight(weight int) {
	l.mu.Lock()
	l.weight = &weight
	l.mu.Unlock()
	l.hurry()
}

// Close stops the heartbeats and says nothing to the registry, as if the process had died.
func (l *Lease) Close() {
	l.stop()
	<-l.done
}

func (l *Lease) hurry() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// heartbeat is the body of one.
type heartbeat struct {
	Generation uint64 `json:"generation,omitempty"`
	Status     string `json:"status"`
	Output     string `json:"output,omitempty"`
	InFlight   *int   `json:"inFlight,omitempty"`
	Weight     *int   `json:"weight,omitempty"`
}

const maxOutput = 500 // bytes of Output

// keep sends heartbeats until ctx ends or the instance is somebody else's.
func (l *Lease) keep(ctx context.Context) {
	for {
		pause := max(l.reg.ttl()/3, leastBeat)
		err := l.beat(ctx)
		switch code := status(err); {
		case err == nil:
		case replaced(err):
			l.mu.Lock()
			l.err = ErrReplaced
			l.mu.Unlock()
			return
		case code == http.StatusNotFound || code == http.StatusGone:
			if !l.again(ctx) {
				return
			}
		default: // nobody answers: sooner than usual
			pause = min(pause, time.Second)
		}
		if l.isDraining() {
			pause = min(pause, drainBeat)
		}
		t := time.NewTimer(time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-t.C:
		case <-l.nudge:
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

func (l *Lease) beat(ctx context.Context) error {
	l.mu.Lock()
	b := heartbeat{Generation: l.generation, Status: l.status, Output: l.output[:min(len(l.output), maxOutput)], Weight: l.weight}
	count := l.inFlight
	l.mu.Unlock()
	if count != nil {
		n := max(count(), 0)
		b.InFlight = &n
	}
	return l.client.do(ctx, request{method: http.MethodPut, path: l.path("heartbeat"), in: b})
}

// again registers anew after somebody else deregistered the instance; false when it drains, for that would be a new life
// which nobody ends. A drain that begins meanwhile waits for what comes of it.
func (l *Lease) again(ctx context.Context) bool {
	l.mu.Lock()
	if l.draining {
		l.mu.Unlock()
		return false
	}
	over := make(chan struct{})
	l.renewing = over
	l.mu.Unlock()
	a, err := l.client.register(ctx, &l.reg)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(over)
	l.renewing = nil
	if l.unsure = err != nil && later(err); err == nil { // else the next heartbeat finds out again
		l.generation, l.revision = a.Generation, a.Revision
	}
	return true
}

func (l *Lease) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

func (l *Lease) path(end string) string {
	p := "/v1/services/" + url.PathEscape(l.Service) + "/instances/" + url.PathEscape(l.InstanceID)
	if end != "" {
		p += "/" + end
	}
	return p
}
