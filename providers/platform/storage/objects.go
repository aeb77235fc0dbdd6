package storage

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// MaxName bounds the name of an object that is asked for, in bytes: it is part of a subject, in base64, and a client that sends a longer line than 4 KiB loses its connection.
const MaxName = 1024

// IsName reports whether an object can have this name: text of 1 to [MaxName] bytes.
func IsName(name string) bool {
	return name != "" && len(name) <= MaxName && utf8.ValidString(name)
}

// Objects are those of one bucket of JetStream, as [ObjectStores.Objects] opens it, for who reads and writes single ones. They are object stores for other clients, too.
type Objects struct {
	Created time.Time // the bucket
	Made    string    // another one for each bucket, also of the same name and owner; empty for one of an earlier version
	Quota   int64     // of the bucket, in bytes; 0 is no limit

	store  *ObjectStores
	bucket string
	st     jetstream.Stream
}

// Objects opens the bucket of an owner. Where there is none, or it is another's, that is NotFound.
func (o *ObjectStores) Objects(ctx context.Context, bucket, owner string) (*Objects, error) {
	st, err := o.JS.Stream(wait.EachRequest(ctx), "OBJ_"+bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && st.CachedInfo().Config.Metadata[ownerMark] != owner {
		return nil, providers.Errorf(providers.NotFound, "there is no bucket %s of %s", bucket, owner)
	}
	if err != nil {
		return nil, unread(ctx, bucket, err)
	}
	info := st.CachedInfo()
	led(st)
	return &Objects{Created: info.Created, Made: info.Config.Metadata[madeMark], Quota: max(info.Config.MaxBytes, 0), store: o, bucket: bucket, st: st}, nil
}

// led has messages of a stream read from its leader: the stream of an object store allows direct reads, and a replica may not have yet what was stored, or still what was removed. It holds until the
// next [jetstream.Stream.Info].
func led(st jetstream.Stream) { st.CachedInfo().Config.AllowDirect = false }

// Each gives what is said of each name, as it is read. A name that is written meanwhile may come again, also as one that was deleted: the last word holds.
func (b *Objects) Each(ctx context.Context, each func(*jetstream.ObjectInfo)) error {
	if err := b.store.scan(ctx, b.st, b.bucket, each); err != nil {
		return unread(ctx, b.bucket, err)
	}
	return nil
}

// IsObject reports whether there is something to read under a name: it was not deleted, and is no link, which may lead to another tenant's.
func IsObject(info *jetstream.ObjectInfo) bool {
	return info != nil && !info.Deleted && (info.Opts == nil || info.Opts.Link == nil)
}

// Open reads an object as it was found. What it gives fails where the object is replaced meanwhile.
func (b *Objects) Open(ctx context.Context, info *jetstream.ObjectInfo) (io.ReadCloser, error) {
	return open(ctx, b.st, b.bucket, info)
}

// Find is an object, or NotFound.
func (b *Objects) Find(ctx context.Context, name string) (*jetstream.ObjectInfo, error) {
	info, _, err := b.find(ctx, name)
	if err == nil && !IsObject(info) {
		err = providers.Errorf(providers.NotFound, "there is no object %.100q in the bucket %s", name, b.bucket)
	}
	return info, err
}

// find is what is stored of a name with its revision; nil and 0 where there is nothing.
func (b *Objects) find(ctx context.Context, name string) (*jetstream.ObjectInfo, uint64, error) {
	if !IsName(name) {
		return nil, 0, nil
	}
	m, err := b.st.GetLastMsgForSubject(wait.EachRequest(ctx), b.meta(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, unread(ctx, b.bucket, err)
	}
	info := &jetstream.ObjectInfo{}
	if err := json.Unmarshal(m.Data, info); err != nil {
		return nil, 0, providers.Errorf(providers.Invalid, "what the bucket %s has of %.100q is not that of an object store", b.bucket, name)
	}
	info.Name, info.ModTime = name, m.Time
	return info, m.Sequence, nil
}

func (b *Objects) meta(name string) string {
	return "$O." + b.bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (b *Objects) parts(id string) string { return "$O." + b.bucket + ".C." + id }
