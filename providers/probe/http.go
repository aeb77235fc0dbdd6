package probe

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// maxRedirects is how far a probe is led.
const maxRedirects = 3

// maxWire bounds what is read of one answer after its headers, chunks and all.
const maxWire = 512 << 10

// target is the URL of a check.
func target(c *instance.Check, address string) (*url.URL, error) {
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}
	return url.Parse(scheme + "://" + address + cmp.Or(c.Path, "/"))
}

// http asks, and follows redirects unless their status is asked for.
func (p *Prober) http(ctx context.Context, t *instance.Target, address string) (success, error) {
	at, err := target(&t.Check, address)
	if err != nil {
		return success{}, fail(instance.FailedConfig, "path %q: %v", t.Check.Path, err)
	}
	first, method, body := at.Host, cmp.Or(t.Check.Method, http.MethodGet), t.Check.Body
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
		if err != nil {
			return success{}, fail(instance.FailedConfig, "%v", err)
		}
		if req.Close = true; at.Host == first { // what is for one host, such as a password, is not told to another
			headers(req, t.Check.Headers)
		}
		s, next, err := p.exchange(req, t, at.Host == first)
		if err != nil || next == "" {
			return s, err
		}
		to, err := at.Parse(next)
		if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
			return success{}, &failure{class: instance.FailedProtocol, text: "redirected to what is no URL of http or https", said: next}
		}
		if s.status != http.StatusTemporaryRedirect && s.status != http.StatusPermanentRedirect && method != http.MethodHead {
			method, body = http.MethodGet, ""
		}
		at = to
	}
	return success{}, fail(instance.FailedProtocol, "redirected more than %d times", maxRedirects)
}

func headers(req *http.Request, list map[string]string) {
	req.Header.Set("User-Agent", "instar-probe")
	for name, value := range list {
		if strings.EqualFold(name, "Host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
}

// exchange sends one request on a connection of its own. next is where it is redirected to.
func (p *Prober) exchange(req *http.Request, t *instance.Target, own bool) (s success, next string, err error) {
	ctx, at := req.Context(), req.URL
	address := at.Host
	if at.Port() == "" {
		address = net.JoinHostPort(at.Hostname(), map[string]string{"http": "80", "https": "443"}[at.Scheme])
	}
	conn, err := p.connect(ctx, "tcp", address)
	if err != nil {
		return success{}, "", err
	}
	defer conn.Close()
	second := t.Check.HTTPVersion == instance.HTTP2
	if at.Scheme == "https" {
		config := tlsConfig(&t.Check, at.Hostname(), own)
		config.NextProtos = map[string][]string{"": {"h2", "http/1.1"}, instance.HTTP1: {"http/1.1"}, instance.HTTP2: {"h2"}}[t.Check.HTTPVersion]
		secured, err := handshake(ctx, conn, config)
		if err != nil {
			return success{}, "", err
		}
		spoken := secured.ConnectionState().NegotiatedProtocol
		if conn = secured; second && spoken != "h2" {
			return success{}, "", fail(instance.FailedProtocol, "the server does not speak HTTP/2")
		}
		second = spoken == "h2"
	}
	if second {
		return p.exchange2(req, conn, t)
	}
	if err := req.Write(conn); err != nil {
		return success{}, "", err
	}
	wire := &io.LimitedReader{R: conn, N: maxBody}
	resp, err := response(bufio.NewReader(wire), req)
	if err != nil {
		if wire.N <= 0 {
			return success{}, "", fail(instance.FailedProtocol, "the headers are longer than %d bytes", maxBody)
		}
		return success{}, "", malformed(err)
	}
	wire.N = maxWire
	return p.answered(ctx, conn, resp, t)
}

// exchange2 does the same in HTTP/2, on a connection that speaks it: as TLS negotiated, or without asking.
func (p *Prober) exchange2(req *http.Request, conn net.Conn, t *instance.Target) (success, string, error) {
	given := false
	give := func(context.Context, string, string) (net.Conn, error) {
		if given { // a stream that was refused is not tried again on another connection
			return nil, io.ErrUnexpectedEOF
		}
		given = true
		return conn, nil
	}
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: give, DialTLSContext: give, DisableCompression: true, MaxResponseHeaderBytes: maxBody}
	tr.Protocols.SetHTTP2(true)
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return success{}, "", malformed(err)
	}
	defer resp.Body.Close()
	return p.answered(req.Context(), conn, resp, t)
}

// answered says what an answer is worth, or where it leads to.
func (p *Prober) answered(ctx context.Context, conn net.Conn, resp *http.Response, t *instance.Target) (success, string, error) {
	passes := resp.StatusCode/100 == 2
	if len(t.Check.Status) > 0 {
		passes = slices.Contains(t.Check.Status, resp.StatusCode)
	}
	if location := resp.Header.Get("Location"); !passes && resp.StatusCode/100 == 3 && location != "" && resp.StatusCode != http.StatusNotModified {
		return success{status: resp.StatusCode}, location, nil
	}
	return p.judge(ctx, conn, resp, t, passes)
}

func (p *Prober) judge(ctx context.Context, conn net.Conn, resp *http.Response, t *instance.Target, passes bool) (success, string, error) {
	if !passes {
		f := &failure{class: instance.FailedStatus, status: resp.StatusCode, text: statusLine(resp)}
		if p.logs(ctx) {
			_ = conn.SetReadDeadline(soon(ctx)) // the status decides; what the body says is a courtesy
			text, _ := io.ReadAll(io.LimitReader(resp.Body, MaxOutput))
			f.said = resp.Status + ": " + string(text)
		}
		return success{}, "", f
	}
	if t.Check.Match != "" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		if err != nil && len(body) == 0 {
			return success{}, "", malformed(err)
		}
		if err := p.match(t.Check.Match, body); err != nil {
			var f *failure
			if errors.As(err, &f) {
				f.status = resp.StatusCode
			}
			return success{}, "", err
		}
	}
	return success{status: resp.StatusCode, output: statusLine(resp)}, "", nil
}

// statusLine is the status in the words of the standard: the phrase of an answer is whatever its sender likes.
func statusLine(resp *http.Response) string {
	return strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode))
}

// soon is a moment from now, and not after ctx ends.
func soon(ctx context.Context) time.Time {
	at := time.Now().Add(50 * time.Millisecond)
	if end, ok := ctx.Deadline(); ok && end.Before(at) {
		return end
	}
	return at
}

// response reads an answer and skips interim ones.
func response(r *bufio.Reader, req *http.Request) (*http.Response, error) {
	for range 5 {
		resp, err := http.ReadResponse(r, req)
		if err != nil || resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
	return nil, fail(instance.FailedProtocol, "interim answers only")
}

// malformed tells what is no HTTP from what is no answer. Errors of that kind hold what was answered instead.
func malformed(err error) error {
	var op net.Error
	if errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return &failure{class: instance.FailedProtocol, text: "the answer is no HTTP", said: err.Error()}
}
