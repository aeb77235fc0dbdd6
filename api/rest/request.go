package rest

// Request, with which a handler works. route.go makes one per call, with the caller and the checked query; the handler reads
// from it (PathValue, Values, Number, Key, PageSize), waits (Hold), and answers (JSON, Text) or returns an error. fail writes that as
// a problem: any error that is not one becomes 503 if storage does not answer, else 500, and its text goes to the log only.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Request is one call of an operation.
type Request struct {
	server *Server
	Rt     *Route
	W      http.ResponseWriter
	R      *http.Request
	Id     string // under which it is logged
	Who    auth.Identity
	Query  url.Values

	page string // of the entity that it is about
}

// Router is the one on which the request began.
func (q *Request) Router() *Router { return q.Rt.router }

// Replaced ends when another router is served, as after a machine was added.
func (q *Request) Replaced() context.Context { return q.Rt.router.replaced }

// Context ends when the client has gone or the answer is complete.
func (q *Request) Context() context.Context { return q.R.Context() }

// PathValue is a parameter of the path; names were checked before.
func (q *Request) PathValue(name string) string { return q.R.PathValue(name) }

// Values is a parameter of the query that is a list: repeated, or with commas.
func (q *Request) Values(name string) []string {
	var list []string
	for _, v := range q.Query[name] {
		for _, one := range strings.Split(v, ",") {
			if one = strings.TrimSpace(one); one != "" && !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
	}
	return list
}

// Flag is a query parameter that is true when it is there without a value.
func (q *Request) Flag(name string) bool {
	v, ok := q.Query[name]
	if !ok {
		return false
	}
	on, err := strconv.ParseBool(v[0])
	return v[0] == "" || err == nil && on
}

// Number is a query parameter that is a whole number, or 0.
func (q *Request) Number(name string) uint64 {
	n, _ := strconv.ParseUint(q.Query.Get(name), 10, 64) // checked before
	return n
}

// PageSize is the size of a page: a larger one is cut to the largest.
func (q *Request) PageSize() int {
	if n := q.Number("limit"); n > 0 {
		return int(min(n, MaxPage))
	}
	return DefaultPage
}

const (
	DefaultPage = 100
	MaxPage     = 500
)

// jsonType is shared by all answers.
var jsonType = []string{"application/json"}

// Appended answers with JSON that is written already, without the line feed that ends it.
func (q *Request) Appended(status int, text []byte) error {
	return q.body(status, jsonType[0], append(text, '\n'))
}

// JSON answers with a value.
func (q *Request) JSON(status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return q.body(status, jsonType[0], b.Bytes())
}

// Text answers with a body that is encoded already.
func (q *Request) Text(contentType string, body []byte) error {
	return q.body(http.StatusOK, contentType, body)
}

func (q *Request) body(status int, contentType string, body []byte) error {
	h := q.W.Header()
	if contentType == jsonType[0] {
		h["Content-Type"] = jsonType[:1:1]
	} else {
		h["Content-Type"] = []string{contentType}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	q.W.WriteHeader(status)
	if q.R.Method != http.MethodHead {
		_, _ = q.W.Write(body) // the client may be gone
	}
	return nil
}

// fail answers with a problem. Any other error is logged under the request's id, and answered without its text.
func (q *Request) fail(err error) {
	var p *problem.Problem
	if !errors.As(err, &p) {
		p = q.classify(err)
	}
	if q.page != "" && p.Page == "" && explains(p) {
		of := *p
		of.Page, p = q.page, &of
	}
	p.Write(q.W, q.R, q.Id)
}

// explains reports whether one who looks at the entity finds out why the problem is.
func explains(p *problem.Problem) bool {
	switch p.Status {
	case http.StatusConflict:
		switch p.Code {
		case problem.CodeQuota: // there is no entity
			return false
		case machines.CodeExists, machines.CodeGuard: // or another one is there
			return p.CurrentState != machines.None
		}
		return true
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return true
	}
	return p.Code == machines.CodeDead
}

func (q *Request) classify(err error) *problem.Problem {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, context.Canceled) && q.Context().Err() != nil:
		return problem.Unavailable("the request was given up") // nobody reads it
	case errors.Is(err, publish.ErrGated) && q.server.o.NC.IsConnected(): // whoever closed the gate has logged why
		return problem.Gated()
	case errors.Is(err, publish.ErrUnanswered), errors.Is(err, publish.ErrClosed), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, streams.ErrUnreadable), errors.Is(err, streams.ErrLeaderless), errors.As(err, &api):
		q.server.o.Log.Warn("storage does not answer", "request", q.Id, "operation", q.Rt.Op.OperationID, "error", err)
		if !q.server.o.NC.IsConnected() {
			return problem.Unavailable("this server has lost its connection to NATS; it tries again until that is back")
		}
		return problem.Unavailable("storage does not answer")
	}
	q.server.o.Log.Error("a request failed", "request", q.Id, "operation", q.Rt.Op.OperationID, "error", err)
	return problem.New(problem.CodeInternal, "an unexpected error; it is logged under the requestId")
}

// Key is the entity that the path names, of the namespace that the request means. The answer gets a link to its page (RFC 8288).
func (q *Request) Key(m *machines.Machine) (namespace, key string, err error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return "", "", p
	}
	parent := ""
	if m.Parent != "" {
		parent = q.PathValue(m.Parent)
	}
	key = machines.Key(ns, parent, q.PathValue("id"))
	if q.server.o.Page != nil {
		q.page = q.server.o.Page(m.Name, key)
		q.W.Header()["Link"] = []string{"<" + q.page + `>; rel="alternate"; type="text/html"`}
	}
	return ns, key, nil
}

// Hold takes a place among those that wait, and lets f wait for what minRevision asks for.
func (q *Request) Hold(f func(context.Context) error) error {
	leave, err := q.TakeWait()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(q.Context(), MinRevisionWait)
	defer cancel()
	defer context.AfterFunc(q.server.Closing(), cancel)()
	err = f(ctx)
	if q.Context().Err() != nil {
		return q.Context().Err()
	}
	return err
}

// Late is for what did not happen within [MinRevisionWait].
func Late(what string) *problem.Problem {
	return problem.New(problem.CodeTimeout, what).With("Retry-After", "1")
}

// MinRevisionWait is how long a read waits for a revision.
const MinRevisionWait = 5 * time.Second
