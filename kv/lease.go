package kv

// Leases: who has one is the only one of its name, such as the node that runs a role (consumers/cluster/role.go). Take asks the leader of the bucket who holds it and writes the
// own name at the revision that was read; Renew writes it again, and Release gives it back. A lease that is not renewed for its life, by the clock of whoever looks, is free.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/streams"
)

// ErrHeld says that a lease is held by somebody else.
var ErrHeld = errors.New("the lease is held")

// Lease is a key that one holder has for as long as it renews it. It keeps processes from hindering each other and is no lock: who must not
// write beside another one expects the revisions of what it writes.
//
// No wall clock ends a lease, neither of a server nor of a process: another holder takes it, at its revision, when it has not seen it
// renewed for its life by its own clock since boot ([LastSeen]). The life stands beside the holder, in the header Instar-Life: holders may
// have different ones. The value is the holder's name alone; empty is that there is none.
//
// A Lease is for one goroutine at a time. All fields but Clock are needed.
type Lease struct {
	JS     jetstream.JetStream
	Bucket string
	Key    string
	Holder string               // who asks: one that restarts under its name has its own lease at once
	Life   time.Duration        // without being renewed
	Clock  func() time.Duration // nil is [boottime.Now]; for tests

	other    LastSeen      // the lease of somebody else
	revision uint64        // of its own
	unsure   bool          // a renewal had no answer: the revision may be another one
	asked    time.Duration // when its own was asked for last
}

func (l *Lease) now() time.Duration {
	if l.Clock != nil {
		return l.Clock()
	}
	return boottime.Now()
}

// Take takes the lease if it is free, the holder's own, or not renewed for its life. Else it fails with [ErrHeld], and says who holds it.
func (l *Lease) Take(ctx context.Context) (holder string, err error) {
	asked := l.now() // its life counts from before the question
	read, cancel := context.WithTimeout(ctx, l.Life/2)
	defer cancel()
	m, err := Read(read, l.JS.Conn(), l.Bucket, l.Key)
	if err != nil {
		return "", err
	}
	revision := uint64(0)
	if m != nil {
		revision = m.Sequence
		if holder := string(m.Data); holder != "" && holder != l.Holder {
			l.other.See(revision, l.now())
			if !l.other.Expired(streams.Header(m.Headers(), streams.HeaderLife), l.Life, l.now()) {
				return holder, ErrHeld
			}
		}
	}
	l.revision, err = l.write(ctx, revision, l.Holder)
	l.unsure = err != nil
	if err == nil {
		l.asked = asked
	}
	return "", err
}

// Left is how long the holder may take itself for one: three quarters of the life since it asked last, so that it is over before anybody else
// takes the lease.
func (l *Lease) Left() time.Duration { return l.asked + l.Life*3/4 - l.now() }

// Renew writes the lease again, within the time that is left. Where that fails, an answer was lost, or the lease is not its own any more:
// then it is taken anew, if it may be.
func (l *Lease) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.Left())
	defer cancel()
	asked := l.now()
	revision, err := l.write(ctx, l.revision, l.Holder)
	if err == nil {
		l.revision, l.asked, l.unsure = revision, asked, false
		return nil
	}
	l.unsure = true
	if _, errTake := l.Take(ctx); errTake != nil {
		return errors.Join(err, errTake)
	}
	return nil
}

// Release gives the lease back. A renewal that was cut off before its answer may have made a revision that the holder does not know, so where
// it fails the lease is looked at, and given back if it is still the holder's. Without an answer it ends by itself.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.write(ctx, l.revision, "")
	if err == nil || !l.unsure { // else it is that of another process under the holder's name
		return err
	}
	m, errRead := Read(ctx, l.JS.Conn(), l.Bucket, l.Key)
	if errRead != nil {
		return errors.Join(err, errRead)
	}
	if m == nil || string(m.Data) != l.Holder {
		return nil
	}
	_, err = l.write(ctx, m.Sequence, "")
	return err
}

// write stores a holder at a revision. That there is none needs no key for long.
func (l *Lease) write(ctx context.Context, revision uint64, holder string) (uint64, error) {
	m := WriteAt(l.Bucket, l.Key, []byte(holder), revision).Msg
	if holder == "" {
		streams.Keep(m, l.Life)
	} else {
		m.Header.Set(streams.HeaderLife, l.Life.String())
	}
	ctx, cancel := context.WithTimeout(ctx, l.Life/3)
	defer cancel()
	ack, err := l.JS.PublishMsg(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("cannot write the lease: %w", err)
	}
	return ack.Sequence, nil
}

// LastSeen is when somebody else's key was last seen to be renewed, by the own clock since boot.
type LastSeen struct {
	Revision uint64
	At       time.Duration
}

// See notes the revision that a key has, which is another one when it was renewed.
func (s *LastSeen) See(revision uint64, now time.Duration) {
	if s.Revision != revision {
		*s = LastSeen{revision, now}
	}
}

// Expired reports whether the key was not seen to be renewed for its life: for what its owner said, or, where that said nothing, as earlier
// versions do, for the life of whoever asks.
func (s *LastSeen) Expired(said string, own, now time.Duration) bool {
	return now-s.At > LifeOf(said, own)
}

// LifeOf is how long a key lives without being renewed: what its owner said, at least a second, or the life of whoever asks.
func LifeOf(said string, own time.Duration) time.Duration {
	if life, err := time.ParseDuration(said); err == nil {
		return max(life, time.Second)
	}
	return own
}
