package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// Owner holds the lease of a role: what one process at a time does for all of them. Losing it is not dangerous (effects
// are idempotent and fenced, views are written at a revision); holding it keeps two from hindering each other.
//
// No wall clock ends a lease: another process takes it, at its revision, when it has not seen it renewed for its life by its own
// clock since boot. The life stands beside the holder, in the header Instar-Life: processes may have different ones.
type Owner struct {
	JS    jetstream.JetStream
	Names streams.Names
	Role  string        // the key of the lease; empty is "engine"
	Node  string        // who asks: kept with the data directory, so that a restart takes its own lease back at once
	Life  time.Duration // of a lease that is not renewed; 0 is 3 s, at least 1 s
	Log   *slog.Logger

	// Stance says what this process may do: take the lease when it is live, keep it when it is cordoned, and neither when
	// it is draining. Its channel is closed when that or a lease may have changed. See [Node.Stance]; nil may always.
	Stance func() (NodeState, <-chan struct{})

	clock   func() time.Duration // boottime.Now, but for tests
	met     sight                // the lease of another one
	standby atomic.Bool
}

// StandingBy reports whether this process does not hold the lease.
func (o *Owner) StandingBy() bool { return o.standby.Load() }

func (o *Owner) stance() (NodeState, <-chan struct{}) {
	if o.Stance == nil {
		return NodeLive, nil
	}
	return o.Stance()
}

// Run waits for the lease, calls work while it holds it, and gives it back when work ends. It returns what work
// returns; a lost lease ends the context of work, and Run waits for the lease again.
func (o *Owner) Run(ctx context.Context, work func(context.Context) error) error {
	o.Life, o.Role = max(cmp.Or(o.Life, 3*time.Second), time.Second), cmp.Or(o.Role, "engine")
	if o.clock == nil {
		o.clock = boottime.Now
	}
	waiting, told := false, false
	o.standby.Store(true)
	for {
		stance, changed := o.stance()
		held := errHeld
		if stance == NodeLive {
			var revision uint64
			var holder string
			asked := o.clock()
			revision, holder, held = o.take(ctx)
			switch {
			case held == nil:
				waiting = false
				o.standby.Store(false)
				again, err := o.hold(ctx, revision, asked, work)
				o.standby.Store(true)
				if !again {
					return err
				}
				continue
			case ctx.Err() != nil:
				return nil
			case errors.Is(held, errHeld) && !waiting:
				waiting = true
				o.Log.Info("another node holds the lease; standing by", "role", o.Role, "holder", holder, "node", o.Node)
			case !errors.Is(held, errHeld) && !told:
				o.Log.Warn("cannot ask for the lease", "role", o.Role, "error", held)
			}
		}
		told = !errors.Is(held, errHeld)
		if !o.await(ctx, changed) {
			return nil
		}
	}
}

// await waits until the lease may be free: when somebody says so, and every now and then, because nobody says that a
// lease is not renewed any more.
func (o *Owner) await(ctx context.Context, changed <-chan struct{}) bool {
	t := time.NewTimer(min(o.Life/5, 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}

var errHeld = errors.New("the lease is held")

func (o *Owner) bucket() string { return o.Names.Bucket(streams.OwnersBucket) }

// take writes the lease if it is free, this node's own, or not renewed for its life.
func (o *Owner) take(ctx context.Context) (uint64, string, error) {
	read, cancel := context.WithTimeout(ctx, o.Life/2) // its life counts from before the question
	defer cancel()
	m, err := kv.Read(read, o.JS.Conn(), o.bucket(), o.Role)
	if err != nil {
		return 0, "", err
	}
	revision := uint64(0)
	if m != nil {
		revision = m.Sequence
		if holder := string(m.Data); holder != "" && holder != o.Node {
			if o.met.revision != revision {
				o.met = sight{revision: revision, at: o.clock()}
			}
			if o.clock()-o.met.at <= lifeOf(streams.Header(m.Headers(), streams.HeaderLife), o.Life) {
				return 0, holder, errHeld
			}
		}
	}
	revision, err = o.write(ctx, revision, o.Node)
	return revision, "", err
}

// write stores the holder at a revision. That there is none needs no key for long.
func (o *Owner) write(ctx context.Context, revision uint64, node string) (uint64, error) {
	m := kv.WriteAt(o.bucket(), o.Role, []byte(node), revision).Msg
	if node == "" {
		streams.Keep(m, o.Life)
	} else {
		m.Header.Set(streams.HeaderLife, o.Life.String()) // the value is the name alone: earlier versions compare it
	}
	ctx, cancel := context.WithTimeout(ctx, o.Life/3)
	defer cancel()
	ack, err := o.JS.PublishMsg(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("cannot write the lease: %w", err)
	}
	return ack.Sequence, nil
}

// hold runs work and renews the lease beside it, which was asked for at renewed. again says that the lease was lost, or given
// back because this process may not keep it.
func (o *Owner) hold(ctx context.Context, revision uint64, renewed time.Duration, work func(context.Context) error) (again bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(inner) }()
	tick := time.NewTicker(o.Life / 4)
	defer tick.Stop()
	leaving := false
	for {
		stance, changed := o.stance()
		if stance == NodeDraining && !leaving {
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
			_, _ = o.write(stop, revision, "") // given back; without an answer it ends by itself
			return leaving && ctx.Err() == nil, err
		case <-changed:
		case <-tick.C:
			asked := o.clock()
			next, err := o.renew(ctx, revision, renewed+o.Life*3/4-asked)
			if err == nil {
				revision, renewed = next, asked
				continue
			}
			if errors.Is(err, errHeld) || o.clock()-renewed > o.Life*3/4 {
				o.Log.Error("cannot keep the lease", "role", o.Role, "error", err)
				cancel()
				return true, <-done
			}
		}
	}
}

// renew writes the lease again, within the time that is left. Where that fails, an answer was lost, or the lease is not this
// node's any more.
func (o *Owner) renew(ctx context.Context, revision uint64, within time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	next, err := o.write(ctx, revision, o.Node)
	if err != nil {
		var errTake error
		if next, _, errTake = o.take(ctx); errTake == nil {
			return next, nil
		}
		err = errors.Join(err, errTake)
	}
	return next, err
}
