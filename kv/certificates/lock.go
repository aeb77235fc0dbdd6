package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/kv"
)

// held is a lock of this process.
type held struct {
	lease  *kv.Lease
	cancel context.CancelFunc // ends its renewal
	ended  chan struct{}      // when that has ended
}

// lease is for one call to Lock: the calls of one process exclude each other as those of different ones do.
func (s *Storage) lease(name string) (*kv.Lease, error) {
	key, err := encode(locks, name)
	if err != nil {
		return nil, s.failed("lock", name, err)
	}
	return &kv.Lease{JS: s.js, Bucket: s.bucket, Key: key, Holder: nuid.Next(), Life: s.life}, nil
}

// Lock waits until the lock is free, and takes it. It ends with its context.
func (s *Storage) Lock(ctx context.Context, name string) error {
	lease, err := s.lease(name)
	if err != nil {
		return err
	}
	again := time.NewTicker(min(s.life/5, time.Second))
	defer again.Stop()
	for {
		if ok, err := s.take(ctx, name, lease); ok || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return s.failed("lock", name, ctx.Err())
		}
	}
}

// TryLock takes the lock if it is free, and reports whether it was. That of a process that has died is not free to it: that takes a while to see.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lease, err := s.lease(name)
	if err != nil {
		return false, err
	}
	return s.take(ctx, name, lease)
}

func (s *Storage) take(ctx context.Context, name string, lease *kv.Lease) (bool, error) {
	_, err := lease.Take(ctx)
	switch {
	case err == nil:
		s.hold(name, lease)
		return true, nil
	case errors.Is(err, kv.ErrHeld), kv.Conflict(err):
		return false, nil
	}
	// It may be held now, without anybody who knows. Without an answer it ends by itself.
	_ = lease.Release(context.WithoutCancel(ctx))
	return false, s.failed("lock", name, err)
}

// hold keeps a lease until it is unlocked: whoever has locked may be at work for longer than the context was for.
func (s *Storage) hold(name string, lease *kv.Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &held{lease: lease, cancel: cancel, ended: make(chan struct{})}
	s.mu.Lock()
	before := s.held[name]
	s.held[name] = h
	s.mu.Unlock()
	if before != nil { // it was lost, and nobody has unlocked it yet
		before.cancel()
	}
	go h.keep(ctx)
}

// keep renews the lease until ctx ends or somebody else has it. After its life it is taken again if nobody has: its holder is still at work.
func (h *held) keep(ctx context.Context) {
	defer close(h.ended)
	tick := time.NewTicker(h.lease.Life / 4)
	defer tick.Stop()
	var err error
	for !errors.Is(err, kv.ErrHeld) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if h.lease.Left() > 0 {
			err = h.lease.Renew(ctx)
		} else {
			_, err = h.lease.Take(ctx)
		}
	}
}

// Unlock gives the lock back. It fails when the lock is not this process's any more, and when that cannot be told: then it ends by itself.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	h := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if h == nil {
		return s.failed("unlock", name, errors.New("it is not locked by this process"))
	}
	h.cancel()
	<-h.ended
	if err := h.lease.Release(ctx); err != nil {
		return s.failed("unlock", name, err)
	}
	return nil
}

// Close gives back all locks, for the end of a process whose work does not unlock any more.
func (s *Storage) Close(ctx context.Context) error {
	s.mu.Lock()
	names := make([]string, 0, len(s.held))
	for name := range s.held {
		names = append(names, name)
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, s.Unlock(ctx, name))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("certificates: cannot give back all locks: %w", err)
	}
	return nil
}
