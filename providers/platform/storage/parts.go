package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// maxID bounds the id of an object, which is a part of the subjects of its parts. Those that clients make have 22 characters.
const maxID = 64

// parts reads the parts of an object one after the other, and compares what they are with what was said of it.
//
// It does not use the object store of nats.go. That asks for an object by a subject which has its name, and for its parts by one which has its id: a tenant may have written either at any length, and
// the server ends for good the connection of who sends a longer line than 4 KiB, here that of a whole node. It also follows links, which may lead to another tenant's bucket.
type parts struct {
	ctx     context.Context
	of      jetstream.Stream
	bucket  string
	subject string
	digest  string
	left    uint64 // bytes that are still to come

	next uint64 // sequence
	rest []byte // of the part that is being read
	sum  hash.Hash

	whole bool // its digest is the one that was said
}

// isID reports whether parts can have this id.
func isID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsAny(id, ".*> \t\r\n\x00")
}

var errChanged = errors.New("it has changed meanwhile, or was never whole")

// open reads an object as it was listed. The stream is [led].
func open(ctx context.Context, st jetstream.Stream, bucket string, info *jetstream.ObjectInfo) (io.ReadCloser, error) {
	if !isID(info.NUID) {
		return nil, fmt.Errorf("its id %.100q is none", info.NUID)
	}
	return &parts{ctx: wait.EachRequest(ctx), of: st, bucket: bucket, subject: "$O." + bucket + ".C." + info.NUID, digest: info.Digest, left: info.Size, next: 1, sum: sha256.New()}, nil
}

func (p *parts) Read(into []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.left > 0 {
			m, err := p.of.GetMsg(p.ctx, p.next, jetstream.WithGetMsgSubject(p.subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && (uint64(len(m.Data)) > p.left || m.Sequence+1 <= p.next) { // a sequence of its own is a header that was stored with it, and the highest has none behind it
				return 0, errChanged
			}
			if err != nil {
				return 0, unread(p.ctx, p.bucket, err)
			}
			p.rest, p.next, p.left = m.Data, m.Sequence+1, p.left-uint64(len(m.Data))
			p.sum.Write(p.rest)
		} else if p.whole {
			return 0, io.EOF
		}
		if p.left == 0 { // before the last part is given: who has got all bytes takes them for good
			if jetstream.GetObjectDigestValue(p.sum) != p.digest {
				return 0, errChanged
			}
			p.whole = true
		}
	}
	n := copy(into, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Close has nothing to close.
func (p *parts) Close() error { return nil }

// unread is why an object is not read. The time of a request that is over passes, other than that of ctx.
func unread(ctx context.Context, bucket string, err error) error {
	if known := (*providers.Error)(nil); ctx.Err() != nil || errors.As(err, &known) {
		return err
	}
	return providers.Errorf(providers.Unavailable, "cannot read the bucket %s: %v", bucket, err)
}
