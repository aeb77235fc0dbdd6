package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/rclone/gofakes3"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// reserved begins the names of objects that clients neither see nor use.
const reserved = ".instar-"

// named is where the first object of an upload has the name of what it is to become, beside the metadata of that.
const named = "instar-object"

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
	id, meta := gofakes3.UploadID(nuid.Next()), maps.Clone(meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[named] = key
	_, err = o.Put(ctx, partOf(id, 0), meta, strings.NewReader(""), nil)
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
	return quoted(hash(i)), nil
}

// CompleteMultipartUpload makes an object of parts, and removes them.
func (b *backend) CompleteMultipartUpload(ctx context.Context, bucket, key string, id gofakes3.UploadID, in *gofakes3.CompleteMultipartUploadRequest) (gofakes3.VersionID, string, error) {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return "", "", err
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
		if providers.IsNotFound(err) || err == nil && strings.Trim(p.ETag, `"`) != strings.Trim(quoted(hash(i)), `"`) {
			return "", "", gofakes3.ErrorMessage(gofakes3.ErrInvalidPart, fmt.Sprintf("there is no part %d with this ETag", p.PartNumber))
		}
		if err != nil {
			return "", "", told(err)
		}
		all.left, size = append(all.left, i), size+int64(i.Size) // #nosec G115 -- below the quota
	}
	meta := maps.Clone(begun.Metadata)
	delete(meta, storage.MD5)
	delete(meta, named)
	i, err := put(ctx, o, key, meta, all, size)
	if err != nil {
		return "", "", err
	}
	_ = b.removed(ctx, o, id) // the object is there; what stays of its parts is removed by Tidy
	return "", quoted(hash(i)), nil
}

// AbortMultipartUpload removes the parts of an upload.
func (b *backend) AbortMultipartUpload(ctx context.Context, bucket, _ string, id gofakes3.UploadID) error {
	o, err := b.open(ctx, bucket)
	if err != nil {
		return err
	}
	return b.removed(ctx, o, id)
}

// removed removes the parts of an upload.
func (b *backend) removed(ctx context.Context, o *storage.Objects, id gofakes3.UploadID) error {
	all, err := o.List(ctx)
	if err != nil {
		return told(err)
	}
	var errs []error
	for _, i := range all {
		if strings.HasPrefix(i.Name, storage.Uploads+string(id)+"/") {
			errs = append(errs, o.Delete(ctx, i.Name))
		}
	}
	return told(errors.Join(errs...))
}

// Tidy removes uploads that were given up, and what is left of objects that were never whole, in the buckets of all keys.
func (g *Gateway) Tidy(ctx context.Context) error {
	var errs []error
	for e, err := range g.keys.Rows.List(ctx, ">") {
		if err != nil {
			return err
		}
		if e.Key != "" && !e.Deleted {
			errs = append(errs, g.tidy(ctx, bucket{e.Key, e.Value.Owner}))
		}
	}
	return errors.Join(errs...)
}

func (g *Gateway) tidy(ctx context.Context, of bucket) error {
	ctx = with(ctx, of)
	o, err := g.stores.Objects(ctx, of.name, of.owner)
	if providers.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := o.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		if !strings.HasPrefix(i.Name, storage.Uploads) || time.Since(i.ModTime) < Unfinished {
			continue
		}
		if err := o.Delete(ctx, i.Name); err != nil {
			return err
		}
		if key := i.Metadata[named]; key != "" {
			id, _, _ := strings.Cut(strings.TrimPrefix(i.Name, storage.Uploads), "/")
			_ = g.s3.ForgetMultipartUpload(ctx, of.name, key, gofakes3.UploadID(id)) // which another server may know of
		}
	}
	return o.Tidy(ctx, Unfinished)
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
