package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// Spec is a bucket that is wanted.
type Spec struct {
	Name  string // the same at each attempt: letters, digits, - and _
	Owner string // who may have it, and remove it
	Quota int64  // bytes, with what the store needs beside the objects; 0 is no limit
}

// Bucket is one that is there.
type Bucket struct {
	ID       string // unique among all providers
	Name     string // under which clients open it
	Prefix   string // of its objects, where others have others of the same bucket
	Endpoint string // where clients connect; empty where that is the server's own NATS
}

// Object is one of a bucket, or a link to one, of which nothing is read.
type Object struct {
	Name   string
	Bytes  uint64
	Digest string // SHA-256=…; empty where the store has none, which has compared what it has by itself
	Link   *Link
	Open   func() (io.ReadCloser, error)
}

// Link is what a name leads to, which may be another tenant's.
type Link struct{ Bucket, Object string }

// AnothersError says that Delete has left a bucket alone, as it has not the owner's mark. It is Invalid.
type AnothersError struct{ why *providers.Error }

func (e *AnothersError) Error() string { return e.why.Error() }
func (e *AnothersError) Unwrap() error { return e.why }

// left is what Delete says of a bucket that it leaves alone. how says how the mark is set.
func left(bucket, owner, has, how string) error {
	return &AnothersError{providers.Errorf(providers.Invalid, "the bucket %s is left alone, as its mark is not of %s: if it is that one's, %s, else remove it by hand. %s", bucket, owner, how, seen(has))}
}

// taken is what Ensure says of a bucket with another mark than the owner's.
func taken(bucket, owner, has string) error {
	return providers.Errorf(providers.Invalid, "the bucket %s is not of %s: remove it, or take another name. %s", bucket, owner, seen(has))
}

// seen says what a mark has, behind everything else: a tenant may have written it, at any length.
func seen(mark string) string {
	if mark == "" {
		return "It has no mark"
	}
	return fmt.Sprintf("Its mark is %q", mark[:min(len(mark), 100)])
}

// Provider has buckets; see the package's contract.
type Provider interface {
	// Quotas reports whether quotas are kept.
	Quotas() bool
	Ensure(ctx context.Context, s Spec) (Bucket, error)
	Delete(ctx context.Context, name, owner string) error
	// Read gives each object of a bucket that Ensure has made. It fails with NotFound where there is no such bucket.
	Read(ctx context.Context, b Bucket, each func(Object) error) error
}

// The marks of a bucket, in the metadata of its stream.
const (
	ownerMark = "instar-owner"
	quotaMark = "instar-quota"
	madeMark  = "instar-made" // another one with each bucket that is made, also of the same name
)

// ObjectStores has buckets as object stores of JetStream. Its fields are set before its first use.
type ObjectStores struct {
	JS       jetstream.JetStream
	Replicas int           // 0 is 1
	Prefix   string        // of the names of all buckets of an installation
	Patience time.Duration // for which nothing may come of a list of objects; 15 s when 0
}

var _ Provider = (*ObjectStores)(nil)

// Quotas are kept by the server.
func (o *ObjectStores) Quotas() bool { return true }

// Ensure makes the bucket, or brings its quota in line.
func (o *ObjectStores) Ensure(ctx context.Context, s Spec) (Bucket, error) {
	if s.Name == "" || s.Owner == "" || s.Quota < 0 {
		return Bucket{}, providers.Errorf(providers.Invalid, "a bucket needs a name, an owner and a quota that is not negative: %+v", s)
	}
	want := o.config(s)
	b := Bucket{ID: "jetstream/" + want.Bucket, Name: want.Bucket}
	for {
		have, err := o.stream(ctx, want.Bucket)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			want.Metadata[madeMark] = nuid.Next()
			_, err = o.JS.CreateObjectStore(wait.EachRequest(ctx), want)
		case err != nil:
		case have.Metadata[ownerMark] != s.Owner:
			return Bucket{}, taken(want.Bucket, s.Owner, have.Metadata[ownerMark])
		case have.Metadata[quotaMark] == want.Metadata[quotaMark] && have.Replicas == want.Replicas:
			return b, nil
		default:
			want.Metadata[madeMark] = have.Metadata[madeMark]
			_, err = o.JS.UpdateObjectStore(wait.EachRequest(ctx), want)
		}
		// Somebody was faster: what is there now decides.
		if errors.Is(err, jetstream.ErrBucketExists) || errors.Is(err, jetstream.ErrBucketNotFound) {
			continue
		}
		return b, failed("make", want.Bucket, err)
	}
}

