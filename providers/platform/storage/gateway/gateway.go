package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/signature"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// Room has a place for a request to a bucket until leave is called, or says that there is none.
type Room func(bucket string) (leave func(), err error)

// Gateway answers requests of clients of S3.
type Gateway struct {
	keys    *Keys
	room    Room
	log     *slog.Logger
	backend *backend
	s3      *gofakes3.GoFakeS3
	next    http.Handler // of requests that have a key
}

// New makes a gateway to buckets. Their connection is the gateway's alone, as objects may be large: of each that is written, 4 MiB are on their way to the store.
func New(keys *Keys, room Room, log *slog.Logger) *Gateway {
	b := &backend{stores: keys.Stores, uploads: uploads{of: map[bucket]map[gofakes3.UploadID]upload{}}}
	g := &Gateway{keys: keys, room: room, log: log, backend: b}
	g.s3 = gofakes3.New(b, gofakes3.WithLogger(logger{log}), gofakes3.WithoutVersioning(), gofakes3.WithUploadOwner(func(ctx context.Context) string { return from(ctx).owner }))
	g.next = g.s3.Server()
	return g
}

// ServeHTTP answers a request that is signed with a key, and refuses each other one.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &client{ResponseWriter: w, control: http.NewResponseController(w)}
	defer c.end()
	if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Set("Connection", "close") // else the server reads the body before it answers, at the pace of nobody
	}
	defer panics.Recover(g.log, "storage")
	of, code, err := g.admit(r)
	switch {
	case err != nil:
		g.log.Warn("cannot read a key", "error", err)
		refuse(c, r, http.StatusServiceUnavailable, "ServiceUnavailable", "the key cannot be read now")
		return
	case code != signature.ErrNone:
		no := signature.GetAPIError(code)
		refuse(c, r, no.HTTPStatusCode, no.Code, no.Description)
		return
	}
	leave, err := g.room(of.name)
	if err != nil {
		refuse(c, r, http.StatusServiceUnavailable, "SlowDown", "too many requests at a time")
		return
	}
	defer leave()
	next := r.WithContext(with(r.Context(), of)) // the server looks at its own one for what was not read
	next.Body = &body{ReadCloser: r.Body, control: c.control}
	if why := unserved(next); why != "" {
		refuse(c, r, http.StatusNotImplemented, "NotImplemented", why)
		return
	}
	g.next.ServeHTTP(c, next)
}

// bucket is that of the key that a request is signed with.
type bucket struct{ name, owner, made string }

// open opens it. One that was made anew since, or is another owner's, is NotFound.
func (b bucket) open(ctx context.Context, stores *storage.ObjectStores) (*storage.Objects, error) {
	o, err := stores.Objects(ctx, b.name, b.owner)
	if err == nil && o.Made != b.made {
		err = providers.Errorf(providers.NotFound, "the bucket %s was made anew", b.name)
	}
	return o, err
}

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

// logger writes what went wrong in the gateway itself.
type logger struct{ log *slog.Logger }

func (l logger) Print(level gofakes3.LogLevel, v ...any) {
	if level == gofakes3.LogErr {
		l.log.Warn("a request for an object failed", "error", fmt.Sprint(v...))
	}
}
