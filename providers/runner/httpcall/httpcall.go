// Package httpcall sends one HTTP request that somebody else describes, and returns the answer.
//
// It goes nowhere that its guard does not admit, also when it is redirected or a name leads elsewhere by now, uses no proxy, and keeps no connection. What it
// reads is bounded. An answer of 2xx is a success; 408, 425, 429, 5xx and no answer at all may be tried again, all others may not.
package httpcall

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/guard"
)

// Call is a request.
type Call struct {
	Method  string            `json:"method,omitempty" enum:"GET,HEAD,POST,PUT,PATCH,DELETE" doc:"GET if empty"`
	URL     string            `json:"url" maxLength:"4096" doc:"http or https, without a user"`
	Headers map[string]string `json:"headers,omitempty" doc:"Without secrets: they are stored"`
	Body    string            `json:"body,omitempty" maxLength:"65536"`
}

// Answer is what came back.
type Answer struct {
	Status int
	Type   string // Content-Type
	Body   []byte
	Cut    bool // there was more
}

// Client sends calls. The zero value is ready; it may be used by many goroutines.
type Client struct {
	Guard   guard.Guard
	MaxBody int64             // that is read of an answer, in bytes; 0 is 1 MiB
	Headers map[string]string // set besides those of a call, on the first request only: for what identifies it
}

const (
	maxRedirects = 5
	maxHeader    = 64 << 10
)

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// ours are the headers that the client sets.
var ours = []string{"Connection", "Content-Length", "Expect", "Host", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// Check says why a call could never be sent, or nil.
func Check(c *Call) error {
	if !slices.Contains(methods, cmp.Or(c.Method, http.MethodGet)) {
		return providers.Errorf(providers.Invalid, "method %q is not among %s", c.Method, strings.Join(methods, ", "))
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return providers.Errorf(providers.Invalid, "the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return providers.Errorf(providers.Invalid, "the URL is not http://host or https://host")
	case u.User != nil:
		return providers.Errorf(providers.Invalid, "the URL has a user or a password, which would be stored")
	}
	for name, value := range c.Headers {
		if slices.Contains(ours, http.CanonicalHeaderKey(name)) || name == "" || strings.ContainsFunc(name, notToken) || strings.ContainsFunc(value, unicode.IsControl) {
			return providers.Errorf(providers.Invalid, "header %q cannot be set", name)
		}
	}
	return nil
}

// notToken says of a character that it belongs in no name of a header (RFC 9110, 5.6.2).
func notToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}

// Do sends the call. The answer is there whenever the server gave one, also beside an error, which is one of package providers.
func (c *Client) Do(ctx context.Context, call *Call) (*Answer, error) {
	if err := Check(call); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(call.Method, http.MethodGet), call.URL, strings.NewReader(call.Body))
	if err != nil {
		return nil, providers.Errorf(providers.Invalid, "the request cannot be made: %v", err)
	}
	for _, headers := range []map[string]string{{"User-Agent": "instar"}, c.Headers, call.Headers} {
		for name, value := range headers {
			req.Header.Set(name, value)
		}
	}
	transport := &http.Transport{
		DialContext: c.Guard.Dialer().DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, CheckRedirect: redirected}).Do(req)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	most := cmp.Or(c.MaxBody, 1<<20)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	answer := &Answer{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type"), Body: body}
	if int64(len(body)) > most {
		answer.Body, answer.Cut = body[:most], true
	}
	if err != nil && !answer.Cut {
		return answer, refusal(ctx, err)
	}
	return answer, verdict(resp)
}

// redirected follows a few redirects, and tells no other host what is for the first one.
func redirected(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return providers.Errorf(providers.Invalid, "it was redirected more than %d times", maxRedirects)
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.User != nil {
		return providers.Errorf(providers.Invalid, "it was redirected to what is no URL of http or https")
	}
	if req.URL.Host != via[0].URL.Host || via[0].URL.Scheme == "https" && req.URL.Scheme == "http" {
		if req.Body != nil && req.Body != http.NoBody {
			return providers.Errorf(providers.Invalid, "it was redirected with its body to another host")
		}
		req.Header = http.Header{"User-Agent": req.Header["User-Agent"]}
	}
	return nil
}

// refusal is the error of a call without an answer. What the URL was is known to whoever sent it, and is left out.
func refusal(ctx context.Context, err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	var own *providers.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, guard.ErrForbidden):
		return providers.Errorf(providers.Invalid, "%v", err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return providers.Errorf(providers.Unavailable, "no answer: %v", err)
}

// verdict is what a status means.
func verdict(resp *http.Response) error {
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s >= 500, s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests:
		return providers.Later(retryAfter(resp.Header.Get("Retry-After")), "it was answered with %s", resp.Status)
	}
	return providers.Errorf(providers.Invalid, "it was answered with %s", resp.Status)
}

func retryAfter(value string) time.Duration {
	if n, err := strconv.Atoi(value); err == nil && n > 0 {
		return time.Duration(min(n, 24*60*60)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
