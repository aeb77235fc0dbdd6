package clone

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/providers/guard"
)

// proxy is the way of one fetch to the network: an HTTP proxy on loopback, for whoever knows its password. It connects where the guard admits, by the address that
// a name leads to when it does, and ends the fetch when more was received than is allowed.
type proxy struct {
	guard guard.Guard
	left  int64  // bytes that may be received
	over  func() // is called when that is exceeded

	address, secret string
	server          *http.Server
	received        atomic.Int64
	refused         atomic.Pointer[string]
	ctx             context.Context
	stop            context.CancelFunc
	tunnels         sync.WaitGroup
}

func (p *proxy) start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.address, p.secret = l.Addr().String(), rand.Text()
	p.ctx, p.stop = context.WithCancel(context.Background())
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Header.Del("Proxy-Authorization") },
		Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true, DisableCompression: true},
		ErrorLog:  log.New(io.Discard, "", 0), // whoever fetches is told
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), p.status(err))
		},
	}
	p.server = &http.Server{ReadHeaderTimeout: 30 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte("instar:"+p.secret))
		switch {
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) != 1:
			w.Header().Set("Proxy-Authenticate", `Basic realm="instar"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect:
			p.tunnel(w, r)
		case r.URL.Scheme != "http" || r.URL.Host == "":
			w.WriteHeader(http.StatusBadRequest)
		default:
			forward.ServeHTTP(w, r)
		}
	})}
	go func() { _ = p.server.Serve(l) }() // until close
	return nil
}

func (p *proxy) close() {
	p.stop()
	_ = p.server.Close() // what is open is of no use
	p.tunnels.Wait()
}

// status is that of an error. What was refused is kept: programs tell only the number.
func (p *proxy) status(err error) int {
	if errors.Is(err, guard.ErrForbidden) {
		text := err.Error()
		if i := strings.LastIndex(text, ": allow its range"); i > 0 {
			text = text[:i]
		}
		p.refused.Store(&text)
		return http.StatusForbidden
	}
	return http.StatusBadGateway
}

func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.guard.Dialer().DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &metered{Conn: conn, proxy: p}, nil
}

// metered counts what is received.
type metered struct {
	net.Conn
	proxy *proxy
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if m.proxy.received.Add(int64(n)) > m.proxy.left {
		m.proxy.over()
		return 0, errors.New("more was received than is allowed")
	}
	return n, err
}

// tunnel connects both sides until one of them ends, or the proxy does.
func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	there, err := p.dial(ctx, "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), p.status(err))
		return
	}
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	p.tunnels.Go(func() {
		end := context.AfterFunc(p.ctx, func() { _, _ = there.Close(), here.Close() })
		defer end()
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(there, buffered.Reader) // either side may end it
			closeWrite(there)
		})
		_, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		if err == nil {
			_, _ = io.Copy(here, there)
		}
		_, _ = there.Close(), here.Close()
		both.Wait()
	})
}

func closeWrite(c net.Conn) {
	if m, ok := c.(*metered); ok {
		c = m.Conn
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite() // it may be closed
	}
}
