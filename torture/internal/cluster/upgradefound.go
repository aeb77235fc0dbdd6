package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/torture/internal/rig"
)

const (
	upgradeService = "found"
	upgradeTTL     = 10 * time.Second // longer than the others need to take over from a node
)

// registered is instances that beat, and a client that follows them: as any application does, with the library.
type registered struct {
	x        *trio
	registry *client.Client
	resolver *client.Resolver
	steady   []*client.Lease // beat all the time
	silent   []string        // ids of those that have stopped beating
	drains   sync.WaitGroup

	mu     sync.Mutex
	missed []string
}

// registered registers so many that those who fall silent later are no outage, and waits until all are found.
func (x *trio) registered() (*registered, error) {
	f := &registered{x: x, registry: &client.Client{}}
	for _, i := range x.Instars {
		f.registry.URLs = append(f.registry.URLs, "http://"+i.HTTP)
	}
	for n := range 30 {
		l, err := f.register(fmt.Sprintf("steady-%d", n))
		if err != nil {
			return f, err
		}
		f.steady = append(f.steady, l)
	}
	var err error
	if f.resolver, err = f.registry.Resolve(x.Ctx, upgradeService, client.Options{}); err != nil {
		return f, err
	}
	if err := rig.Until(x.Ctx, 20*time.Second, "all instances are found", func() bool { return len(f.missing(f.resolver.Endpoints())) == 0 }); err != nil {
		return f, err
	}
	f.resolver.Subscribe(func(list []client.Endpoint) {
		if lost := f.missing(list); len(lost) > 0 {
			f.violation("%s beat, and was not found at %s", lost, time.Now().Format(time.TimeOnly))
		}
	})
	return f, nil
}

func (f *registered) register(id string) (*client.Lease, error) {
	ctx, cancel := context.WithTimeout(f.x.Ctx, 20*time.Second)
	defer cancel()
	l, err := f.registry.Register(ctx, client.Registration{Service: upgradeService, InstanceID: id, NodeAddress: "127.0.0.1:9", Check: client.Check{TTL: upgradeTTL}})
	if err == nil {
		f.x.OnEnd(l.Close)
	}
	return l, err
}

func (f *registered) violation(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed = append(f.missed, fmt.Sprintf(format, args...))
}

// missing are those that beat and are not in a list.
func (f *registered) missing(list []client.Endpoint) (ids []string) {
	for _, l := range f.steady {
		if !contains(list, l.InstanceID) {
			ids = append(ids, l.InstanceID)
		}
	}
	return ids
}

func contains(list []client.Endpoint, id string) bool {
	return slices.ContainsFunc(list, func(e client.Endpoint) bool { return e.InstanceID == id })
}

// change lets one instance come and fall silent, and another one come and drain, while both versions are at work. What they wait for
// falls due under whichever version there is then.
func (f *registered) change(what string) error {
	n := len(f.silent)
	var both []*client.Lease
	for _, name := range []string{"silent", "drained"} {
		l, err := f.register(fmt.Sprintf("%s-%d", name, n))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		both = append(both, l)
		if err := rig.Until(f.x.Ctx, 15*time.Second, l.InstanceID+" is found", func() bool { return contains(f.resolver.Endpoints(), l.InstanceID) }); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	f.silent = append(f.silent, both[0].InstanceID)
	both[0].Close()
	f.drains.Go(func() {
		ctx, cancel := context.WithTimeout(f.x.Ctx, 90*time.Second)
		defer cancel()
		if err := both[1].Drain(ctx); err != nil {
			f.violation("the drain of %s: %v", both[1].InstanceID, err)
		}
	})
	return nil
}

// judge waits for the drains, and until who is silent is not found any more.
func (f *registered) judge() error {
	f.drains.Wait()
	var ghosts []string
	if err := rig.Until(f.x.Ctx, 60*time.Second, "who is silent is not found", func() bool {
		ghosts = slices.DeleteFunc(slices.Clone(f.silent), func(id string) bool { return !contains(f.resolver.Endpoints(), id) })
		return len(ghosts) == 0
	}); err != nil {
		f.violation("%s are silent and found: %v (protected: %t)", ghosts, err, f.resolver.Protected())
	}
	var ended error
	for _, l := range f.steady {
		ended = errors.Join(ended, l.Err())
	}
	if lost := f.missing(f.resolver.Endpoints()); ended != nil || len(lost) > 0 {
		f.violation("%s are not found at the end (%v)", lost, ended)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.missed {
		f.x.Violations++
		f.x.Say("VIOLATION found: %s", m)
	}
	f.x.Say("%d instances beat and were found all the time, %d fell silent, %d drained", len(f.steady), len(f.silent), len(f.silent))
	return nil
}

func (f *registered) end() {
	if f.resolver != nil {
		f.resolver.Close()
	}
	f.drains.Wait()
}
