package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rclone/gofakes3"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// backend are the buckets, each for who has its key.
type backend struct {
	stores  *storage.ObjectStores
	uploads uploads
}

var (
	_ gofakes3.Backend          = (*backend)(nil)
	_ gofakes3.MultipartBackend = (*backend)(nil)
)

// open opens the bucket of the request's key. Every other one is none.
func (b *backend) open(ctx context.Context, name string) (*storage.Objects, error) {
	of := from(ctx)
	if name == "" || name != of.name {
		return nil, gofakes3.BucketNotFound(name)
	}
	o, err := of.open(ctx, b.stores)
	if providers.IsNotFound(err) {
		return nil, gofakes3.BucketNotFound(name)
	}
	return o, told(err)
}

// told is an error as clients are told.
func told(err error) error {
	switch {
	case errors.Is(err, storage.ErrFull):
		return gofakes3.ErrorMessage(gofakes3.ErrEntityTooLarge, err.Error())
	case providers.IsInvalid(err):
		return gofakes3.ErrorMessage(gofakes3.ErrInvalidBucketState, err.Error())
	case providers.IsUnavailable(err):
		return gofakes3.ErrorMessage(gofakes3.ErrSlowDown, "the store does not answer")
	}
	return err
}

// ListBuckets gives the one bucket of the key.
func (b *backend) ListBuckets(ctx context.Context) ([]gofakes3.BucketInfo, error) {
	name := from(ctx).name
	o, err := b.open(ctx, name)
	if gofakes3.HasErrorCode(err, gofakes3.ErrNoSuchBucket) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []gofakes3.BucketInfo{{Name: name, CreationDate: gofakes3.NewContentTime(o.Created)}}, nil
}

// BucketExists says so of the one bucket of the key.
func (b *backend) BucketExists(ctx context.Context, name string) (bool, error) {
	_, err := b.open(ctx, name)
	if gofakes3.HasErrorCode(err, gofakes3.ErrNoSuchBucket) {
		return false, nil
	}
	return err == nil, err
}

// CreateBucket makes none.
func (b *backend) CreateBucket(ctx context.Context, name string) error {
	if _, err := b.open(ctx, name); err != nil {
		return gofakes3.ErrorMessage(gofakes3.ErrMethodNotAllowed, "buckets are made with the instances of tenants")
	}
	return gofakes3.ResourceError(gofakes3.ErrBucketAlreadyExists, name)
}

// DeleteBucket removes none.
func (b *backend) DeleteBucket(context.Context, string) error {
	return gofakes3.ErrorMessage(gofakes3.ErrMethodNotAllowed, "buckets are removed with the instances of tenants")
}

// ListBucket gives a page of the objects, in the order of their names.
func (b *backend) ListBucket(ctx context.Context, name string, prefix *gofakes3.Prefix, of gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	o, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	for {
		p := newPage(prefix, of)
		if err := o.Each(ctx, p.take); err != nil {
			return nil, told(err)
		}
		if list := p.list(); !list.IsTruncated || list.NextMarker != "" {
			return list, nil
		}
	}
}

// md5Of is the MD5 of an object that came through a gateway; of others, whose MD5 nobody has, it is the first half of their SHA-256.
func md5Of(i *jetstream.ObjectInfo) []byte {
	if sum, err := hex.DecodeString(i.Metadata[storage.MD5]); err == nil && len(sum) == 16 {
		return sum
	}
	sum, err := jetstream.DecodeObjectDigest(i.Digest)
	if err != nil || len(sum) < 16 {
		return make([]byte, 16)
	}
	return sum[:16]
}

func quoted(hash []byte) string { return `"` + hex.EncodeToString(hash) + `"` }

// find is an object that clients may know of.
func (b *backend) find(ctx context.Context, bucket, key string) (*storage.Objects, *jetstream.ObjectInfo, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(key, reserved) {
		return nil, nil, gofakes3.KeyNotFound(key)
	}
	i, err := o.Find(ctx, key)
	if providers.IsNotFound(err) {
		err = gofakes3.KeyNotFound(key)
	}
	return o, i, told(err)
}

func object(i *jetstream.ObjectInfo) *gofakes3.Object {
	meta := map[string]string{"Last-Modified": i.ModTime.UTC().Format(http.TimeFormat)}
	for k, v := range i.Metadata {
		if k != storage.MD5 && k != "Last-Modified" {
			meta[k] = v
		}
	}
	return &gofakes3.Object{Name: i.Name, Metadata: meta, Size: int64(i.Size), Hash: md5Of(i), Contents: http.NoBody} // #nosec G115 -- below the quota
}