// Delete removes the bucket if it is the owner's.
func (o *ObjectStores) Delete(ctx context.Context, name, owner string) error {
	name = o.Prefix + name
	have, err := o.stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return failed("remove", name, err)
	case have.Metadata[ownerMark] != owner:
		return left(name, owner, have.Metadata[ownerMark], "set "+ownerMark+" in the metadata of its stream again")
	}
	if err := o.JS.DeleteObjectStore(wait.EachRequest(ctx), name); !errors.Is(err, jetstream.ErrBucketNotFound) {
		return failed("remove", name, err)
	}
	return nil
}

// Read gives all objects, and links, and nothing of uploads that are not complete.
func (o *ObjectStores) Read(ctx context.Context, b Bucket, each func(Object) error) error {
	st, err := o.JS.Stream(wait.EachRequest(ctx), "OBJ_"+b.Name)
	var list []*jetstream.ObjectInfo
	if err == nil {
		led(st)
		list, err = o.list(ctx, st, b.Name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return providers.Errorf(providers.NotFound, "there is no bucket %s", b.Name)
	}
	if err != nil {
		return failed("read", b.Name, err)
	}
	for _, info := range list {
		if strings.HasPrefix(info.Name, Uploads) {
			continue
		}
		at := Object{Name: info.Name, Bytes: info.Size, Digest: info.Digest}
		if info.Opts != nil && info.Opts.Link != nil {
			at.Link = &Link{Bucket: info.Opts.Link.Bucket, Object: info.Opts.Link.Name}
		}
		at.Open = func() (io.ReadCloser, error) { return open(ctx, st, b.Name, info) }
		if err := each(at); err != nil {
			return err
		}
	}
	return nil
}

func (o *ObjectStores) config(s Spec) jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{
		Bucket: o.Prefix + s.Name, Description: "Objects of a tenant", MaxBytes: s.Quota, Replicas: max(o.Replicas, 1),
		Metadata: map[string]string{ownerMark: s.Owner, quotaMark: fmt.Sprint(s.Quota)},
	}
}

// stream is the configuration of the stream below a bucket: what a handle of the bucket knows of its metadata is as old as itself.
func (o *ObjectStores) stream(ctx context.Context, bucket string) (*jetstream.StreamConfig, error) {
	st, err := o.JS.Stream(wait.EachRequest(ctx), "OBJ_"+bucket)
	if err != nil {
		return nil, err
	}
	return &st.CachedInfo().Config, nil
}

// invalidConfig is the server's code for a stream that can never be as asked.
const invalidConfig = 10052

// failed gives an error of the server its code. That a name or a configuration is refused does not pass.
func failed(verb, bucket string, err error) error {
	var api *jetstream.APIError
	var known *providers.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, jetstream.ErrInvalidStoreName), errors.Is(err, jetstream.ErrInvalidStreamName):
		return providers.Errorf(providers.Invalid, "cannot %s the bucket %s: %v", verb, bucket, err)
	case errors.As(err, &api) && api.ErrorCode == invalidConfig:
		return providers.Errorf(providers.Invalid, "cannot %s the bucket %s: %v", verb, bucket, err)
	}
	return providers.Errorf(providers.Unavailable, "cannot %s the bucket %s: %v", verb, bucket, err)
}
