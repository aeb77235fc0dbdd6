package storage

import (
	"context"
	"crypto/md5" // #nosec G501 -- what clients of S3 compare, beside the SHA-256 of the store
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// MD5 is where the metadata of an object that [Objects.Put] has written has the MD5 of its content, in hexadecimal.
const MD5 = "instar-md5"

const (
	partSize = 128 << 10 // as clients of object stores have it
	window   = 32        // parts of an object that are on their way to the store
)

// ErrFull says that a bucket has no room for an object within its quota.
var ErrFull = errors.New("the bucket is full")

// Uploads begins the names of what uploads in parts have stored that are not complete. [ObjectStores.Read] does not give them.
const Uploads = ".instar-uploads/"

// errUnknown says that it is not known whether an object was placed.
var errUnknown = errors.New("it is not known whether it was stored")

// Codes of the server for what can never be stored as it is asked, and for a revision that is not the last one.
const (
	maxBytes      = 10077
	wrongSequence = 10071
)

// Put writes an object, and replaces the one of its name when all of it is stored, not before. Where check is not nil, it is asked for the object that is replaced, nil where there is none, at the
// time at which that happens: its error is given back, and nothing is changed. ErrFull says that there is no room. What an attempt that fails has written is removed, as far as the store answers;
// [Objects.Tidy] finds the rest.
func (b *Objects) Put(ctx context.Context, name string, meta map[string]string, body io.Reader, check func(now *jetstream.ObjectInfo) error) (*jetstream.ObjectInfo, error) {
	if !IsName(name) {
		return nil, providers.Errorf(providers.Invalid, "the name of an object is text of 1 to %d bytes", MaxName)
	}
	info := &jetstream.ObjectInfo{Bucket: b.bucket, NUID: nuid.Next(), ObjectMeta: jetstream.ObjectMeta{
		Name: name, Metadata: maps.Clone(meta), Opts: &jetstream.ObjectMetaOptions{ChunkSize: partSize},
	}}
	if info.Metadata == nil {
		info.Metadata = map[string]string{}
	}
	err := b.write(ctx, info, body)
	if err == nil {
		info.ModTime = time.Now().UTC()
		err = b.place(ctx, info, check)
	}
	if err != nil && !errors.Is(err, errUnknown) {
		b.purge(context.WithoutCancel(ctx), info.NUID)
	}
	return info, err
}

// Delete removes an object, with what is said of it, which would count as objects do: so it needs no room. That there is none is fine, and one that is written meanwhile stays.
func (b *Objects) Delete(ctx context.Context, name string) error {
	now, revision, err := b.find(ctx, name)
	if err != nil || now == nil {
		return err
	}
	if err := b.st.Purge(wait.EachRequest(ctx), jetstream.WithPurgeSubject(b.meta(name)), jetstream.WithPurgeSequence(revision+1)); err != nil {
		return b.unwritten(ctx, err)
	}
	b.purge(ctx, now.NUID)
	return nil
}

// write stores the parts of an object, and says in info what they are.
func (b *Objects) write(ctx context.Context, info *jetstream.ObjectInfo, body io.Reader) error {
	part, sha, sum := make([]byte, partSize), sha256.New(), md5.New() // #nosec G401 -- see the import
	var sent []jetstream.PubAckFuture
	for end := false; !end; {
		n, err := fill(body, part)
		if end = errors.Is(err, io.EOF); err != nil && !end {
			return err
		}
		if n > 0 {
			for _, h := range []hash.Hash{sha, sum} {
				h.Write(part[:n]) // never fails
			}
			f, err := b.store.JS.PublishAsync(b.parts(info.NUID), part[:n])
			if err != nil {
				return b.unwritten(ctx, err)
			}
			info.Size, info.Chunks, sent = info.Size+uint64(n), info.Chunks+1, append(sent, f)
		}
		for len(sent) > window || end && len(sent) > 0 {
			if err := stored(ctx, sent[0]); err != nil {
				return b.unwritten(ctx, err)
			}
			sent = sent[1:]
		}
	}
	info.Digest, info.Metadata[MD5] = jetstream.GetObjectDigestValue(sha), hex.EncodeToString(sum.Sum(nil))
	return nil
}

// fill reads until the part is full, or there is an error, which is io.EOF at the end alone: a body that was cut off is no shorter object.
func fill(body io.Reader, part []byte) (n int, err error) {
	for n < len(part) && err == nil {
		var more int
		more, err = body.Read(part[n:])
		n += more
	}
	return n, err
}

func stored(ctx context.Context, f jetstream.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// place stores what is said of an object under its name, in place of what is there, whose parts it removes then.
func (b *Objects) place(ctx context.Context, info *jetstream.ObjectInfo, check func(*jetstream.ObjectInfo) error) error {
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		now, revision, err := b.find(ctx, info.Name)
		if err != nil {
			return err
		}
		if check != nil {
			live := now
			if !IsObject(now) {
				live = nil
			}
			if err := check(live); err != nil {
				return err
			}
		}
		m := nats.NewMsg(b.meta(info.Name))
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		m.Data = text
		_, err = b.store.JS.PublishMsg(wait.EachRequest(ctx), m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
		var api *jetstream.APIError
		switch {
		case errors.As(err, &api) && api.ErrorCode == wrongSequence: // somebody was faster, or a lost answer was of this very object
			if now, _, found := b.find(ctx, info.Name); found != nil || now == nil || now.NUID != info.NUID {
				if !wait.Backoff(ctx, try) {
					return ctx.Err()
				}
				continue
			}
		case errors.As(err, &api):
			return b.unwritten(ctx, err)
		case err != nil:
			if now, _, found := b.find(ctx, info.Name); found != nil || now == nil || now.NUID != info.NUID {
				return errors.Join(errUnknown, b.unwritten(ctx, err))
			}
		}
		if now != nil {
			b.purge(ctx, now.NUID)
		}
		return nil
	}
}

// purge removes the parts of an object that is none any more. What it leaves is found by Tidy.
func (b *Objects) purge(ctx context.Context, id string) {
	if isID(id) {
		_ = b.st.Purge(wait.EachRequest(ctx), jetstream.WithPurgeSubject(b.parts(id)))
	}
}

// unwritten is why an object was not written.
func (b *Objects) unwritten(ctx context.Context, err error) error {
	var api *jetstream.APIError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &api) && api.ErrorCode == maxBytes:
		return fmt.Errorf("%w: its quota is %d bytes", ErrFull, b.Quota)
	}
	return providers.Errorf(providers.Unavailable, "cannot write to the bucket %s: %v", b.bucket, err)
}

