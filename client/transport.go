package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/client/internal/retry"
)

// suffix is of the host names that a Transport resolves.
const suffix = ".instar"

const (
	maxTries   = 4                // instances that one request is sent to
	firstList  = 10 * time.Second // that a request waits for when nothing is known of its service yet
	tryTimeout = 15 * time.Second // by default
)

// Transport is an [http.RoundTripper] for URLs such as http://web.instar/path (namespace of the client),
// http://web.shop.instar/path (namespace shop) and instar://web/path. Others go to Base as they are.
//
// A request goes to another instance, up to four in all, when the connection is refused or breaks before the request was
// written; and when it breaks later or the answer does not come in time, if the method is idempotent or the request has
// an Idempotency-Key. So a request that may have been processed is never repeated unless that does no harm. What was
// written is known from net/http/httptrace, to which an *http.Transport and what passes a request on to one report; with
// another Base each request may have been processed. A body that has been read is repeated with GetBody, and not without
// it. An answer is an answer, whatever its status.
//
// What may have been processed is repeated after a random pause (25 ms, doubled up to 250 ms), and for at most a fifth of
// the requests of a service (with 10 at once, and one a second, for those who send few): servers that cannot cope get
// little more than they got before.
//
// A service is followed from the first request on, until five minutes have passed without one; at most 1,000 are.
//
// The Host of the request stays as it was in the URL. With https the certificate must be for the address of the instance
// unless Base says otherwise.
type Transport struct {
	Base    http.RoundTripper // an *http.Transport is copied for each instance, so that connections end with what they lead to
	Options Options           // of the resolvers

	// TryTimeout is how long one instance has for the head of its answer to a request that may be repeated, or for taking
	// the next part of its body; 15 s by default, below 0 (for long polls) it has no end. Within a deadline of the request it is at most half of what is left as long as there
	// is another instance and a retry to take. What cannot be repeated waits for as long as its caller.
	TryTimeout time.Duration

	services following
}

// Transport makes a Transport. A nil base connects within 2 s, and shares its connections with nobody.
func (c *Client) Transport(base http.RoundTripper) *Transport {
	if base == nil {
		base = transport()
	}
	return &Transport{Base: base, services: following{client: c, idle: idleAfter, most: maxServices, known: map[string]*followed{}}}
}

// Resolver is the one that the transport uses for a service: <service> or <service>.<namespace>. It belongs to the
// transport, which follows the service from now on until it is closed.
func (t *Transport) Resolver(ctx context.Context, name string) (*Resolver, error) {
	r, done, err := t.services.use(ctx, name, t.Options, true)
	if err != nil {
		return nil, err
	}
	defer done()
	return r, r.first(ctx)
}

// Close ends the resolvers. Requests under way go on.
func (t *Transport) Close() {
	t.services.close()
	t.CloseIdleConnections()
}

// CloseIdleConnections closes those of Base, and those to instances.
func (t *Transport) CloseIdleConnections() {
	t.services.hangUp()
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper]. Where a service has no instance its error is [ErrNoEndpoints]; a list that is not there yet
// is waited for up to 10 s.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	name, ok := serviceOf(req)
	if !ok {
		return t.Base.RoundTrip(req)
	}
	b := &body{req: req, first: req.Body}
	r, done, err := t.services.use(req.Context(), name, t.Options, false)
	if err != nil {
		b.close()
		return nil, err
	}
	defer done()
	first, cancel := context.WithTimeout(req.Context(), firstList)
	err = r.first(first)
	cancel()
	if err != nil {
		b.close()
		return nil, err
	}
	r.retries.Request()
	var tried []string
	for again := 0; ; {
		choice, err := r.Pick(tried...)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tried = append(tried, choice.InstanceID)
		more := len(tried) < maxTries && r.hasOther(tried)
		begun := time.Now()
		resp, untouched, err := t.try(req, choice, b, t.patience(req, more && r.retries.Left()))
		if err == nil {
			b.commit()
			resp.Request = req
			return resp, nil
		}
		choice.Done(outcome(req, err, time.Since(begun)))
		if more && req.Context().Err() == nil && b.rewind() {
			if untouched {
				continue
			}
			if idempotent(req) && r.retries.Take() && wait(req.Context(), retry.Pause(again)) {
				again++
				continue
			}
		}
		b.close()
		return nil, fmt.Errorf("%s at %s: %w", name, choice.NodeAddress, err)
	}
}

