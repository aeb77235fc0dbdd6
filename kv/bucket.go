package kv

// Bucket, typed values in the stream of a bucket: Open, Get, Put and Purge are requests to its leader. Values pass the codec
// on their way in and out, and errors of the server become those of errors.go (ErrNotFound, ErrConflict, CorruptError).
// watch.go follows a bucket, and decodes what it gets with entry; door.go and lease.go read and write raw values beside it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/internal/feed"
	"github.com/bcc94042/instar/streams"
)

// Codec turns values into bytes and back.
type Codec[T any] struct {
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
}

// JSON is the codec of encoding/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(data []byte) (v T, err error) { err = json.Unmarshal(data, &v); return v, err },
	}
}

// Entry is a value at a revision, or one of the two other things that a watch gives: a deletion, or the end of the snapshot.
type Entry[T any] struct {
	Key      string
	Value    T
	Revision uint64
	Created  time.Time // when this revision was stored

	// Deleted says that the key was deleted at this revision.
	Deleted bool
	// Dropped says so too, and that the value is the note of the marker: see [Bucket.GetDropped].
	Dropped bool
	// Synced marks the end of the snapshot: all that the bucket held has been given. Such an entry has no key.
	Synced bool
}

// Bucket is a JetStream bucket of values of one type. It is safe for concurrent use. Each request of Get, Put and Purge waits for its answer for the default timeout of the client that it was opened
// with, however much time their contexts have: one that was lost with its connection is never answered. What a Put or a Purge that has no answer has done is not known.
type Bucket[T any] struct {
	name  string
	js    jetstream.JetStream
	kv    jetstream.KeyValue
	st    jetstream.Stream // below it
	codec Codec[T]
}

// Open opens a bucket that exists. It refuses one that allows direct reads, because those are stale on replicas right
// after a write.
func Open[T any](ctx context.Context, js jetstream.JetStream, name string, c Codec[T]) (*Bucket[T], error) {
	ctx = wait.EachRequest(ctx)
	kv, err := js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("kv: cannot open bucket %s: %w", name, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("kv: cannot open bucket %s: %w", name, err)
	}
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok && s.StreamInfo().Config.AllowDirect {
		return nil, fmt.Errorf("kv: cannot open bucket %s: its stream allows direct reads, which may be stale", name)
	}
	st, err := js.Stream(ctx, streams.BucketStream(name))
	if err != nil {
		return nil, fmt.Errorf("kv: cannot open bucket %s: %w", name, err)
	}
	return &Bucket[T]{name: name, js: js, kv: kv, st: st, codec: c}, nil
}

// Get returns the newest value of the key, [ErrNotFound] if the leader of the bucket says that there is none, or a
// [CorruptError]. A value that the leader has and cannot read is [streams.ErrUnreadable].
func (b *Bucket[T]) Get(ctx context.Context, key string) (Entry[T], error) {
	ctx = wait.EachRequest(ctx)
	e, err := b.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = b.absent(ctx, key)
	}
	if err != nil {
		return Entry[T]{}, fmt.Errorf("kv: cannot get %s/%s: %w", b.name, key, err)
	}
	return b.entry(feed.Update{Key: key, Value: e.Value(), Revision: e.Revision(), At: e.Created().UnixNano()})
}

// GetDropped is [Bucket.Get] that returns the note of a key that was deleted by [DropAt] as its value, in an entry that is Dropped.
func (b *Bucket[T]) GetDropped(ctx context.Context, key string) (Entry[T], error) {
	e, err := b.Get(ctx, key)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	m, last := b.st.GetLastMsgForSubject(wait.EachRequest(ctx), streams.BucketSubject(b.name, key))
	switch {
	case errors.Is(last, jetstream.ErrMsgNotFound):
		return e, err
	case last != nil:
		return e, fmt.Errorf("kv: cannot get %s/%s: %w", b.name, key, last)
	case len(m.Data) == 0:
		return e, err
	}
	e, err = b.entry(feed.Update{Key: key, Value: m.Data, Revision: m.Sequence, At: m.Time.UnixNano()})
	e.Dropped = feed.IsMarker(m.Header) // else it was written meanwhile
	return e, err
}

// absent is [ErrNotFound] if the key holds no value, and else why that is not known: the server says "no message found"
// for one that it cannot read, too.
func (b *Bucket[T]) absent(ctx context.Context, key string) error {
	subject := streams.BucketSubject(b.name, key)
	holds, err := streams.Holds(ctx, b.st, subject)
	if err != nil {
		return err
	}
	if holds { // the marker of a deletion, or a value that was written meanwhile, or one that cannot be read
		_, err := b.st.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return streams.ErrUnreadable
		}
		if err != nil {
			return err
		}
	}
	return ErrNotFound
}

// Put stores the value if the key is at revision rev, and returns the new revision. Revision 0 means that the key
// never held anything, not even a value that was deleted. Put fails with [ErrConflict] if the key is elsewhere.
func (b *Bucket[T]) Put(ctx context.Context, key string, value T, rev uint64) (uint64, error) {
	data, err := b.codec.Encode(value)
	if err != nil {
		return 0, fmt.Errorf("kv: cannot encode %s/%s: %w", b.name, key, err)
	}
	// Not Create: it takes a deleted key for a missing one. Update with revision 0 does not.
	next, err := b.kv.Update(wait.EachRequest(ctx), key, data, rev)
	if err != nil {
		return 0, b.failed("put", key, rev, err)
	}
	return next, nil
}

// Purge deletes the key if it is at revision rev, and leaves a delete marker. It is for keys whose life has ended:
// whoever remembers the last revision can write the key again.
func (b *Bucket[T]) Purge(ctx context.Context, key string, rev uint64) error {
	if err := b.kv.Purge(wait.EachRequest(ctx), key, jetstream.LastRevision(rev)); err != nil {
		return b.failed("purge", key, rev, err)
	}
	return nil
}

func (b *Bucket[T]) failed(verb, key string, rev uint64, err error) error {
	if Conflict(err) {
		return fmt.Errorf("kv: cannot %s %s/%s at revision %d: %w: %w", verb, b.name, key, rev, ErrConflict, err)
	}
	return fmt.Errorf("kv: cannot %s %s/%s at revision %d: %w", verb, b.name, key, rev, err)
}

// entry decodes an update. On a corrupt value the entry has all but the value.
func (b *Bucket[T]) entry(u feed.Update) (Entry[T], error) {
	e := Entry[T]{Key: u.Key, Revision: u.Revision, Created: time.Unix(0, u.At).UTC(), Deleted: u.Deleted}
	if u.Deleted {
		return e, nil
	}
	v, err := b.codec.Decode(u.Value)
	if err != nil {
		return e, &CorruptError{Bucket: b.name, Key: u.Key, Revision: u.Revision, Raw: u.Value, Err: err}
	}
	e.Value = v
	return e, nil
}
