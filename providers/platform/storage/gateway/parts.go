package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rclone/gofakes3"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// reserved begins the names of objects that clients neither see nor use.
const reserved = ".instar-"

// mostUploads are how many uploads of a bucket may be under way: the library keeps a place for each part of each.
const mostUploads = 100

// uploads are those that are under way, of which the library has to be told when they are no more.
type uploads struct {
	mu sync.Mutex
	of map[bucket]map[gofakes3.UploadID]upload
}

type upload struct {
	key   string
	began time.Time
}

func (u *uploads) begin(of bucket, id gofakes3.UploadID, key string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[of] == nil {
		u.of[of] = map[gofakes3.UploadID]upload{}
	}
	if len(u.of[of]) >= mostUploads {
		return gofakes3.ErrorMessagef(gofakes3.ErrSlowDown, "%d uploads are under way: complete or abort some", mostUploads)
	}
	u.of[of][id] = upload{key, time.Now()}
	return nil
}

func (u *uploads) end(of bucket, id gofakes3.UploadID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if delete(u.of[of], id); len(u.of[of]) == 0 {
		delete(u.of, of)
	}
}

// forget ends those that began too long ago, and those of a bucket that has gone, in the library, too.
func (u *uploads) forget(gone func(bucket) bool, library func(of bucket, key string, id gofakes3.UploadID)) {
	u.mu.Lock()
	all := maps.Clone(u.of)
	for of, some := range all {
		all[of] = maps.Clone(some)
	}
	u.mu.Unlock()
	for of, some := range all {
		gone := gone(of)
		for id, is := range some {
			if gone || time.Since(is.began) > Unfinished {
				u.end(of, id)
				library(of, is.key, id)
			}
		}
	}
}

// Unfinished is how long an upload may take, and what a server that was killed has left may stay.
const Unfinished = 24 * time.Hour

// partOf is the name of a part of an upload that is not complete. Number 0 has no content.
func partOf(id gofakes3.UploadID, number int) string {
	return fmt.Sprintf("%s%s/%05d", storage.Uploads, id, number)
}

// CreateMultipartUpload begins an upload.
func (b *backend) CreateMultipartUpload(ctx context.Context, bucket, key string, meta map[string]string) (gofakes3.UploadID, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return "", err
	}
	if err := usable(key); err != nil {
		return "", err
	}
	id := gofakes3.UploadID(nuid.Next())
	if err := b.uploads.begin(from(ctx), id, key); err != nil {
		return "", err
	}
	if _, err = o.Put(ctx, partOf(id, 0), meta, strings.NewReader(""), nil); err != nil {
		b.uploads.end(from(ctx), id)
	}
	return id, told(err)
}

// UploadPart stores a part. Parts count as objects do, until the upload is complete or aborted.
func (b *backend) UploadPart(ctx context.Context, bucket, _ string, id gofakes3.UploadID, number int, size int64, body io.Reader) (string, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return "", err
	}
	i, err := o.Put(ctx, partOf(id, number), nil, &exact{body, size}, nil)
	if err != nil {
		return "", told(err)
	}
	return quoted(md5Of(i)), nil
}

