package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Host names may come from outside: what a transport follows is bounded, and what nobody calls goes.
const (
	maxServices = 1000
	idleAfter   = 5 * time.Minute
)

// following are the services that a transport follows.
type following struct {
	client *Client
	idle   time.Duration // after which one that nobody calls is let go
	most   int

	mu      sync.Mutex
	closed  bool
	known   map[string]*followed
	sweeper *time.Timer // runs while something is known
	leaving sync.WaitGroup
}

// followed is one of them.
type followed struct {
	*Resolver
	users int       // that may be about to choose an instance
	keep  bool      // it was handed out
	used  time.Time // last
}

// use is the resolver of a name, for one request until done is called.
func (f *following) use(ctx context.Context, name string, opts Options, keep bool) (r *Resolver, done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, errors.New("the transport is closed")
	}
	one := f.known[name]
	if one == nil {
		if len(f.known) >= f.most && !f.dropOldest() {
			return nil, nil, fmt.Errorf("cannot follow %s: %d services are in use already", name, f.most)
		}
		service, namespace, ok := strings.Cut(name, ".")
		c := f.client
		if ok {
			c = c.In(namespace)
		}
		one = &followed{Resolver: c.follow(ctx, service, opts)}
		f.known[name] = one
		if f.sweeper == nil {
			f.sweeper = time.AfterFunc(f.idle, f.sweep)
		}
	}
	one.users++
	one.keep = one.keep || keep
	one.used = time.Now()
	return one.Resolver, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		one.users--
		one.used = time.Now()
	}, nil
}

// sweep lets go of what nobody has called for long enough.
func (f *following) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for name, one := range f.known {
		if !one.busy() && time.Since(one.used) >= f.idle {
			f.drop(name)
		}
	}
	if f.sweeper = nil; len(f.known) > 0 {
		f.sweeper = time.AfterFunc(f.idle/2, f.sweep)
	}
}

// dropOldest makes room: of those that are not in use, the one that was so the longest ago. The lock is held.
func (f *following) dropOldest() bool {
	oldest := ""
	for name, one := range f.known {
		if !one.busy() && (oldest == "" || one.used.Before(f.known[oldest].used)) {
			oldest = name
		}
	}
	if oldest == "" {
		return false
	}
	f.drop(oldest)
	return true
}

// drop ends one beside: it says goodbye to the registry. The lock is held.
func (f *following) drop(name string) {
	one := f.known[name]
	delete(f.known, name)
	f.leaving.Go(one.end)
}

// busy says whether somebody holds it, or has a call under way.
func (o *followed) busy() bool {
	if o.keep || o.users > 0 {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.order, func(t *target) bool { return t.inFlight > 0 })
}

func (o *followed) end() {
	o.Close()
	o.hangUp()
}

// close ends all of them.
func (f *following) close() {
	f.mu.Lock()
	f.closed = true
	known := f.known
	f.known = nil
	if f.sweeper != nil {
		f.sweeper.Stop()
	}
	f.mu.Unlock()
	for _, one := range known {
		f.leaving.Go(one.end)
	}
	f.leaving.Wait()
}

// hangUp ends the connections that nobody uses.
func (f *following) hangUp() {
	f.mu.Lock()
	known := slices.Collect(maps.Values(f.known))
	f.mu.Unlock()
	for _, one := range known {
		one.hangUp()
	}
}
