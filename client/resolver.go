package client

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/client/internal/retry"
)

// Endpoint is an instance that may be called.
type Endpoint struct {
	InstanceID  string            `json:"instanceId"`
	NodeAddress string            `json:"nodeAddress"` // host:port
	Payload     map[string]string `json:"payload"`
	Zone        string            `json:"zone"`
	Version     string            `json:"version"`
	Tags        []string          `json:"tags"`
	Weight      int               `json:"weight"` // effective: warm-up, suspicion and an administrator's word included
	State       string            `json:"state"`
	Generation  uint64            `json:"generation"`
	Revision    uint64            `json:"revision"`
	Since       time.Time         `json:"since"`
}

// Balance is how a choice is made.
type Balance int

// Ways to choose.
const (
	Smooth        Balance = iota // in turn, by weight, as evenly as weights allow; the default
	LeastInFlight                // of two chosen by weight the one with less under way
)

// Options of a Resolver. What is set of Version, Tags and Meta must match.
type Options struct {
	Zone    string // instances of other zones are chosen only when this one has none
	Version string
	Tags    []string
	Meta    map[string]string // of the payload
	Balance Balance
	Watcher string // under which changes are confirmed; unique, by default a random one
}

// Resolver holds the instances of one service. With a cache of the client it begins, if no registry can be reached (or
// none answers within 2 s), with what was known last; Staleness says for how long nobody has confirmed that. The next
// registry that is reached replaces it.
type Resolver struct {
	service string
	client  *Client
	opts    Options
	retries retry.Budget
	named   bool // the watcher's name was given, so another process may use it next
	query   url.Values
	stop    context.CancelFunc
	running sync.WaitGroup
	ready   chan struct{} // closed by the first snapshot
	dirty   chan struct{} // an index to confirm
	store   store         // used by the goroutine that confirms, but for the first look
	listing sync.Mutex    // a list is taken, and the first one said to be there

	mu        sync.Mutex
	targets   map[string]*target
	order     []*target // by id
	list      []Endpoint
	index     uint64
	place     string // where a watch goes on: the id of the last event, which is the registry's
	protected bool
	changes   uint64 // of the list
	saved     uint64 // the one that is on disk
	connected bool
	stale     bool      // the node that is connected says that it may be behind
	heard     time.Time // when what is known was last known to hold
	moved     time.Time // when a node was left because it was behind
	lastErr   error
	leaving   []*target // gone, with calls under way that were begun before
	subs      map[int]*subscriber
	nextSub   int

	telling sync.Mutex // subscribers are told one change after the other
}

const (
	ackEvery   = 10 * time.Second       // acknowledgements live three times as long
	ackHold    = time.Second            // for calls to instances that have gone
	silence    = 25 * time.Second       // the registry comments every 10 s
	firstRetry = 100 * time.Millisecond // and doubled up to lastRetry
	lastRetry  = 3 * time.Second
)

// Resolve begins to follow a service and returns when it has the first list, which may be empty, or one from the cache of
// the client. ctx bounds that only; the error wraps its own, and why the last registry could not be heard. It must be closed.
func (c *Client) Resolve(ctx context.Context, service string, opts Options) (*Resolver, error) {
	r := c.follow(ctx, service, opts)
	if err := r.first(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// follow begins to follow a service.
func (c *Client) follow(ctx context.Context, service string, opts Options) *Resolver {
	named := opts.Watcher != ""
	if !named {
		opts.Watcher = "go-" + fresh()
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Resolver{
		service: service, client: c, opts: opts, named: named, query: url.Values{}, stop: stop,
		ready: make(chan struct{}), dirty: make(chan struct{}, 1), targets: map[string]*target{}, subs: map[int]*subscriber{}, heard: time.Now(),
	}
	if opts.Version != "" {
		r.query.Set("version", opts.Version)
	}
	r.query["tag"] = opts.Tags
	for k, v := range opts.Meta {
		r.query.Add("meta", k+"="+v)
	}
	r.store = storeOf(c, service, r.query)
	r.running.Go(func() { r.watch(life) })
	r.running.Go(func() { r.confirm(life) })
	return r
}

// first waits for the first list.
func (r *Resolver) first(ctx context.Context) error {
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.lastErr != nil {
			return fmt.Errorf("cannot learn the instances of %s: %w (%w)", r.service, ctx.Err(), r.lastErr)
		}
		return fmt.Errorf("cannot learn the instances of %s: %w", r.service, ctx.Err())
	}
}

// Close ends the watch, and tells the registry that no drain needs to wait for this watcher any more, unless its name was
// given in the options: then the next one of this name goes on. What is known stays readable.
func (r *Resolver) Close() {
	r.stop()
	r.running.Wait()
}

// Endpoints are the instances that may be called, in the order of their ids. The slice is the caller's.
func (r *Resolver) Endpoints() []Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Index is the registry's index up to which every change is applied.
func (r *Resolver) Index() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index
}

// Protected says that the registry keeps instances of the service that it would remove otherwise: some may be gone.
func (r *Resolver) Protected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protected
}

// Staleness is 0 while a registry is connected that is up to date itself. Else it is the time since what is known was
// last known to hold: since a registry was heard, since the node that is connected heard the others, or, of what was
// found in the cache, since some process here heard a registry.
func (r *Resolver) Staleness() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected && !r.stale {
		return 0
	}
	return max(time.Since(r.heard), 1)
}

// Subscribe calls f with the instances now, and after every change, until cancel is called. Calls come one after the
// other, and the same instances may come twice where a connection was lost; f must not block for long, for later changes wait for it, and must not call back into Subscribe or Close.
func (r *Resolver) Subscribe(f func([]Endpoint)) (cancel func()) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	n := r.nextSub
	r.nextSub++
	r.subs[n] = &subscriber{f, r.changes}
	list := slices.Clone(r.list)
	r.mu.Unlock()
	f(list)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subs, n)
	}
}

// subscriber is told of each change of the list once.
type subscriber struct {
	tell func([]Endpoint)
	seen uint64 // the count of changes that it was told of
}

// tell calls the subscribers that have not seen this list: one that came while it was on its way has.
func (r *Resolver) tell() {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	fs := make([]func([]Endpoint), 0, len(r.subs))
	for _, s := range r.subs {
		if s.seen != r.changes {
			s.seen = r.changes
			fs = append(fs, s.tell)
		}
	}
	list := r.list
	r.mu.Unlock()
	for _, f := range fs {
		f(slices.Clone(list))
	}
}

// hangUp ends the connections to instances that nobody uses.
func (r *Resolver) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.targets {
		if t.conns != nil {
			t.conns.CloseIdleConnections()
		}
	}
}
