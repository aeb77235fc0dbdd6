package simulated

import (
	"context"
	"time"

	"github.com/bcc94042/instar/providers"
)

// Kind is a kind of [Fault].
type Kind string

// The kinds of faults: the first four befall calls, the others the service.
const (
	Slow       Kind = "slow"        // calls take For
	Down       Kind = "down"        // calls fail with Unavailable, and For as the least wait
	Hang       Kind = "hang"        // calls end only with their context
	LostAnswer Kind = "lost-answer" // Apply and Delete are done, but their answer is Unavailable

	NeverReady Kind = "never-ready" // Ready is Unknown
	Flapping   Kind = "flapping"    // Ready is False in every second observation
	Stale      Kind = "stale"       // the observed generation and the conditions stay as they were before the last apply
	Lost       Kind = "lost"        // the object vanishes, once
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  Kind
	For   time.Duration
	Calls int // that it befalls; 0 is every one until the script is replaced
}

// Script replaces the faults of one service, or, with an empty key, those that befall all. Without faults everything
// is well again.
func (g *Gateway) Script(key string, faults ...Fault) {
	g.mu.Lock()
	g.init()
	g.scripts[key] = nil
	for _, f := range faults {
		if f.Kind == Lost {
			g.lose(key)
			continue
		}
		g.scripts[key] = append(g.scripts[key], &f)
	}
	g.mu.Unlock()
	g.notify(key)
}

// lose drops the object of a key, or all. The lock is held.
func (g *Gateway) lose(key string) {
	for k, o := range g.objects {
		if k == key || key == "" {
			o.gone = true
		}
	}
}

// befalls reports whether a fault of that kind befalls this call, and counts it. The lock is held.
func (g *Gateway) befalls(key string, kind Kind) *Fault {
	for _, scope := range []string{key, ""} {
		for i, f := range g.scripts[scope] {
			if f.Kind != kind {
				continue
			}
			if f.Calls > 0 {
				if f.Calls--; f.Calls == 0 {
					g.scripts[scope] = append(g.scripts[scope][:i:i], g.scripts[scope][i+1:]...)
				}
			}
			return f
		}
	}
	return nil
}

// enter is what befalls every call before it does anything.
func (g *Gateway) enter(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	g.init()
	down, hang, wait := g.befalls(key, Down), g.befalls(key, Hang), g.befalls(key, Slow)
	g.mu.Unlock()
	switch {
	case down != nil:
		return providers.Later(down.For, "the simulated API is down")
	case hang != nil:
		<-ctx.Done()
	case wait != nil:
		select {
		case <-g.after(wait.For):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
