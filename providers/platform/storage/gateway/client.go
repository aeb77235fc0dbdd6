package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rclone/gofakes3"
)

// A client may be late by this, and has to send, and take, at this rate in the mean: who moves a byte now and then keeps no place.
const (
	late = 30 * time.Second
	rate = 16 << 10        // bytes a second
	rest = 5 * time.Second // for what nobody has read of a request that was answered
)

// pace is what a client has moved, and for how long it was waited for.
type pace struct {
	bytes  int64
	waited time.Duration
}

// due is when more has to come.
func (p *pace) due() time.Time {
	return time.Now().Add(min(late, late+time.Duration(p.bytes)*(time.Second/rate)-p.waited))
}

func (p *pace) moved(n int, since time.Time) {
	p.bytes, p.waited = p.bytes+int64(n), p.waited+time.Since(since)
}

// client is who has sent a request.
type client struct {
	http.ResponseWriter
	control *http.ResponseController
	pace    pace
}

// Unwrap is for http.ResponseController.
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// soon sets the deadline of what is written. That a writer has none, as one of a test, is its own affair.
func (c *client) soon() { _ = c.control.SetWriteDeadline(c.pace.due()) }

// end is for what the server does afterwards: it writes what is left, and reads some of what the handler has not, at the pace of nobody.
func (c *client) end() {
	c.soon()
	_ = c.control.SetReadDeadline(time.Now().Add(rest))
}

func (c *client) WriteHeader(status int) {
	c.soon()
	c.ResponseWriter.WriteHeader(status)
}

func (c *client) Write(p []byte) (int, error) {
	c.soon()
	began := time.Now()
	n, err := c.ResponseWriter.Write(p)
	c.pace.moved(n, began)
	return n, err
}

// body is that of a request.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	pace    pace
}

func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	_ = b.control.SetReadDeadline(b.pace.due())
	n, err := b.ReadCloser.Read(p)
	_ = b.control.SetReadDeadline(time.Time{}) // afterwards the server itself reads, to see that the client has gone
	b.pace.moved(n, began)
	return n, err
}

// Close reads some of what is left.
func (b *body) Close() error {
	_ = b.control.SetReadDeadline(time.Now().Add(rest))
	defer func() { _ = b.control.SetReadDeadline(time.Time{}) }()
	return b.ReadCloser.Close()
}

// The forms of a body in chunks, each with a signature, and the names that the library knows it by. That of a trailer is not compared with what came.
const (
	chunked        = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	chunkedTrailer = chunked + "-TRAILER"
	openTrailer    = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// mostXML has room for 10,000 parts, or 1,000 of the longest names. The library takes more, and counts what is in it when it has all of it.
const mostXML = 3 << 20

// document is a body of XML, which may have so many bytes.
type document struct {
	io.ReadCloser
	left int
}

func (d *document) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if d.left -= n; d.left < 0 {
		return 0, gofakes3.ErrMaxMessageLengthExceeded
	}
	return n, err
}

// unserved is why a request that is signed is not taken; empty if it is, and was made one that the library takes for what it is. That would store a body in chunks that it does not know as it comes, and spool a form to the disk
// of the server before it looks at the bucket.
func unserved(r *http.Request) string {
	r.Header.Del("X-Amz-Checksum-Algorithm") // says which one follows, and the library takes it for one
	if source := r.Header.Get("X-Amz-Copy-Source"); source != "" {
		r.Header.Set("X-Amz-Copy-Source", slashed(source))
	}
	switch form := r.Header.Get("X-Amz-Content-Sha256"); {
	case form == chunkedTrailer: // which is the same to who compares no signature of a chunk
		r.Header.Set("X-Amz-Content-Sha256", chunked)
	case strings.HasPrefix(form, "STREAMING-") && form != chunked && form != openTrailer:
		return "a body of the form " + form + " is not taken"
	case len(form) == hex.EncodedLen(sha256.Size):
		r.Body = &summed{ReadCloser: r.Body, sum: sha256.New(), want: strings.ToLower(form), left: r.ContentLength}
	}
	if r.Method != http.MethodPost {
		return ""
	}
	if q := r.URL.Query(); q.Get("uploadId") == "" && !q.Has("uploads") && !q.Has("delete") { // as the library finds its way
		return "forms are not taken"
	}
	r.Body = &document{r.Body, mostXML}
	return ""
}

// slashed is where an object is copied from with a slash behind the bucket, which encodeURIComponent encodes, too.
func slashed(source string) string {
	path, version, _ := strings.Cut(source, "?")
	decoded, err := url.QueryUnescape(path)
	if strings.Contains(strings.TrimPrefix(source, "/"), "/") || err != nil || version != "" {
		return source
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(decoded, "/"), "/")
	return bucket + "/" + url.QueryEscape(key)
}

// summed is a body whose digest was signed.
type summed struct {
	io.ReadCloser
	sum  hash.Hash
	want string
	left int64 // bytes that are still to come; negative where that is not known
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.sum.Write(p[:n]) // never fails
	s.left -= int64(n)
	if (errors.Is(err, io.EOF) || s.left == 0 && n > 0) && hex.EncodeToString(s.sum.Sum(nil)) != s.want { // who knows the length may not read on to the end
		err = gofakes3.ErrorMessage(gofakes3.ErrBadDigest, "the body is not that whose SHA-256 was signed")
	}
	return n, err
}
