package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is a request and its answer. It is the transport of the ReverseProxy that it goes through, so that it knows what became of it.
type exchange struct {
	proxy   *Proxy
	site    *site
	cancel  context.CancelFunc // of a request that may be upgraded, else nil
	backend *backend           // that has it, nil is none
	given   time.Time          // when that got it
	waits   bool               // for that to begin its answer; of the goroutine that serves the request alone
	status  int
	client  *client
}

// ServeHTTP sends a request to a backend of its host, and its answer back.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, c := p.site(r.Host), newClient(w, r, p.options.Stalls)
	defer c.end()
	w = c
	switch {
	case s == nil:
		p.unknown.add(http.StatusNotFound)
		answer(w, http.StatusNotFound, "No application is served under this name.")
		return
	case r.Method == http.MethodConnect:
		s.counts.add(http.StatusMethodNotAllowed)
		answer(w, http.StatusMethodNotAllowed, "Tunnels to elsewhere are not opened.")
		return
	}
	leave, err := p.options.Admit(r.RemoteAddr, s.host)
	if err != nil {
		p.log.Debug("a request is refused", "host", s.host, "client", r.RemoteAddr, "error", err)
		s.counts.add(http.StatusServiceUnavailable)
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "There are too many requests at the moment. Try again in a moment.")
		return
	}
	defer leave()
	if r.ProtoMajor == 1 && r.ContentLength != 0 { // an application may begin to answer before it has read everything
		_ = http.NewResponseController(w).EnableFullDuplex() // else it goes on as the server can
	}
	e := &exchange{proxy: p, site: s, client: c}
	if r.Header["Upgrade"] != nil {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		r, e.cancel = r.WithContext(ctx), cancel
	}
	defer e.end() // also when a connection breaks in the middle of an answer, which is a panic
	through := httputil.ReverseProxy{Rewrite: rewrite, Transport: e, ErrorHandler: e.failed, BufferPool: &p.buffers, ErrorLog: p.errors}
	through.ServeHTTP(w, r)
}

func (e *exchange) end() {
	if e.backend != nil {
		e.backend.answers(e, e.status)
		e.backend.finished(e.status)
		e.backend.release(e)
	}
	e.site.counts.add(e.status)
}

// late reports whether its backend should have begun to answer by now: a request that is all there waits no longer than one of a health check. What a client is slow to send is its own, and
// what another backend took before it is not this one's.
func (e *exchange) late(now time.Time) bool {
	at, within := e.client.sent.Load(), e.site.health.Within
	return at != 0 && now.Sub(time.Unix(0, at)) > within && now.Sub(e.given) > within
}

// rewrite makes what a backend gets of what a client has sent.
func rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if says(name) {
			delete(r.Out.Header, name)
		}
	}
	if strings.Contains(strings.ToLower(r.Out.Header.Get("Upgrade")), "h2c") { // requests inside it would say what they like
		for _, name := range [...]string{"Connection", "Upgrade", "Http2-Settings"} {
			r.Out.Header.Del(name)
		}
	}
	r.SetXForwarded()
	r.Out.URL.Scheme = "http"
	r.Out.URL.RawQuery = r.In.URL.RawQuery // which is the application's to understand
	r.Out.Trailer = r.In.Trailer           // is filled when the body has been read
}

// says reports whether a header tells of the client what only a proxy knows. Many frameworks take '_' for '-'.
func says(name string) bool {
	if len(name) < len("Forwarded") || name[0] != 'X' && name[0] != 'F' {
		return false
	}
	name = strings.ReplaceAll(name, "_", "-")
	const all = "X-Forwarded"
	return len(name) >= len(all) && strings.EqualFold(name[:len(all)], all) || strings.EqualFold(name, "X-Real-Ip") || strings.EqualFold(name, "Forwarded")
}

// RoundTrip sends the request to one backend after the other until one takes the connection.
func (e *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	var tried []*backend
	err := errNone
	body, host := out.Body, out.Host
	for {
		b := e.proxy.take(e.site.host, tried)
		if b == nil {
			return nil, err
		}
		e.backend = b
		u := *out.URL
		u.Host = b.address
		out.URL, out.Host = &u, b.asked(host)
		if body != nil {
			out.Body = &unsent{ReadCloser: body}
		}
		b.asks(e)
		resp, errSent := e.proxy.transport.RoundTrip(out)
		if errSent == nil {
			e.status = resp.StatusCode
			b.answers(e, e.status)
			if resp.StatusCode == http.StatusSwitchingProtocols && e.cancel != nil {
				b.upgraded(e, e.cancel)
			}
			return resp, nil
		}
		if !b.failed(e, errSent) {
			return nil, errSent
		}
		e.proxy.log.Debug("a backend took no connection", "host", b.host, "address", b.address, "error", errSent)
		b.release(e)
		e.backend, err, tried = nil, errors.Join(errNone, errSent), append(tried, b)
	}
}

// unsent is a body that stays open until something was read of it: a transport that does not get a connection closes it, and then another backend gets it.
type unsent struct {
	io.ReadCloser
	read atomic.Bool
}

func (u *unsent) Read(p []byte) (int, error) {
	u.read.Store(true)
	return u.ReadCloser.Read(p)
}

func (u *unsent) Close() error {
	if u.read.Load() {
		return u.ReadCloser.Close()
	}
	return nil
}

// buffers are those that bodies are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