// HeadObject gives what is said of an object.
func (b *backend) HeadObject(ctx context.Context, bucket, key string) (*gofakes3.Object, error) {
	_, i, err := b.find(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	return object(i), nil
}

// GetObject gives an object, or a range of it. What is before the range is read, too.
func (b *backend) GetObject(ctx context.Context, bucket, key string, of *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	o, i, err := b.find(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	all := object(i)
	if all.Range, err = of.Range(all.Size); err != nil {
		return nil, err
	}
	body, err := o.Open(ctx, i)
	if err != nil {
		return nil, told(err)
	}
	all.Contents = body
	if r := all.Range; r != nil {
		if _, err := io.CopyN(io.Discard, body, r.Start); err != nil {
			return nil, told(err)
		}
		all.Contents = io.NopCloser(io.LimitReader(body, r.Length))
	}
	return all, nil
}

// PutObject writes an object, of which nothing is seen until all of it is there.
func (b *backend) PutObject(ctx context.Context, bucket, key string, meta map[string]string, body io.Reader, size int64) (gofakes3.PutObjectResult, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return gofakes3.PutObjectResult{}, err
	}
	i, err := put(ctx, o, key, meta, body, size)
	if err != nil {
		return gofakes3.PutObjectResult{}, err
	}
	return gofakes3.PutObjectResult{ETag: quoted(md5Of(i))}, nil
}

// usable is why clients cannot write an object of this name, or nil.
func usable(key string) error {
	switch {
	case strings.HasPrefix(key, reserved):
		return gofakes3.ErrorMessage(gofakes3.ErrInvalidArgument, "names that begin with "+reserved+" are the server's own")
	case len(key) > storage.MaxName:
		return gofakes3.ResourceError(gofakes3.ErrKeyTooLong, key)
	case !storage.IsName(key):
		return gofakes3.ErrorMessage(gofakes3.ErrInvalidURI, "the name of an object is not UTF-8")
	}
	return nil
}

// put writes an object of a name that clients may use, under the conditions of the request.
func put(ctx context.Context, o *storage.Objects, key string, meta map[string]string, body io.Reader, size int64) (*jetstream.ObjectInfo, error) {
	if err := usable(key); err != nil {
		return nil, err
	}
	i, err := o.Put(ctx, key, meta, &exact{body, size}, func(now *jetstream.ObjectInfo) error {
		if now == nil {
			return gofakes3.CheckWriteConditions(ctx, false, "")
		}
		return gofakes3.CheckWriteConditions(ctx, true, hex.EncodeToString(md5Of(now)))
	})
	return i, told(err)
}

// exact fails where a body ends before its size; a negative one is not known.
type exact struct {
	io.Reader
	left int64
}

func (e *exact) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.left >= 0 {
		e.left = max(0, e.left-int64(n))
		if errors.Is(err, io.EOF) && e.left > 0 {
			err = gofakes3.ErrIncompleteBody
		}
	}
	return n, err
}

// DeleteObject removes an object. That there is none is fine.
func (b *backend) DeleteObject(ctx context.Context, bucket, key string) (gofakes3.ObjectDeleteResult, error) {
	o, err := b.open(ctx, bucket)
	if err == nil && !strings.HasPrefix(key, reserved) {
		err = told(o.Delete(ctx, key))
	}
	return gofakes3.ObjectDeleteResult{}, err
}

// DeleteMulti removes some.
func (b *backend) DeleteMulti(ctx context.Context, bucket string, keys ...string) (all gofakes3.MultiDeleteResult, err error) {
	for _, key := range keys {
		if _, err := b.DeleteObject(ctx, bucket, key); err != nil {
			no := gofakes3.ErrorResultFromError(err)
			no.Key = key
			all.Error = append(all.Error, no)
			continue
		}
		all.Deleted = append(all.Deleted, gofakes3.ObjectID{Key: key})
	}
	return all, nil
}

// CopyObject copies within the bucket.
func (b *backend) CopyObject(ctx context.Context, fromBucket, fromKey, toBucket, toKey string, meta map[string]string) (gofakes3.CopyObjectResult, error) {
	from, err := b.GetObject(ctx, fromBucket, fromKey, nil)
	if err != nil {
		return gofakes3.CopyObjectResult{}, err
	}
	o, err := b.open(ctx, toBucket)
	if err != nil {
		return gofakes3.CopyObjectResult{}, err
	}
	i, err := put(ctx, o, toKey, meta, from.Contents, from.Size)
	if err != nil {
		return gofakes3.CopyObjectResult{}, err
	}
	return gofakes3.CopyObjectResult{ETag: quoted(md5Of(i)), LastModified: gofakes3.NewContentTime(i.ModTime)}, nil
}
