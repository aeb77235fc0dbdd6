package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// States of an instance that a drain meets.
const (
	stateDraining     = "draining"
	stateDeregistered = "deregistered"
)

// Drain takes the instance out of discovery and returns nil when the registry says that it is deregistered: then nobody
// sends to it any more. It returns ErrReplaced if the instance is another process's by now, and an error when ctx ends
// first. The lease is over afterwards in any case. A second call waits as the first.
func (l *Lease) Drain(ctx context.Context) error {
	defer l.Close()
	l.mu.Lock()
	l.draining = true
	renewing := l.renewing
	l.mu.Unlock()
	if renewing != nil {
		select {
		case <-renewing:
		case <-ctx.Done():
		}
	}
	if err := l.shutdown(ctx); err != nil {
		return fmt.Errorf("cannot drain %s/%s: %w", l.Service, l.InstanceID, err)
	}
	for {
		l.hurry() // the heartbeat tells what is still under way
		gone, err := l.gone(ctx)
		if gone {
			return nil
		}
		if !wait(ctx, drainBeat/2) {
			return fmt.Errorf("cannot wait until %s/%s is deregistered: %w", l.Service, l.InstanceID, errors.Join(ctx.Err(), err))
		}
	}
}

// shutdown asks for the drain until somebody has heard it.
func (l *Lease) shutdown(ctx context.Context) error {
	key := fresh()
	for {
		body := map[string]uint64{}
		if g := l.known(); g > 0 {
			body["generation"] = g
		}
		err := l.client.do(ctx, request{method: http.MethodPost, path: l.path("graceful-shutdown"), in: body, key: key})
		var e *Error
		switch errors.As(err, &e); {
		case err == nil, status(err) == http.StatusNotFound, status(err) == http.StatusGone:
			return nil
		case e != nil && e.Status == http.StatusConflict && (e.CurrentState == stateDraining || e.CurrentState == stateDeregistered):
			if errors.Is(l.Err(), ErrReplaced) {
				return ErrReplaced
			}
			return nil
		case replaced(err):
			return errors.Join(ErrReplaced, err)
		case !later(err):
			return err
		}
		if !wait(ctx, retryAfter(err, drainBeat)) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// gone says whether the instance, as it was registered here, has ended.
func (l *Lease) gone(ctx context.Context) (bool, error) {
	var e struct {
		State      string `json:"state"`
		Generation uint64 `json:"generation"`
	}
	err := l.client.do(ctx, request{method: http.MethodGet, path: l.path(""), out: &e})
	if status(err) == http.StatusNotFound || status(err) == http.StatusGone {
		return true, nil
	}
	known := l.known()
	newer := known > 0 && e.Generation > known
	return err == nil && (e.State == stateDeregistered || newer), err
}

// known is the generation to end; 0 when it may be a later one that was registered here, too.
func (l *Lease) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsure {
		return 0
	}
	return l.generation
}

// Handler counts the requests that next serves, for heartbeats and drains. It replaces what InFlight set.
func (l *Lease) Handler(next http.Handler) http.Handler {
	var n atomic.Int64
	l.InFlight(func() int { return int(n.Load()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		defer n.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// Time that a process has to end. Kubernetes kills after 30 s (terminationGracePeriodSeconds).
const (
	endWithin = 25 * time.Second
	restPart  = 5 // of that, one part in so many is kept for the requests that are left after the drain
)

// DrainOnSignal is [DrainWithin] 25 s, which is less than the 30 s that Kubernetes gives by default.
func DrainOnSignal(ctx context.Context, lease *Lease, server *http.Server, signals ...os.Signal) error {
	return DrainWithin(ctx, endWithin, lease, server, signals...)
}

// DrainWithin waits for a signal (SIGTERM and SIGINT by default) or the end of ctx. Then it drains the lease and after
// that shuts the server down, so that nobody is refused. Both together take no longer than so long: a drain that takes
// more than four fifths of it is given up. A second signal closes the server at once.
func DrainWithin(ctx context.Context, within time.Duration, lease *Lease, server *http.Server, signals ...os.Signal) error {
	if len(signals) == 0 {
		signals = []os.Signal{syscall.SIGTERM, os.Interrupt}
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, signals...)
	defer signal.Stop(heard)
	select {
	case <-heard:
	case <-ctx.Done():
	}
	hasty, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-heard:
			cancel()
		case <-over:
		}
	}()
	drain, stop := context.WithTimeout(hasty, within-within/restPart)
	defer stop()
	drained := lease.Drain(drain)
	err := server.Shutdown(hasty)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	return errors.Join(drained, err)
}
