package tenantdb

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Without being told, it is looked every lookEvery whether there is something new; an answer is waited for for answerWithin.
const lookEvery, answerWithin, again = SeenLife / 3, 5 * time.Second, 100 * time.Millisecond

// follower reads the values of a bucket one by one, in the order in which they were stored, from the leader of its stream, and whoever stores one tells it to look. So it needs no consumer: whoever may
// make one says where it delivers, which only an admin may.
type follower struct {
	js   jetstream.JetStream
	name string // of the stream
	take func(key string, value []byte)

	told *nats.Subscription
	wake chan struct{}

	stream     jetstream.Stream
	after      uint64    // the sequence of what was read last
	of         time.Time // when the stream was made that it is of
	reconnects uint64    // of the connection until then

	looked atomic.Int64 // when what is known was all that there was, in nanoseconds
}

// open reads until it has a value of every key that there was. One that is replaced meanwhile is read later than it was listed.
func (f *follower) open(ctx context.Context, subject string) (err error) {
	f.wake = make(chan struct{}, 1)
	if f.told, err = f.js.Conn().Subscribe(subject, func(*nats.Msg) {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}); err != nil {
		return err
	}
	for {
		asked := time.Now()
		lacks, err := f.look(ctx, jetstream.WithSubjectFilter(">"))
		if err == nil {
			err = f.read(ctx, lacks)
		}
		switch {
		case err != nil:
			return errors.Join(err, f.told.Unsubscribe())
		case len(lacks) == 0:
			f.looked.Store(asked.UnixNano())
			return nil
		}
		select { // what was listed has been removed, or its leader could not read it
		case <-ctx.Done():
		case <-time.After(again):
		}
		f.after = 0
	}
}

// run reads what is new until ctx ends. What cannot be read leaves what was known, and is read the next time.
func (f *follower) run(ctx context.Context) {
	defer func() { _ = f.told.Unsubscribe() }() // the connection may have ended
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-tick.C:
			if _, err := f.look(ctx); err != nil {
				continue
			}
		}
		_ = f.read(ctx, nil)
	}
}

// look finds which subjects the stream has, where that is asked for. A stream that may have been restored gives out sequences again, so it is read from its beginning.
func (f *follower) look(ctx context.Context, what ...jetstream.StreamInfoOpt) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if f.stream == nil {
		s, err := f.js.Stream(ctx, f.name)
		if err != nil {
			return nil, err
		}
		f.stream = s
	}
	info, err := f.stream.Info(ctx, what...)
	if err != nil {
		return nil, err
	}
	reconnects := f.js.Conn().Stats().Reconnects
	if !info.Created.Equal(f.of) || reconnects != f.reconnects || info.State.LastSeq < f.after {
		f.after, f.of, f.reconnects = 0, info.Created, reconnects
	}
	return info.State.Subjects, nil
}

// read reads what is new, all of it or until it lacks nothing.
func (f *follower) read(ctx context.Context, lacks map[string]uint64) error {
	for lacks == nil || len(lacks) > 0 {
		asked := time.Now()
		m, err := f.next(ctx)
		if m == nil && err == nil {
			f.looked.Store(asked.UnixNano())
		}
		if m == nil || err != nil {
			return err
		}
		f.after = m.Sequence
		if _, key, ok := streams.BucketKey(m.Subject); ok && m.Header.Get("KV-Operation") == "" { // who was removed stays where it was
			f.take(key, m.Data)
		}
		delete(lacks, m.Subject)
	}
	return nil
}

// next is the first value after the last one, and nil when there is none. The server's buckets are read from their leaders: they allow no direct reads.
func (f *follower) next(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	m, err := f.stream.GetMsg(ctx, f.after+1, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}
