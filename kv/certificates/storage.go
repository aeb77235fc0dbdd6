package certificates

// Storage, certmagic's view of the bucket as files in folders. A path becomes a key by key.go; Load and Stat read it from the leader and open it, Store seals and writes it
// whatever was there, List asks which keys there are below a folder, and Delete purges them. lock.go has the locks.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// Sealer encrypts values for the bucket. What was sealed opens only with the same associated data.
type Sealer interface {
	Encrypt(plain, associated []byte) ([]byte, error)
	Decrypt(sealed, associated []byte) ([]byte, error)
}

// Storage is a bucket as certmagic's storage. It is safe for concurrent use.
type Storage struct {
	js     jetstream.JetStream
	bucket string
	life   time.Duration
	keys   Sealer

	mu   sync.Mutex
	held map[string]*held // by name
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// New is the storage in a bucket that exists. The life is for how long a lock stands that nobody renews, such as that of a process that has died.
func New(js jetstream.JetStream, bucket string, life time.Duration, keys Sealer) *Storage {
	return &Storage{js: js, bucket: bucket, life: max(life, time.Second), keys: keys, held: make(map[string]*held)}
}

// String is how certmagic's logs name it.
func (s *Storage) String() string { return "bucket " + s.bucket }

func (s *Storage) failed(verb, what string, err error) error {
	return fmt.Errorf("certificates: cannot %s %q in bucket %s: %w", verb, what, s.bucket, err)
}

// Store writes the value, whatever was there.
func (s *Storage) Store(ctx context.Context, name string, value []byte) error {
	key, err := encode(files, name)
	if err != nil {
		return s.failed("store", name, err)
	}
	sealed, err := s.keys.Encrypt(value, []byte(cleaned(name)))
	if err != nil {
		return s.failed("seal", name, err)
	}
	if _, err := s.js.PublishMsg(wait.EachRequest(ctx), kv.Write(s.bucket, key, sealed).Msg); err != nil {
		return s.failed("store", name, err)
	}
	return nil
}

// Load returns the value that was stored last, or [fs.ErrNotExist].
func (s *Storage) Load(ctx context.Context, name string) ([]byte, error) {
	m, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.open(name, m)
}

func (s *Storage) read(ctx context.Context, name string) (*streams.Message, error) {
	key, err := encode(files, name)
	if err != nil {
		return nil, s.failed("load", name, err)
	}
	m, err := kv.Read(ctx, s.js.Conn(), s.bucket, key)
	switch {
	case err != nil:
		return nil, s.failed("load", name, err)
	case kv.Absent(m):
		return nil, s.failed("load", name, fs.ErrNotExist)
	}
	return m, nil
}

func (s *Storage) open(name string, m *streams.Message) ([]byte, error) {
	value, err := s.keys.Decrypt(m.Data, []byte(cleaned(name)))
	if err != nil {
		return nil, s.failed("open", name, fmt.Errorf("it was sealed with another key, or is damaged: %w", err))
	}
	return value, nil
}

// Delete removes what is stored under the name, and below it. It does not mind that there is nothing.
func (s *Storage) Delete(ctx context.Context, name string) error {
	key, err := encode(files, name) // refuses the folder of everything
	if err != nil {
		return s.failed("delete", name, err)
	}
	for _, filter := range []string{key + ".>", key} {
		err := streams.Purge(ctx, s.js.Conn(), streams.BucketStream(s.bucket), streams.BucketSubject(s.bucket, filter), math.MaxUint64-1)
		if err != nil {
			return s.failed("delete", name, err)
		}
	}
	return nil
}

// Exists reports whether there is a value or a folder of that name, and false when that cannot be told. A value that does not open is there: else
// certmagic would ask for all certificates anew when the keys are the wrong ones.
func (s *Storage) Exists(ctx context.Context, name string) bool {
	_, err := s.read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		below, errBelow := s.below(ctx, name)
		return errBelow == nil && len(below) > 0
	}
	return err == nil
}

// Stat describes a value, by its size before it was sealed, or a folder. It fails with [fs.ErrNotExist] when there is neither.
func (s *Storage) Stat(ctx context.Context, name string) (certmagic.KeyInfo, error) {
	m, err := s.read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) && s.Exists(ctx, name) {
		return certmagic.KeyInfo{Key: name}, nil
	}
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	value, err := s.open(name, m)
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	return certmagic.KeyInfo{Key: name, Modified: m.Time, Size: int64(len(value)), IsTerminal: true}, nil
}

// List returns the names of what is in a folder, sorted, and when it is recursive also those of what is in the folders there, as
// [certmagic.FileStorage] does. It fails with [fs.ErrNotExist] when there is no such folder; the one of everything, "", is always there.
func (s *Storage) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	below, err := s.below(ctx, folder)
	if err != nil {
		return nil, err
	}
	if folder = cleaned(folder); folder != "" {
		if len(below) == 0 && !s.Exists(ctx, folder) {
			return nil, s.failed("list", folder, fs.ErrNotExist)
		}
		folder += "/"
	}
	names := make(map[string]bool)
	for _, name := range below {
		parts := strings.SplitAfter(name, "/")
		if !recursive {
			parts = parts[:1]
		}
		at := folder
		for _, part := range parts {
			at += part
			names[strings.TrimSuffix(at, "/")] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// below returns the names of all values in a folder and the folders there, from the folder on.
func (s *Storage) below(ctx context.Context, folder string) ([]string, error) {
	prefix := files
	if cleaned(folder) != "" {
		var err error
		if prefix, err = encode(files, folder); err != nil {
			return nil, s.failed("list", folder, err)
		}
	}
	filter := streams.BucketSubject(s.bucket, prefix+".>")
	var names []string
	for offset, total := 0, 1; offset < total; {
		var page map[string]uint64
		var err error
		page, total, err = streams.Subjects(ctx, s.js.Conn(), streams.BucketStream(s.bucket), filter, offset)
		if err != nil {
			return nil, s.failed("list", folder, err)
		}
		if len(page) == 0 {
			break
		}
		offset += len(page)
		for subject := range page {
			if name, ok := decode(strings.TrimPrefix(subject, strings.TrimSuffix(filter, ">"))); ok { // else it was written by somebody else
				names = append(names, name)
			}
		}
	}
	return names, nil
}
