package kv

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv/internal/feed"
)

var (
	// ErrNotFound says that the key holds no value: it never did, or it was deleted.
	ErrNotFound = errors.New("key not found")
	// ErrConflict says that the key is not at the revision that the write expected. Nothing was written.
	ErrConflict = errors.New("revision conflict")
	// ErrCorrupt says that a stored value cannot be decoded; see [CorruptError].
	ErrCorrupt = errors.New("value cannot be decoded")
	// ErrReset says that the stream is not the one that was being followed: it was deleted, restored or cut. What was
	// read before is void; begin again from the start.
	ErrReset = feed.ErrReset
)

// CorruptError is a stored value that cannot be decoded. It matches [ErrCorrupt].
type CorruptError struct {
	Bucket, Key string
	Revision    uint64
	Raw         []byte
	Err         error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("kv: cannot decode %s/%s at revision %d (%d bytes): %v", e.Bucket, e.Key, e.Revision, len(e.Raw), e.Err)
}

func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// Conflict reports whether err is a lost revision check, of [Bucket.Put] or of a message published with an expected
// sequence. The server says so with two codes, one of them only on replicated streams.
func Conflict(err error) bool {
	if errors.Is(err, ErrConflict) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
