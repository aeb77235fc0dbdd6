package shard

// Leases of shards, by keys in the bucket of owners. Set (set.go) calls Acquire for a shard that it should have: take writes the key at its revision, and hold renews it until it
// is released or lost. Share and Leave are in share.go; Alone stands in where a relay is the only one.

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Leases decide which relay serves a shard. They save work, nothing more: two relays that both believe to hold a shard
// cannot harm the stream, because only the one that opened it last can write.
type Leases interface {
	// Acquire takes the lease of a shard if it is free. lost is closed when it is no longer held; release gives it back
	// and must be called once.
	Acquire(ctx context.Context, shard int) (lost <-chan struct{}, release func(), ok bool)

	// Share takes how many of count shards the relay holds, and returns how many it should hold, so that all relays have some. It is called about once a second; a relay that no
	// longer calls it has a share of none.
	Share(ctx context.Context, count, held int) int

	// Leave announces that the relay ends. It may call Share again later.
	Leave(ctx context.Context)
}

// Alone is for one relay that has no others beside it.
type Alone struct{}

// Acquire always succeeds.
func (Alone) Acquire(context.Context, int) (<-chan struct{}, func(), bool) {
	return nil, func() {}, true
}

// Share is all of them.
func (Alone) Share(_ context.Context, count, _ int) int { return count }

// Leave does nothing.
func (Alone) Leave(context.Context) {}

// NATSLeases are keys with a life in the bucket of owners, renewed by revision. It is for one relay.
type NATSLeases struct {
	JS     jetstream.JetStream
	Names  streams.Names
	Source string
	Node   string        // kept over restarts, so that a node takes its own lease back at once
	Life   time.Duration // of a lease that is not renewed; 0 is 10 s, at least 1 s
	Log    *slog.Logger

	mu     sync.Mutex
	looked time.Time // when the others were last counted
	count  int       // of the shards at that time
	said   int       // how many this relay has, as it has announced
	share  int       // how many it should have
}

func (l *NATSLeases) life() time.Duration {
	if l.Life == 0 {
		return 10 * time.Second
	}
	return max(l.Life, time.Second)
}

var errHeld = errors.New("another node holds the lease")

// Acquire takes the lease if it is free or this node's own, and renews it until it is released or lost.
func (l *NATSLeases) Acquire(ctx context.Context, shard int) (<-chan struct{}, func(), bool) {
	subject := l.key(strconv.Itoa(shard))
	revision, err := l.take(ctx, subject)
	if err != nil {
		if !errors.Is(err, errHeld) && ctx.Err() == nil {
			l.log().Warn("cannot acquire the lease of a shard", "source", l.Source, "shard", shard, "error", err)
		}
		return nil, nil, false
	}
	lost, stop, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		l.hold(ctx, subject, revision, lost, stop)
	}()
	var once sync.Once
	return lost, func() { once.Do(func() { close(stop); <-gone }) }, true
}

func (l *NATSLeases) bucket() string {
	return streams.BucketStream(l.Names.Bucket(streams.OwnersBucket))
}

// key is a subject of the source.
func (l *NATSLeases) key(name string) string {
	return streams.BucketSubject(l.Names.Bucket(streams.OwnersBucket), "outbox."+l.Source+"."+name)
}

// put writes a key that expires by itself, whoever wrote it last.
func (l *NATSLeases) put(ctx context.Context, subject string, body []byte) error {
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	streams.Keep(m, l.life())
	_, err := l.JS.PublishMsg(ctx, m)
	return err
}

// take writes the lease.
func (l *NATSLeases) take(ctx context.Context, subject string) (uint64, error) {
	bucket, err := l.JS.Stream(ctx, l.bucket())
	if err != nil {
		return 0, err
	}
	revision := uint64(0)
	m, err := bucket.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return 0, err
	default:
		revision = m.Sequence
		if holder := string(m.Data); holder != "" && holder != l.Node {
			return 0, errHeld
		}
	}
	return l.write(ctx, subject, revision, l.Node)
}

func (l *NATSLeases) write(ctx context.Context, subject string, revision uint64, node string) (uint64, error) {
	m := &nats.Msg{Subject: subject, Data: []byte(node), Header: nats.Header{}}
	streams.Expect(m, revision)
	streams.Keep(m, l.life())
	ctx, cancel := context.WithTimeout(ctx, l.life()/3)
	defer cancel()
	ack, err := l.JS.PublishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// hold renews the lease until stop is closed; it closes lost when it cannot.
func (l *NATSLeases) hold(ctx context.Context, subject string, revision uint64, lost, stop chan struct{}) {
	ctx = context.WithoutCancel(ctx) // it is released, not cut off
	tick := time.NewTicker(l.life() / 4)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-stop:
			_, _ = l.write(ctx, subject, revision, "") // given back; if that fails it expires by itself
			return
		case <-tick.C:
		}
		next, err := l.write(ctx, subject, revision, l.Node)
		if err != nil { // an answer was lost, or the lease had ended
			next, err = l.take(ctx, subject)
		}
		switch {
		case err == nil:
			revision, renewed = next, time.Now()
		case errors.Is(err, errHeld) || time.Since(renewed) > l.life()*3/4:
			l.log().Warn("lost the lease of a shard", "lease", subject, "error", err)
			close(lost)
			<-stop
			return
		}
	}
}

func (l *NATSLeases) log() *slog.Logger {
	if l.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.Log
}
