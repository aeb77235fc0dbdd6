// Package client talks to the HTTP API of a server.
//
// A request that is safe to repeat (a read, or a command under an idempotency key) is repeated when the connection
// breaks under it. Answers that are problem documents (RFC 9457) become a [*Problem], no answer an [*Unreachable].
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Client is one server and who asks.
type Client struct {
	Base  string // such as http://127.0.0.1:8080
	Token string // bearer token, or empty
	Agent string // User-Agent
	HTTP  *http.Client
}

// Request is one question. The path is below Base and already escaped.
type Request struct {
	Method string // GET when empty
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte // JSON, or nil
}

// Response is an answer that is no problem.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Page is the address of the page in the console that shows what the answer is about, or empty.
func (c *Client) Page(h http.Header) string {
	path, more, _ := strings.Cut(strings.TrimPrefix(h.Get("Link"), "<"), ">")
	if !strings.HasPrefix(path, "/") || !strings.Contains(more, `type="text/html"`) {
		return ""
	}
	return c.Base + path
}

// Unreachable says that no answer came.
type Unreachable struct {
	Base string
	Err  error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("cannot reach the server at %s: %v", e.Base, reason(e.Err))
}
func (e *Unreachable) Unwrap() error { return e.Err }

// Foreign says that something answers, and that it is no Instar.
type Foreign struct {
	Base string
	Said string
}

func (e *Foreign) Error() string {
	return fmt.Sprintf("what answers at %s is no Instar: %s", e.Base, e.Said)
}

// reason leaves out method and URL, which url.Error puts before everything.
func reason(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Problem is a refusal or a failure, as RFC 9457 has it.
type Problem struct {
	Type            string       `json:"type"`
	Title           string       `json:"title"`
	Status          int          `json:"status"`
	Detail          string       `json:"detail"`
	Code            string       `json:"code"`
	CurrentState    string       `json:"currentState"`
	AllowedCommands []string     `json:"allowedCommands"`
	Errors          []FieldError `json:"errors"`
	Page            string       `json:"page"` // of the entity in the console, as a URL
	RequestID       string       `json:"requestId"`

	RetryAfter time.Duration `json:"-"` // until it may be asked again; 0 where the answer does not say
	Body       []byte        `json:"-"` // as it came
}

// FieldError points at one wrong value.
type FieldError struct {
	Location string `json:"location"` // body.spec.image
	Message  string `json:"message"`
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Code)
	if p.Code == "" {
		fmt.Fprintf(&b, "HTTP %d", p.Status)
	}
	text := firstOf(p.Detail, p.Title)
	if len(p.Errors) > 0 { // the detail repeats the first one
		text = firstOf(p.Title, p.Detail)
	}
	if text != "" {
		b.WriteString(": " + text)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", firstOf(strings.TrimPrefix(e.Location, "body."), "body"), e.Message)
	}
	if p.Status >= 500 && p.RequestID != "" {
		fmt.Fprintf(&b, "\n  request id %s", p.RequestID)
	}
	return b.String()
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// tries is how often a request is sent at most when connections break.
const tries = 3

// Do sends the request and reads the whole answer.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	repeatable := r.Method == "" || r.Method == http.MethodGet || r.Header.Get("Idempotency-Key") != ""
	for n := 1; ; n++ {
		resp, err := c.once(ctx, r)
		if err == nil || n == tries || !repeatable || !broken(err) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(n) * 200 * time.Millisecond):
		}
	}
}

// broken reports whether a connection broke; one that was refused has nobody behind it.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (c *Client) once(ctx context.Context, r Request) (*Response, error) {
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// open sends the request and returns an answer that is no problem, with its body still to be read.
func (c *Client) open(ctx context.Context, r Request) (*http.Response, error) {
	target := strings.TrimSuffix(c.Base, "/") + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", c.Base, err)
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	req.Header.Set("User-Agent", c.Agent)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode < 300 && media != "text/html" { // which is sent to browsers only
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refused(resp, media)
}

// Stream sends the request, and returns an answer that is read as it comes.
func (c *Client) Stream(ctx context.Context, r Request) (io.ReadCloser, error) {
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// refused is what an answer says that is not what was asked for. A page that is no problem document comes from somebody
// else, a proxy for one: that it wants to be signed in to, or has nobody behind it, is told as it is.
func (c *Client) refused(resp *http.Response, media string) error {
	err := problem(resp, media)
	p := &Problem{}
	if errors.As(err, &p) && strings.HasPrefix(p.Page, "/") {
		p.Page = c.Base + p.Page
	}
	if !errors.As(err, &p) || p.Code != "" {
		return err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return err
	}
	return &Foreign{Base: c.Base, Said: p.Error()}
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !broken(err) {
		if said := greeting(ctx, c.Base); strings.HasPrefix(said, "INFO {") {
			return &Foreign{Base: c.Base, Said: "it is a NATS server; the API has another address, which the server prints at its start"}
		} else if said != "" || strings.Contains(err.Error(), "malformed HTTP") {
			return &Foreign{Base: c.Base, Said: "it speaks no HTTP"}
		}
	}
	return &Unreachable{Base: c.Base, Err: err}
}

// greetingWait is how long a server that speaks first, as that of NATS does, has for its first line.
const greetingWait = 250 * time.Millisecond

// greeting is what the server says before it is asked anything, which one of HTTP never does. What net/http says of
// such a server depends on whether its greeting or the request was first.
func greeting(ctx context.Context, base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	conn, err := (&net.Dialer{Timeout: greetingWait}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(greetingWait))
	line := make([]byte, 64)
	n, _ := conn.Read(line)
	return string(line[:n])
}

// problem reads the body of an answer that is none. What is no problem document, such as a proxy's page, is quoted.
func problem(resp *http.Response, media string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("cannot read the answer %s: %w", resp.Status, err)
	}
	p := &Problem{}
	if !strings.HasSuffix(media, "json") || json.Unmarshal(body, p) != nil {
		p = &Problem{Detail: strings.TrimSpace(string(body[:min(len(body), 300)]))}
	}
	p.Status, p.Body = resp.StatusCode, body
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	if p.Code == "" {
		p.Code = p.Type[strings.LastIndexAny(p.Type, "/:#")+1:]
	}
	if p.Code == "blank" { // about:blank
		p.Code = ""
	}
	if p.Title == "" && p.Detail == "" {
		p.Title = http.StatusText(p.Status)
	}
	return p
}

// JSON sends the request and decodes the answer into v.
func (c *Client) JSON(ctx context.Context, r Request, v any) error {
	resp, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(resp.Body, v); err != nil {
		return fmt.Errorf("the server's answer to %s is not as expected: %w", r.Path, err)
	}
	return nil
}
