// Package answers keeps the answers to commands that were sent under a key of their sender, in the bucket idempotency, for as long as the
// key is remembered (idempotencyWindow of the configuration, the MaxAge of the bucket in streams/config.go): a command under the same key gets the answer of then, byte for byte.
package answers

// The engine looks a key up before it decides (Absent, then Get), writes the answer beside the events of the transition (Write), and compares what it loads with the answers
// that are kept (LastVersion, Above, Forget). Answers come in and go out as their bytes; Kept is how the bucket has them.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/jsonwrite"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Kept is an answer as it is kept.
type Kept struct {
	ID     string          `json:"id"`   // the sender's key
	Hash   string          `json:"hash"` // of command, body and expected revision: another one under the same key is told apart
	Answer json.RawMessage `json:"answer"`
}

// Keyed reports whether the answer to a command is stored: it is one of a user, under a key of his own. Results and timers carry an attempt or a version instead.
func Keyed(m *machines.Machine, command, id string) bool {
	if m == nil || streams.MadeUp(id) {
		return false
	}
	switch command {
	case machines.CommandElapsed, machines.CommandFailed, machines.CommandReconcile, machines.CommandDrop:
		return false
	}
	in, _ := m.Input(command)
	return !in.Report
}

// Version is the version of the entity when a kept answer was given; 0 for one that cannot be used.
func Version(data []byte) uint64 {
	var k Kept
	var a machines.Answer
	if json.Unmarshal(data, &k) != nil || json.Unmarshal(k.Answer, &a) != nil {
		return 0
	}
	return a.Version
}

// Fingerprint is what a key is bound to: all that decides what the command does.
func Fingerprint(command, expect string, body []byte) string {
	h := fnv.New64a()
	h.Write([]byte(command)) // never fails
	h.Write([]byte{0})
	if expect != "" {
		h.Write([]byte(expect))
		h.Write([]byte{0})
	}
	h.Write(bytes.TrimSpace(body))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Store is the bucket of answers.
type Store struct {
	NC     *nats.Conn
	JS     jetstream.JetStream
	Bucket string
	Lacks  func(stream, subject string) bool // as of consumers.Deps; nil knows nothing
}

// Absent reports that nothing was answered under a key, where that can be told without asking. False says nothing.
func (s *Store) Absent(machine, key, id string) bool {
	return s.Lacks != nil && s.Lacks(streams.BucketStream(s.Bucket), streams.BucketSubject(s.Bucket, streams.AnswerKey(machine, key, id)))
}

// Get is what was answered under a key, or nil. It fails with [streams.ErrUnreadable] or [kv.ErrCorrupt] when there is an answer that
// cannot be used: the key was used then.
func (s *Store) Get(ctx context.Context, machine, key, id string) (*Kept, error) {
	subject := streams.BucketSubject(s.Bucket, streams.AnswerKey(machine, key, id))
	stored, err := streams.LastIfHeld(ctx, s.NC, streams.BucketStream(s.Bucket), subject)
	if err != nil {
		return nil, fmt.Errorf("cannot look up what was answered under key %q of %s %s: %w", id, machine, key, err)
	}
	if kv.Absent(stored) {
		return nil, nil
	}
	var k Kept
	if err = json.Unmarshal(stored.Data, &k); err == nil && k.ID != id {
		err = errors.New("it has another key")
	}
	if err != nil {
		return nil, fmt.Errorf("the kept answer %s: %w: %w", subject, kv.ErrCorrupt, err)
	}
	return &k, nil
}

// Write is what keeps an answer, as it was sent.
func (s *Store) Write(machine, key string, k Kept) publish.Write {
	data := make([]byte, 0, len(k.ID)+len(k.Hash)+len(k.Answer)+40)
	data = jsonwrite.Text(append(data, `{"id":`...), k.ID)
	data = jsonwrite.Text(append(data, `,"hash":`...), k.Hash)
	data = append(append(append(data, `,"answer":`...), k.Answer...), '}')
	return kv.Write(s.Bucket, streams.AnswerKey(machine, key, k.ID), data)
}

// LastVersion is the version that the last answer to a key of an entity was given at; 0 when none is kept. Where somebody has had the last one
// forgotten, or it cannot be read, it is the highest of the others.
func (s *Store) LastVersion(ctx context.Context, machine, key string) (uint64, error) {
	stored, err := streams.Last(ctx, s.NC, streams.BucketStream(s.Bucket), streams.BucketSubject(s.Bucket, machine+"."+key+".*"))
	if err != nil {
		return 0, fmt.Errorf("cannot find the last answer of %s %s: %w", machine, key, err)
	}
	if stored == nil {
		return 0, nil
	}
	if json.Valid(stored.Data) {
		return Version(stored.Data), nil
	}
	others, err := s.Above(ctx, machine, key, 0)
	var highest uint64
	for _, a := range others {
		highest = max(highest, Version(a.Value))
	}
	return highest, err
}

// Above are the kept answers to keys of an entity that were given at later versions.
func (s *Store) Above(ctx context.Context, machine, key string, version uint64) (above []kv.Entry[[]byte], err error) {
	raw := kv.Codec[[]byte]{Decode: func(data []byte) ([]byte, error) { return data, nil }}
	bucket, err := kv.Open(ctx, s.JS, s.Bucket, raw)
	if err != nil {
		return nil, err
	}
	for a, err := range bucket.List(ctx, machine+"."+key+".*") {
		if err != nil {
			return nil, fmt.Errorf("cannot find the answers of %s %s: %w", machine, key, err)
		}
		if Version(a.Value) > version {
			above = append(above, a)
		}
	}
	return above, nil
}

// Forget takes answers away, and none that is kept from now on.
func (s *Store) Forget(ctx context.Context, list []kv.Entry[[]byte]) error {
	for _, a := range list {
		if err := streams.Purge(ctx, s.NC, streams.BucketStream(s.Bucket), streams.BucketSubject(s.Bucket, a.Key), a.Revision); err != nil {
			return err
		}
	}
	return nil
}
