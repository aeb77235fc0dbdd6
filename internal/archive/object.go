package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

// tries is how often the store is asked to go on with an object, without a byte that came.
const tries = 3

// download reads an object, and goes on where a connection to its store was lost.
type download struct {
	ctx  context.Context
	o    object
	from string
	etag string
	body io.ReadCloser // nil where none is open
	n    int64         // bytes that came
	size int64
	wait time.Duration // before the store is asked again
}

// open begins to read an object: a store that does not have it, or refuses, says so at once.
func (o object) open(ctx context.Context, from string) (*download, error) {
	d := &download{ctx: ctx, o: o, from: from, wait: time.Second}
	body, info, _, err := minio.Core{Client: o.client}.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", from, err)
	}
	d.body, d.etag, d.size = body, info.ETag, info.Size
	return d, nil
}

func (d *download) Read(b []byte) (int, error) {
	for failed := 0; ; {
		n, err := d.read(b)
		d.n += int64(n)
		switch {
		case n > 0 || err == nil:
			return n, nil
		case errors.Is(err, io.EOF) && d.n >= d.size:
			return 0, io.EOF
		}
		_ = d.Close() // of no use any more
		if failed++; failed > tries || d.ctx.Err() != nil || minio.ToErrorResponse(err).StatusCode/100 == 4 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("cannot read %s: the connection to the store ended at byte %d of %d: %w", d.from, d.n, d.size, err)
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(d.wait):
		}
	}
}

// read reads on from the connection that is open, or opens one at the byte that comes next, of the same object.
func (d *download) read(b []byte) (int, error) {
	if d.body == nil {
		var o minio.GetObjectOptions
		if err := errors.Join(o.SetRange(d.n, 0), o.SetMatchETag(d.etag)); err != nil {
			return 0, err
		}
		body, _, _, err := minio.Core{Client: d.o.client}.GetObject(d.ctx, d.o.bucket, d.o.key, o)
		if err != nil {
			return 0, err
		}
		d.body = body
	}
	return d.body.Read(b)
}

func (d *download) Close() error {
	if d.body == nil {
		return nil
	}
	err := d.body.Close()
	d.body = nil
	return err
}