// CompleteMultipartUpload makes an object of parts, and removes them.
func (b *backend) CompleteMultipartUpload(ctx context.Context, bucket, key string, id gofakes3.UploadID, in *gofakes3.CompleteMultipartUploadRequest) (gofakes3.VersionID, string, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return "", "", err
	}
	if len(in.Parts) == 0 {
		return "", "", gofakes3.ErrMalformedXML
	}
	begun, err := o.Find(ctx, partOf(id, 0))
	if providers.IsNotFound(err) {
		return "", "", gofakes3.ErrNoSuchUpload
	}
	if err != nil {
		return "", "", told(err)
	}
	all, size, last := &concatenated{ctx: ctx, of: o}, int64(0), 0
	for _, p := range in.Parts {
		if p.PartNumber <= last {
			return "", "", gofakes3.ErrInvalidPartOrder
		}
		last = p.PartNumber
		i, err := o.Find(ctx, partOf(id, p.PartNumber))
		if providers.IsNotFound(err) || err == nil && strings.Trim(p.ETag, `"`) != strings.Trim(quoted(md5Of(i)), `"`) {
			return "", "", gofakes3.ErrorMessage(gofakes3.ErrInvalidPart, fmt.Sprintf("there is no part %d with this ETag", p.PartNumber))
		}
		if err != nil {
			return "", "", told(err)
		}
		all.left, size = append(all.left, i), size+int64(i.Size) // #nosec G115 -- below the quota
	}
	meta := maps.Clone(begun.Metadata)
	delete(meta, storage.MD5)
	i, err := put(ctx, o, key, meta, all, size)
	if err != nil {
		return "", "", err
	}
	b.uploads.end(from(ctx), id)
	_ = removed(ctx, o, id) // the object is there; what stays of its parts is removed by Tidy
	return "", quoted(md5Of(i)), nil
}

// AbortMultipartUpload removes the parts of an upload.
func (b *backend) AbortMultipartUpload(ctx context.Context, bucket, _ string, id gofakes3.UploadID) error {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return err
	}
	if err := removed(ctx, o, id); err != nil {
		return told(err)
	}
	b.uploads.end(from(ctx), id)
	return nil
}

// removed removes the parts of an upload.
func removed(ctx context.Context, o *storage.Objects, id gofakes3.UploadID) error {
	return remove(ctx, o, func(i *jetstream.ObjectInfo) bool { return strings.HasPrefix(i.Name, storage.Uploads+string(id)+"/") })
}

// remove removes what is to go of the objects of uploads.
func remove(ctx context.Context, o *storage.Objects, goes func(*jetstream.ObjectInfo) bool) error {
	var names []string
	err := o.Each(ctx, func(i *jetstream.ObjectInfo) {
		if strings.HasPrefix(i.Name, storage.Uploads) && goes(i) {
			names = append(names, i.Name)
		}
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, o.Delete(ctx, name))
	}
	return errors.Join(errs...)
}

// Tidy removes uploads that were given up, and what is left of objects that were never whole, in the buckets of all keys.
func (g *Gateway) Tidy(ctx context.Context) error {
	var errs []error
	there := map[bucket]bool{}
	for e, err := range g.keys.Rows.List(ctx, ">") {
		if err != nil {
			return err
		}
		if e.Key == "" || e.Deleted {
			continue
		}
		of := bucket{e.Key, e.Value.Owner, e.Value.Made}
		o, err := of.open(ctx, g.backend.stores)
		if providers.IsNotFound(err) {
			continue
		}
		there[of] = true
		if err == nil {
			old := func(i *jetstream.ObjectInfo) bool { return time.Since(i.ModTime) > Unfinished }
			err = errors.Join(remove(ctx, o, old), o.Tidy(ctx, Unfinished))
		}
		errs = append(errs, err)
	}
	g.backend.uploads.forget(func(of bucket) bool { return !there[of] }, func(of bucket, key string, id gofakes3.UploadID) {
		_ = g.s3.ForgetMultipartUpload(with(ctx, of), of.name, key, id) // which may have ended meanwhile
	})
	return errors.Join(errs...)
}

// concatenated reads objects one after the other.
type concatenated struct {
	ctx  context.Context
	of   *storage.Objects
	left []*jetstream.ObjectInfo
	now  io.Reader
}

func (c *concatenated) Read(p []byte) (int, error) {
	for {
		if c.now == nil {
			if len(c.left) == 0 {
				return 0, io.EOF
			}
			now, err := c.of.Open(c.ctx, c.left[0])
			if err != nil {
				return 0, err
			}
			c.now, c.left = now, c.left[1:]
		}
		n, err := c.now.Read(p)
		if errors.Is(err, io.EOF) {
			c.now, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
