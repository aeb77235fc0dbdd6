package kv

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/kv/internal/feed"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Read reads the newest value of a key from the leader of its bucket, in one round trip, as bytes. It is nil when none was ever written, and
// [Absent] when it was deleted. It fails with [streams.ErrUnreadable] when the leader has a value that it cannot read.
func Read(ctx context.Context, nc *nats.Conn, bucket, key string) (*streams.Message, error) {
	return streams.LastHeld(ctx, nc, streams.BucketStream(bucket), streams.BucketSubject(bucket, key))
}

// Write is the write of a value for [publish.Appender], whatever the revision of the key is: see [WriteAt].
func Write(bucket, key string, value []byte) publish.Write {
	m := &nats.Msg{Subject: streams.BucketSubject(bucket, key), Data: value, Header: make(nats.Header, 1)}
	return publish.Write{Stream: streams.BucketStream(bucket), Msg: m}
}

// WriteAt is [Write] if the key is at a revision: that of its last value or marker, or 0 for one that was never written. Else
// it fails with [publish.ErrConflict].
func WriteAt(bucket, key string, value []byte, revision uint64) publish.Write {
	w := Write(bucket, key, value)
	streams.Expect(w.Msg, revision)
	return w
}

// Drop is a write that deletes a key, whatever its revision. Readers see a purge. The marker keeps a note for the writer, and is removed after its life, as is all that the
// bucket knows of the key then.
func Drop(bucket, key string, note []byte, life time.Duration) publish.Write {
	w := Write(bucket, key, note)
	w.Msg.Header["KV-Operation"] = []string{"PURGE"}
	streams.Keep(w.Msg, life)
	return w
}

// DropAt is [Drop] at a revision, or fails as [WriteAt] does.
func DropAt(bucket, key string, note []byte, revision uint64, life time.Duration) publish.Write {
	w := Drop(bucket, key, note, life)
	streams.Expect(w.Msg, revision)
	return w
}

// Dropped reports whether a key was deleted by [Drop] or [DropAt]: the data of the message is the note.
func Dropped(m *streams.Message) bool { return Absent(m) && m != nil && len(m.Data) > 0 }

// Absent reports whether a key holds no value: none was written, or it was deleted, of which its bucket keeps a marker.
func Absent(m *streams.Message) bool { return m == nil || feed.IsMarker(m.Headers()) }