// Tidy removes parts that no object has, and that are older than this: a server that was killed has left them, and they count as its objects do.
func (b *Objects) Tidy(ctx context.Context, older time.Duration) error {
	info, err := b.st.Info(wait.EachRequest(ctx), jetstream.WithSubjectFilter("$O."+b.bucket+".C.>"))
	if err != nil {
		return unread(ctx, b.bucket, err)
	}
	led(b.st)
	// After the parts were seen, so that each has its object by now, or is on its way. The leader is asked, one by one: what a replica does not have yet would be taken for lost.
	for next := uint64(1); ; {
		m, err := b.st.GetMsg(wait.EachRequest(ctx), next, jetstream.WithGetMsgSubject("$O."+b.bucket+".M.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		of := &jetstream.ObjectInfo{}
		if err == nil && json.Unmarshal(m.Data, of) == nil {
			delete(info.State.Subjects, b.parts(of.NUID))
		}
		if err != nil {
			return unread(ctx, b.bucket, err)
		}
		next = m.Sequence + 1
	}
	for subject := range info.State.Subjects {
		m, err := b.st.GetLastMsgForSubject(wait.EachRequest(ctx), subject)
		if err == nil && time.Since(m.Time) > older {
			err = b.st.Purge(wait.EachRequest(ctx), jetstream.WithPurgeSubject(subject))
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return unread(ctx, b.bucket, err)
		}
	}
	return nil
}
