package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// request is one call of an operation.
type request struct {
	*Server
	rt    *route
	w     http.ResponseWriter
	r     *http.Request
	id    string // under which it is logged
	who   identity
	query url.Values
}

func unwrap(ctx huma.Context) (*http.Request, http.ResponseWriter) { return humago.Unwrap(ctx) }

func (q *request) ctx() context.Context { return q.r.Context() }

func (q *request) path(name string) string { return q.r.PathValue(name) }

// flag is a query parameter that is true when it is there without a value.
func (q *request) flag(name string) bool {
	v, ok := q.query[name]
	if !ok {
		return false
	}
	on, err := strconv.ParseBool(v[0])
	return v[0] == "" || err == nil && on
}

func (q *request) number(name string) uint64 {
	n, _ := strconv.ParseUint(q.query.Get(name), 10, 64) // checked before
	return n
}

// limit is the size of a page: a larger one is cut to the largest.
func (q *request) limit() int {
	if n := q.number("limit"); n > 0 {
		return int(min(n, maxPage))
	}
	return defaultPage
}

const (
	defaultPage = 100
	maxPage     = 500
)

// json answers with a value.
func (q *request) json(status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	h := q.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_, _ = q.w.Write(b.Bytes()) // the client may be gone
	}
	return nil
}

// text answers with something that is no JSON value of a type.
func (q *request) text(contentType string, body []byte) error {
	h := q.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method != http.MethodHead {
		_, _ = q.w.Write(body) // the client may be gone
	}
	return nil
}

// fail answers with a problem. What is none is logged under the request's id and told without its text.
func (q *request) fail(err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = q.classify(err)
	}
	p.write(q.w, q.r, q.id)
}

func (q *request) classify(err error) *Problem {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, context.Canceled) && q.ctx().Err() != nil:
		return unavailable("the request was given up") // nobody reads it
	case errors.Is(err, streams.ErrGated) && q.o.NC.IsConnected(): // whoever closed the gate has told why
		return gated()
	case errors.Is(err, streams.ErrUnanswered), errors.Is(err, streams.ErrClosed), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, streams.ErrUnreadable), errors.Is(err, streams.ErrLeaderless), errors.As(err, &api):
		q.o.Log.Warn("storage does not answer", "request", q.id, "operation", q.rt.op.OperationID, "error", err)
		if !q.o.NC.IsConnected() {
			return unavailable("this server has lost its connection to NATS; it tries again until that is back")
		}
		return unavailable("storage does not answer")
	}
	q.o.Log.Error("a request failed", "request", q.id, "operation", q.rt.op.OperationID, "error", err)
	return problem(codeInternal, "an unexpected error; it is logged under the requestId")
}

// Names of members are exact: what encoding/json forgives, huma would otherwise forgive, too.
func init() { huma.ValidateStrictCasing = true }

// validate checks a value against a schema. Values are left out of what it says.
func (s *Server) validate(schema *huma.Schema, location string, value any) []Detail {
	path := huma.NewPathBuffer(make([]byte, 0, 64), 0)
	path.Push(location)
	var res huma.ValidateResult
	huma.Validate(s.registry(), schema, path, huma.ModeWriteToServer, value, &res)
	var details []Detail
	for _, err := range res.Errors {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) || len(details) == 100 {
			continue
		}
		message := d.Message
		if rule, _, parsed := strings.Cut(message, ": "); parsed && strings.HasPrefix(rule, "expected string to be RFC") {
			message = rule // what follows is a parser's text with the value
		}
		details = append(details, Detail{clip(d.Location), message})
	}
	return details
}

// admit refuses a command that is as its schema says, and can never be done.
func (s *Server) admit(cmd streams.Command) *Problem {
	if s.o.Admit == nil {
		return nil
	}
	if err := s.o.Admit(cmd); err != nil {
		return invalid("body", err.Error())
	}
	return nil
}

// machineIn resolves the key of the entity that the path names.
func (q *request) key(m *machines.Machine) (namespace, key string, err error) {
	ns, p := q.who.in(q.query.Get("namespace"), false)
	if p != nil {
		return "", "", p
	}
	parent := ""
	if m.Parent != "" {
		parent = q.path(m.Parent)
	}
	return ns, machines.Key(ns, parent, q.path("id")), nil
}

// indexed says that the index of a machine was read since the start. A list that lacks what there is would be believed.
func (s *Server) indexed(machine string) error {
	select {
	case <-s.o.Indexes[machine].Ready():
		return nil
	default:
		return unavailable("what there is of " + machine + " is still being read")
	}
}

// waitIndex waits until the index of a machine has what minRevision asks for.
func (q *request) waitIndex(m *machines.Machine) error {
	rev, ix := q.number("minRevision"), q.o.Indexes[m.Name]
	if rev <= ix.Revision() {
		return nil
	}
	return q.holding(func(ctx context.Context) error {
		if err := q.written(ctx, m, rev); err != nil {
			return err
		}
		if ix.Wait(ctx, rev) != nil {
			return late("the index has not reached minRevision yet")
		}
		return nil
	})
}

// holding takes a place among those that wait, and lets f wait for what minRevision asks for.
func (q *request) holding(f func(context.Context) error) error {
	leave, err := q.mayWait()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(q.ctx(), minRevisionWait)
	defer cancel()
	defer context.AfterFunc(q.closing, cancel)()
	err = f(ctx)
	if q.ctx().Err() != nil {
		return q.ctx().Err()
	}
	return err
}

// written refuses a revision that was never written: it would be waited for in vain.
func (q *request) written(ctx context.Context, m *machines.Machine, rev uint64) error {
	if rev <= q.o.Indexes[m.Name].Lag().Known {
		return nil
	}
	st, err := streams.Led(ctx, q.o.JS, "KV_"+q.o.Names.Bucket(m.Plural))
	if err == nil && rev > st.CachedInfo().State.LastSeq {
		return invalid("query.minRevision", "was never written")
	}
	return err
}

// late is for what did not happen within minRevisionWait.
func late(what string) *Problem { return problem(codeTimeout, what).with("Retry-After", "1") }

// minRevisionWait is how long a read waits for a revision.
const minRevisionWait = 5 * time.Second
