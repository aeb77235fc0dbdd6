package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Client knows where the registry is. Its fields are not changed once it is used. It must not be copied then.
type Client struct {
	URLs      []string     // of the nodes of one registry, tried in turn; http://127.0.0.1:8080 by default
	Token     string       // bearer token; none by default
	Namespace string       // "default" by default
	HTTP      *http.Client // must have no Timeout, for watches have no end; by default one with connections of its own

	// CacheDir is a directory for the last known instances of each service that is followed; none by default. A resolver
	// that begins while no registry can be reached has what was found there last, for whichever process; see Resolver.
	CacheDir string

	preferred atomic.Uint32 // the URL that answered last
	once      sync.Once
	own       *http.Client
}

// In is a client of the same registry for another namespace. It shares the connections.
func (c *Client) In(namespace string) *Client {
	return &Client{URLs: c.URLs, Token: c.Token, Namespace: namespace, HTTP: c.http(), CacheDir: c.CacheDir}
}

// CloseIdleConnections closes the connections to the registry that nobody uses.
func (c *Client) CloseIdleConnections() { c.http().CloseIdleConnections() }

const (
	defaultURL  = "http://127.0.0.1:8080"
	callTimeout = 5 * time.Second // of one try at one URL
	maxAnswer   = 1 << 20         // bytes of an answer that is no list of instances
)

// Error is an answer of the registry that is no success.
type Error struct {
	Status       int    `json:"status"`
	Code         string `json:"code"`
	Title        string `json:"title"`
	Detail       string `json:"detail"`
	CurrentState string `json:"currentState"` // of the instance, if the registry told it

	RetryAfter time.Duration `json:"-"` // how long to wait before the same is asked again, if the registry told it

	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the registry answered %d", e.Status)
	for _, more := range []string{e.Code, e.Detail} {
		if more != "" {
			text += ": " + more
		}
	}
	for _, one := range e.Errors {
		if !strings.Contains(text, one.Message) {
			text += "; " + one.Location + " " + one.Message
		}
	}
	return text
}

// status is the HTTP status of an error, or 0.
func status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// request is one call to the registry.
type request struct {
	method, path string
	query        url.Values
	in, out      any
	key          string // idempotency key
}

// do asks one node after the other until one answers something else than that it cannot answer now.
func (c *Client) do(ctx context.Context, r request) error {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return err
		}
	}
	urls := c.urls()
	first := c.preferred.Load()
	var last error
	for i := range urls {
		n := (int(first) + i) % len(urls)
		err := c.try(ctx, urls[n], r, body)
		if err == nil || !elsewhere(err) || ctx.Err() != nil {
			c.preferred.Store(uint32(n)) // an index
			return err
		}
		last = err
	}
	return last
}

func (c *Client) try(ctx context.Context, base string, r request, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := c.request(ctx, base, r, body)
	if err != nil {
		return err
	}
	resp, err := c.http().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return problem(resp, raw)
	}
	if r.out != nil && len(raw) > 0 {
		if err := json.Unmarshal(raw, r.out); err != nil {
			return fmt.Errorf("cannot read the answer of %s %s: %w", r.method, r.path, err)
		}
	}
	return nil
}

func problem(resp *http.Response, raw []byte) *Error {
	e := &Error{}
	if json.Unmarshal(raw, e) != nil {
		e = &Error{Detail: strings.TrimSpace(string(raw[:min(len(raw), 200)]))}
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second // 16 bits
	}
	return e
}

// request makes the request, with what is common to all.
func (c *Client) request(ctx context.Context, base string, r request, body []byte) (*http.Request, error) {
	q := url.Values{"namespace": {c.namespace()}}
	for k, v := range r.query {
		q[k] = v
	}
	req, err := http.NewRequestWithContext(ctx, r.method, strings.TrimSuffix(base, "/")+r.path+"?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	return req, nil
}

// elsewhere says whether another node may know better.
func elsewhere(err error) bool {
	switch s := status(err); s {
	case 0: // no answer
		return true
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// Codes of answers with status 409.
const (
	codeInProgress = "idempotency-in-progress" // the first request under this key is not decided yet
	codeGuard      = "guard-rejected"          // of heartbeats and ends of an instance: it was registered again since
)

func hasCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusConflict && e.Code == code
}

// replaced says whether the registry refused to hear an instance because another process has registered it.
func replaced(err error) bool { return hasCode(err, codeGuard) }

// later says whether the same request may get another answer in a while.
func later(err error) bool { return elsewhere(err) || hasCode(err, codeInProgress) }

// longestRetryAfter bounds what a Retry-After is believed: what stands in between may ask for minutes, and a lease is to be renewed.
const longestRetryAfter = 10 * time.Second

// retryAfter is how long to wait before that, and at least so long.
func retryAfter(err error, least time.Duration) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return max(least, min(e.RetryAfter, longestRetryAfter))
	}
	return least
}

func (c *Client) urls() []string {
	if len(c.URLs) == 0 {
		return []string{defaultURL}
	}
	return c.URLs
}

func (c *Client) namespace() string {
	if c.Namespace == "" {
		return "default"
	}
	return c.Namespace
}

func (c *Client) http() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	c.once.Do(func() { c.own = &http.Client{Transport: transport()} })
	return c.own
}

// transport makes connections that are shared with nobody, and fail soon where nobody is.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   callTimeout,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   64,
		ForceAttemptHTTP2:     true,
	}
}

// wait lets time pass; false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fresh is an id that nobody else has.
func fresh() string { return strings.ToLower(rand.Text()) }
