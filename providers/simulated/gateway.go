package simulated

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// Gateway simulates. Its zero value is ready, with no time between the steps.
type Gateway struct {
	Now      func() time.Time                     // time.Now when nil
	After    func(time.Duration) <-chan time.Time // time.After when nil; for the fault Slow
	Observed time.Duration                        // until the observed generation follows
	Ready    time.Duration                        // until a revision is healthy, after its apply
	Route    time.Duration                        // until it gets the traffic, after that

	mu       sync.Mutex
	objects  map[string]*object
	scripts  map[string][]*Fault
	watchers map[*func(string)]struct{}
	lives    int
}

// object is one service. One that has gone stays for its fence.
type object struct {
	gone      bool
	deleted   *time.Time
	life, uid string
	fence     uint64
	wanted    uint64
	spec      service.Spec
	looks     int // observations
	writes    int
	revisions []revision
}

// revision is one generation; its number is its place, from 1.
type revision struct {
	name, hash string
	at         time.Time
	plan       plan
}

var (
	_ providers.Gateway  = (*Gateway)(nil)
	_ providers.Notifier = (*Gateway)(nil)
)

// init makes the zero value work. The lock is held.
func (g *Gateway) init() {
	if g.objects == nil {
		g.objects, g.scripts = map[string]*object{}, map[string][]*Fault{}
		g.watchers = map[*func(string)]struct{}{}
	}
}

func (g *Gateway) now() time.Time {
	if g.Now != nil {
		return g.Now()
	}
	return time.Now()
}

func (g *Gateway) after(d time.Duration) <-chan time.Time {
	if g.After != nil {
		return g.After(d)
	}
	return time.After(d)
}

// Capabilities tells what this gateway can do.
func (g *Gateway) Capabilities() providers.Capabilities {
	return providers.Capabilities{Gateway: "simulated", Watch: true, Revisions: true, Route: true, Defaults: true, Images: images}
}

// Apply wants a specification.
func (g *Gateway) Apply(ctx context.Context, req providers.ApplyRequest) (service.Applied, error) {
	if err := g.enter(ctx, req.Key()); err != nil {
		return service.Applied{}, err
	}
	p, err := g.parse(req.Spec.Image)
	if err != nil {
		return service.Applied{}, err
	}
	if p.behaviour == down {
		return service.Applied{}, providers.Later(0, "the simulated API is down")
	}
	if p.answer > 0 {
		<-g.after(p.answer)
	}
	applied, err := g.apply(&req, p)
	g.notify(req.Key())
	return applied, err
}

func (g *Gateway) apply(req *providers.ApplyRequest, p plan) (service.Applied, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o, err := g.fenced(&req.Request)
	if err != nil {
		return service.Applied{}, err
	}
	if !o.gone && o.life != req.UID {
		o.delete(g.now())
	}
	if o.deleted != nil && !o.gone {
		return service.Applied{}, providers.Later(100*time.Millisecond, "an earlier life has to end first")
	}
	if o.gone {
		g.lives++
		*o = object{fence: req.Fence, life: req.UID, uid: fmt.Sprintf("sim-%d", g.lives), writes: o.writes}
	}
	last := o.generation()
	if last == 0 || o.revisions[last-1].hash != req.Hash || req.Spec.ForceReplace && o.wanted < req.Generation {
		o.writes++
		o.wanted, o.spec = req.Generation, req.Spec
		o.revisions = append(o.revisions, revision{
			name: fmt.Sprintf("%s-%05d", req.Name, last+1), hash: req.Hash, at: g.now(), plan: p,
		})
	}
	if g.befalls(req.Key(), LostAnswer) != nil {
		return service.Applied{}, providers.Later(0, "the answer was lost")
	}
	return service.Applied{
		UID: o.uid, Generation: int64(o.generation()), ResourceVersion: strconv.Itoa(o.writes), Hash: req.Hash,
	}, nil
}

func (o *object) generation() int { return len(o.revisions) }

// fenced is the object of a request that is not outdated. The lock is held.
func (g *Gateway) fenced(req *providers.Request) (*object, error) {
	o := g.objects[req.Key()]
	if o == nil {
		o = &object{gone: true}
		g.objects[req.Key()] = o
	}
	if req.Fence < o.fence {
		return nil, providers.Older(req.Fence, o.fence)
	}
	o.fence = req.Fence
	g.expire(o)
	return o, nil
}

func (o *object) delete(now time.Time) {
	if o.deleted == nil {
		o.deleted = &now
	}
}

// expire ends a deletion. The lock is held.
func (g *Gateway) expire(o *object) {
	if o.deleted != nil && g.now().Sub(*o.deleted) >= g.Observed {
		o.gone = true
	}
}

// Delete ends the object; it takes as long as a generation needs to be observed.
func (g *Gateway) Delete(ctx context.Context, req providers.DeleteRequest) error {
	if err := g.enter(ctx, req.Key()); err != nil {
		return err
	}
	defer g.notify(req.Key())
	g.mu.Lock()
	defer g.mu.Unlock()
	o, err := g.fenced(&req.Request)
	if err != nil {
		return err
	}
	if !o.gone {
		o.delete(g.now())
		o.gone = o.gone || req.Force
	}
	if g.befalls(req.Key(), LostAnswer) != nil {
		return providers.Later(0, "the answer was lost")
	}
	return nil
}

// Watch tells of applies, deletions and scripts.
func (g *Gateway) Watch(ctx context.Context, notify func(key string)) error {
	g.mu.Lock()
	g.init()
	g.watchers[&notify] = struct{}{}
	g.mu.Unlock()
	<-ctx.Done()
	g.mu.Lock()
	delete(g.watchers, &notify)
	g.mu.Unlock()
	return ctx.Err()
}

func (g *Gateway) notify(key string) {
	g.mu.Lock()
	g.init()
	keys := []string{key}
	if key == "" {
		keys = nil
		for k := range g.objects {
			keys = append(keys, k)
		}
	}
	var all []func(string)
	for w := range g.watchers {
		all = append(all, *w)
	}
	g.mu.Unlock()
	for _, notify := range all {
		for _, k := range keys {
			notify(k)
		}
	}
}
