package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/signature"

	"github.com/bcc94042/instar/providers/platform/storage"
)

// silence is for how long nothing may come of a request, or go of an answer.
const silence = 30 * time.Second

// Room has a place for a request to a bucket until leave is called, or says that there is none.
type Room func(bucket string) (leave func(), err error)

// Gateway answers requests of clients of S3.
type Gateway struct {
	keys   *Keys
	stores *storage.ObjectStores
	log    *slog.Logger
	s3     *gofakes3.GoFakeS3
	next   http.Handler // of requests that have a key
	room   Room
}

// New makes a gateway to buckets. Their connection is the gateway's alone, as objects may be large: of each that is written, 4 MiB are on their way to the store.
func New(keys *Keys, stores *storage.ObjectStores, room Room, log *slog.Logger) *Gateway {
	g := &Gateway{keys: keys, stores: stores, room: room, log: log}
	g.s3 = gofakes3.New(&backend{stores}, gofakes3.WithLogger(logger{log}), gofakes3.WithoutVersioning(),
		gofakes3.WithUploadOwner(func(ctx context.Context) string { return from(ctx).owner }))
	g.next = g.s3.Server()
	return g
}

// ServeHTTP answers a request that is signed with a key, and refuses each other one.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &client{w, http.NewResponseController(w)}
	defer c.due() // for what the server still has to write
	r.Body = body{r.Body, c}
	of, code, err := g.admit(r)
	switch {
	case err != nil:
		g.log.Warn("cannot read a key", "error", err)
		refuse(c, r, http.StatusServiceUnavailable, "ServiceUnavailable", "the key cannot be read now")
	case code != signature.ErrNone:
		no := signature.GetAPIError(code)
		refuse(c, r, no.HTTPStatusCode, no.Code, no.Description)
	default:
		leave, err := g.room(of.name)
		if err != nil {
			refuse(c, r, http.StatusServiceUnavailable, "SlowDown", "too many requests at a time")
			return
		}
		defer leave()
		g.next.ServeHTTP(c, r.WithContext(with(r.Context(), of)))
	}
}

// bucket is that of the key that a request is signed with.
type bucket struct{ name, owner string }

type bucketKey struct{}

func with(ctx context.Context, b bucket) context.Context {
	return context.WithValue(ctx, bucketKey{}, b)
}

func from(ctx context.Context) bucket {
	b, _ := ctx.Value(bucketKey{}).(bucket)
	return b
}

// admit is the bucket of the key that a request is signed with.
func (g *Gateway) admit(r *http.Request) (of bucket, code signature.ErrorCode, err error) {
	code = signature.V4SignVerifyWithLookup(r, func(id string) (string, bool) {
		var key Key
		of, key, err = g.keys.find(r.Context(), id)
		return key.Secret, err == nil && key.Secret != ""
	})
	return of, code, err
}

// refuse answers as S3 does.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Connection", "close") // of what is sent, nothing is read
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>\n", code, message)
	}
}

// client is who has sent a request. However long all of it takes, something has to come, or be taken, all the time.
type client struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// due sets the deadline of what is written. That a writer has none, as one of a test, is its own affair.
func (c *client) due() { _ = c.control.SetWriteDeadline(time.Now().Add(silence)) }

func (c *client) WriteHeader(status int) {
	c.due()
	c.ResponseWriter.WriteHeader(status)
}

func (c *client) Write(p []byte) (int, error) {
	c.due()
	return c.ResponseWriter.Write(p)
}

// body is that of a request.
type body struct {
	io.ReadCloser
	*client
}

func (b body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(silence))
	defer func() { _ = b.control.SetReadDeadline(time.Time{}) }() // afterwards the server itself reads, to see that the client has gone
	return b.ReadCloser.Read(p)
}

// logger writes what went wrong in the gateway itself.
type logger struct{ log *slog.Logger }

func (l logger) Print(level gofakes3.LogLevel, v ...any) {
	if level == gofakes3.LogErr {
		l.log.Warn("a request for an object failed", "error", fmt.Sprint(v...))
	}
}
