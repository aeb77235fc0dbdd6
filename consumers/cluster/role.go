package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// Role is what one process at a time does for all of them: whoever holds its lease ([kv.Lease]). Losing that is not dangerous (effects
// are idempotent and fenced, views are written at a revision); holding it keeps two from hindering each other.
type Role struct {
	JS    jetstream.JetStream
	Names streams.Names
	Name  string        // the key of the lease; empty is "engine"
	Node  string        // who asks: kept with the data directory, so that a restart takes its own lease back at once
	Life  time.Duration // of a lease that is not renewed; 0 is 3 s, at least 1 s
	Log   *slog.Logger

	// Eligible says what this process may do: take the lease when it is live, keep it when it is cordoned, and neither when
	// it is draining. Its channel is closed when that or a lease may have changed. See [Node.Eligible]; nil may always.
	Eligible func() (NodeState, <-chan struct{})

	clock func() time.Duration // nil is the clock since boot; for tests
}

func (r *Role) eligible() (NodeState, <-chan struct{}) {
	if r.Eligible == nil {
		return NodeLive, nil
	}
	return r.Eligible()
}

// Run waits for the lease, calls work while it holds it, and gives it back when work ends. It returns what work
// returns; a lost lease ends the context of work, and Run waits for the lease again.
func (r *Role) Run(ctx context.Context, work func(context.Context) error) error {
	r.Life, r.Name = max(cmp.Or(r.Life, 3*time.Second), time.Second), cmp.Or(r.Name, "engine")
	lease := &kv.Lease{JS: r.JS, Bucket: r.Names.Bucket(streams.OwnersBucket), Key: r.Name, Holder: r.Node, Life: r.Life, Clock: r.clock}
	waiting, told := false, false
	for {
		state, changed := r.eligible()
		err := kv.ErrHeld
		if state == NodeLive {
			var holder string
			holder, err = lease.Take(ctx)
			switch {
			case err == nil:
				waiting = false
				again, err := r.hold(ctx, lease, work)
				if !again {
					return err
				}
				continue
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, kv.ErrHeld) && !waiting:
				waiting = true
				r.Log.Info("another node holds the lease; standing by", "role", r.Name, "holder", holder, "node", r.Node)
			case !errors.Is(err, kv.ErrHeld) && !told:
				r.Log.Warn("cannot acquire the lease", "role", r.Name, "error", err)
			}
		}
		told = !errors.Is(err, kv.ErrHeld)
		if !r.await(ctx, changed) {
			return nil
		}
	}
}

// await waits until the lease may be free: when somebody says so, and every now and then, because nobody says that a
// lease is not renewed any more.
func (r *Role) await(ctx context.Context, changed <-chan struct{}) bool {
	t := time.NewTimer(min(r.Life/5, 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// hold runs work and renews the lease beside it. again says that the lease was lost, or given back because this process may not keep it.
func (r *Role) hold(ctx context.Context, lease *kv.Lease, work func(context.Context) error) (again bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(inner) }()
	tick := time.NewTicker(r.Life / 4)
	defer tick.Stop()
	leaving := false
	for {
		state, changed := r.eligible()
		if state == NodeDraining && !leaving {
			leaving = true
			cancel()
		}
		if leaving {
			changed = nil
		}
		select {
		case err := <-done:
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = lease.Release(stop) // without an answer it ends by itself
			return leaving && ctx.Err() == nil, err
		case <-changed:
		case <-tick.C:
			if err := lease.Renew(ctx); err != nil && (errors.Is(err, kv.ErrHeld) || lease.Left() < 0) {
				r.Log.Error("cannot renew the lease", "role", r.Name, "error", err)
				cancel()
				return true, <-done
			}
		}
	}
}
