package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// suffix is of the host names that a Transport resolves.
const suffix = ".instar"

const (
	maxTries    = 4                // instances that one request is sent to
	maxServices = 1000             // that one transport follows: host names may come from outside
	firstList   = 10 * time.Second // that a request waits for when nothing is known of its service yet
)

// Transport is an [http.RoundTripper] for URLs such as http://web.instar/path (namespace of the client),
// http://web.shop.instar/path (namespace shop) and instar://web/path. Others go to Base as they are.
//
// A request goes to another instance, up to four in all, when the connection is refused or breaks before the request was
// written; and when it breaks later or the answer does not come, if the method is idempotent or the request has an
// Idempotency-Key. So a request that may have been processed is never repeated unless that does no harm. A body that
// has been read is repeated with GetBody, and not without it. An answer is an answer, whatever its status.
//
// The Host of the request stays as it was in the URL. With https the certificate must be for the address of the instance
// unless Base says otherwise.
type Transport struct {
	Base    http.RoundTripper // an *http.Transport is copied for each instance, so that connections end with what they lead to
	Options Options           // of the resolvers

	client *Client
	mu     sync.Mutex
	closed bool
	known  map[string]*Resolver
}

// Transport makes a Transport. A nil base is a copy of http.DefaultTransport that connects within 2 s.
func (c *Client) Transport(base http.RoundTripper) *Transport {
	if base == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DialContext = (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext
		own.MaxIdleConnsPerHost = 64
		base = own
	}
	return &Transport{Base: base, client: c, known: map[string]*Resolver{}}
}

// Resolver is the one that the transport uses for a service: <service> or <service>.<namespace>. It belongs to the
// transport.
func (t *Transport) Resolver(ctx context.Context, name string) (*Resolver, error) {
	r, err := t.resolver(ctx, name)
	if err != nil {
		return nil, err
	}
	return r, r.first(ctx)
}

func (t *Transport) resolver(ctx context.Context, name string) (*Resolver, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.New("the transport is closed")
	}
	if r := t.known[name]; r != nil {
		return r, nil
	}
	if len(t.known) == maxServices {
		return nil, fmt.Errorf("cannot follow %s: %d services are followed already", name, maxServices)
	}
	service, namespace, ok := strings.Cut(name, ".")
	c := t.client
	if ok {
		c = &Client{URLs: c.URLs, Token: c.Token, HTTP: c.HTTP, Namespace: namespace}
	}
	r := c.follow(ctx, service, t.Options)
	t.known[name] = r
	return r, nil
}

// Close ends the resolvers. Requests under way go on.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	known := t.known
	t.known = nil
	t.mu.Unlock()
	for _, r := range known {
		r.Close()
		r.hangUp()
	}
	t.CloseIdleConnections()
}

// CloseIdleConnections closes those of Base, and those to instances.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	known := slices.Collect(maps.Values(t.known))
	t.mu.Unlock()
	for _, r := range known {
		r.hangUp()
	}
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	name, ok := serviceOf(req)
	if !ok {
		return t.Base.RoundTrip(req)
	}
	b := &body{req: req, first: req.Body}
	first, cancel := context.WithTimeout(req.Context(), firstList)
	r, err := t.Resolver(first, name)
	cancel()
	if err != nil {
		b.close()
		return nil, err
	}
	var tried []string
	for {
		choice, err := r.Pick(tried...)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tried = append(tried, choice.InstanceID)
		resp, untouched, err := t.try(req, choice, b)
		if err == nil {
			b.commit()
			resp.Request = req
			return resp, nil
		}
		choice.Done(outcome(req, err))
		safe := untouched || idempotent(req)
		if req.Context().Err() != nil || !safe || !b.rewind() || len(tried) == maxTries || !r.hasOther(tried) {
			b.close()
			return nil, fmt.Errorf("%s at %s: %w", name, choice.NodeAddress, err)
		}
	}
}

// try sends the request to one instance. untouched says that it cannot have processed anything.
func (t *Transport) try(req *http.Request, choice *Choice, b *body) (resp *http.Response, untouched bool, err error) {
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }} // half a head cannot be processed
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	if out.Host == "" {
		out.Host = req.URL.Host
	}
	if out.URL.Scheme == "instar" {
		out.URL.Scheme = "http"
	}
	out.URL.Host = choice.NodeAddress
	out.Body = b.reader()
	base := t.Base
	if own, ok := base.(*http.Transport); ok {
		base = choice.via(own)
	}
	resp, err = base.RoundTrip(out)
	if err != nil {
		return nil, !wrote.Load(), err
	}
	went := OK
	if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout {
		went = Failed
	}
	resp.Body = counted(resp.Body, func() { choice.Done(went) })
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

// outcome is what an error says about the instance.
func outcome(req *http.Request, err error) Outcome {
	var op *net.OpError
	switch {
	case req.Context().Err() != nil:
		return Unknown
	case errors.As(err, &op) && op.Op == "dial":
		return Refused
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