// sending is what a Base tells of one try.
type sending struct {
	to    string      // the address that is to be asked for a connection; empty: any, for it may be a proxy's
	asked atomic.Bool // for one to it: so what is sent is told, too
	wrote atomic.Bool // the whole head; half of one cannot be processed
}

func (s *sending) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(address string) {
			if s.to == "" || s.to == address {
				s.asked.Store(true)
			}
		},
		WroteHeaders: func() { s.wrote.Store(true) },
	}
}

// nothing says that nothing was sent. Of a Base that tells nothing this is not known.
func (s *sending) nothing() bool { return s.asked.Load() && !s.wrote.Load() }

// try sends the request to one instance. untouched says that it cannot have processed anything.
func (t *Transport) try(req *http.Request, choice *Choice, b *body, patience time.Duration) (resp *http.Response, untouched bool, err error) {
	sent := sending{to: choice.NodeAddress}
	base := t.Base
	if own, ok := base.(*http.Transport); ok {
		base, sent.to = choice.via(own), ""
	}
	ctx, cancel := context.WithCancelCause(httptrace.WithClientTrace(req.Context(), sent.trace()))
	out := req.Clone(ctx)
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	if out.URL.Scheme == "instar" {
		out.URL.Scheme = "http"
	}
	out.URL.Host = choice.NodeAddress
	late := retry.NewLimit(patience, func() { cancel(errSlow) })
	out.Body = late.Watch(b.reader())
	if again := req.GetBody; again != nil { // the transport repeats what met a connection that was closed
		out.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			return late.Watch(body), err
		}
	}
	late.Begin()
	resp, err = base.RoundTrip(out)
	if late.Over() && err == nil { // it came when it had been given up
		_ = resp.Body.Close() // nobody wants it
		err = errSlow
	}
	if err != nil {
		if context.Cause(ctx) == errSlow {
			err = errSlow
		}
		cancel(nil)
		return nil, sent.nothing(), err
	}
	resp.Body = counted(resp.Body, func(err error) {
		cancel(nil)
		choice.Done(ending(req, resp, err))
	})
	return resp, false, nil
}

// serviceOf reads the name of the service from the URL.
func serviceOf(req *http.Request) (string, bool) {
	host := strings.ToLower(req.URL.Hostname())
	if req.URL.Scheme == "instar" {
		return strings.TrimSuffix(host, suffix), host != ""
	}
	name, ok := strings.CutSuffix(host, suffix)
	return name, ok && name != ""
}

// leastPatience is how long an instance must have had before a deadline that passes is its fault: what had hardly any time
// left when it was sent says nothing about it.
const leastPatience = 10 * time.Millisecond

// outcome is what an error says about the instance, after it had so long.
func outcome(req *http.Request, err error, had time.Duration) Outcome {
	var op *net.OpError
	switch over := req.Context().Err(); {
	case errors.Is(over, context.Canceled), over != nil && had < leastPatience:
		return Unknown
	case errors.As(err, &op) && op.Op == "dial" && over == nil:
		return Refused
	}
	return Failed
}

// ending is what the end of an answer says about the instance; err is why its body did not come to its end.
func ending(req *http.Request, resp *http.Response, err error) Outcome {
	over := req.Context().Err()
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Failed
	}
	switch {
	case err == nil:
		return OK
	case errors.Is(over, context.Canceled), over != nil && resp.ContentLength < 0: // a stream goes on for as long as its caller wants
		return Unknown
	}
	return Failed
}

// idempotent says whether doing it twice is as doing it once.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// hasOther says whether there is an instance that was not tried.
func (r *Resolver) hasOther(tried []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.order, func(t *target) bool { return !slices.Contains(tried, t.InstanceID) })
}

// patience is how long a try may take until there is an answer; 0 is as long as the caller waits.
func (t *Transport) patience(req *http.Request, more bool) time.Duration {
	if !idempotent(req) || t.TryTimeout < 0 {
		return 0
	}
	most := cmp.Or(t.TryTimeout, tryTimeout)
	if end, ok := req.Context().Deadline(); ok && more {
		return max(min(most, time.Until(end)/2), 1)
	}
	return most
}

// errSlow says that an instance had its time.
var errSlow = errors.New("the instance did not answer in time")
