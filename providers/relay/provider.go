package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/streams/outbox"
)

// Engine relays one source. One goroutine at a time calls Run; the others may be called beside it.
type Engine interface {
	// Run relays until ctx ends, until it cannot go on, or until it is drained: then it returns [ErrDrained].
	Run(ctx context.Context) error
	// Drain makes Run publish what is there now, and end. It returns when Run has ended.
	Drain(ctx context.Context) error
	// Status is how the source stands, on all nodes.
	Status(ctx context.Context) (outbox.Status, error)
	// Remove takes away what the relay said of the lag, which limits appending. Rows and messages stay.
	Remove(ctx context.Context) error
	// Close lets go of the database.
	Close()
}

// Source is a database whose outbox may be relayed here.
type Source struct {
	Name string // the id of its entity
	Mode string // shown until the engine can say it
	// Open makes the engine. It is called again after an error, and after Close.
	Open func(ctx context.Context) (Engine, error)
	// Fatal says whether waiting mends an error of the engine; nil says that it always does.
	Fatal func(error) bool
}

// ErrDrained is how the Run of an engine ends after Drain.
var ErrDrained = errors.New("drained")

// ErrNotYet is an error of Open while the source is being made: nothing is told of it.
var ErrNotYet = errors.New("not yet")

// Wish is what an entity wants of its engine.
type Wish int

// The wishes.
const (
	Stand Wish = iota // do not relay
	Relay             // relay
	Drain             // publish what is there, then stand
)

// WishOf is what a state wants.
func WishOf(state string) Wish {
	switch state {
	case relay.Starting, relay.Running, relay.Lagging, relay.Stalled, relay.Failed:
		return Relay
	case relay.Draining:
		return Drain
	}
	return Stand
}

// Provider runs engines. It is ready to use after [New].
type Provider struct {
	namespace string
	node      string
	log       *slog.Logger
	units     map[string]*unit

	mu     sync.Mutex
	notify func(key string)
}

// Options configure [New].
type Options struct {
	Sources   []Source
	Namespace string // of the entities
	Node      string // this one
	Log       *slog.Logger
}

// New makes a provider of the sources.
func New(o Options) *Provider {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Provider{namespace: o.Namespace, node: o.Node, log: o.Log, units: map[string]*unit{}}
	for _, s := range o.Sources {
		p.units[s.Name] = &unit{p: p, source: s, log: o.Log.With("source", s.Name), poke: make(chan struct{}, 1), moved: time.Now()}
	}
	return p
}

// Sources are the names of what may be relayed here, in order.
func (p *Provider) Sources() []string {
	names := make([]string, 0, len(p.units))
	for name := range p.units {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Run runs the engines that are wanted until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, u := range p.units {
		all.Go(func() { u.run(ctx) })
	}
	all.Wait()
	<-ctx.Done() // also with nothing to run
	return nil
}

// Follow takes the state of an entity at a version; an older one than was seen is nothing new. A source that is not
// configured here is none of this node's business.
func (p *Provider) Follow(name, state string, version uint64) {
	if u := p.units[name]; u != nil {
		u.follow(WishOf(state), version)
	}
}

// Status is how a source stands now. It fails for one that is not configured here, and when it cannot be seen.
func (p *Provider) Status(ctx context.Context, name string) (outbox.Status, error) {
	u := p.units[name]
	if u == nil {
		return outbox.Status{}, unknown(name)
	}
	return u.status(ctx)
}

// Last is the status that was seen last, and when; the zero time is never.
func (p *Provider) Last(name string) (outbox.Status, time.Time) {
	u := p.units[name]
	if u == nil {
		return outbox.Status{}, time.Time{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last, u.seen
}

func unknown(name string) error {
	return providers.Errorf(providers.Invalid, "no source %q is configured on this server: add it to outbox.sources", name)
}

// Watch passes on the keys of relays whose engine ended or started, until ctx ends.
func (p *Provider) Watch(ctx context.Context, notify func(key string)) error {
	p.mu.Lock()
	p.notify = notify
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.notify = nil
	p.mu.Unlock()
	return ctx.Err()
}

func (p *Provider) noticed(name string) {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		notify(fmt.Sprintf("%s.%s", p.namespace, name))
	}
}
