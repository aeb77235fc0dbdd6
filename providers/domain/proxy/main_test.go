package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/providers/domain/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const host = "shop.example.com"

type world struct {
	*proxy.Proxy
	t       *testing.T
	address string
	client  *http.Client
	stop    func() // ends Run
}

// setup serves a proxy.
func setup(t *testing.T, o proxy.Options) *world {
	o.Log = nil
	w := &world{Proxy: proxy.New(o), t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	w.stop = func() { cancel(); <-ended }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.address = l.Addr().String()
	server := w.Server()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		_ = server.Close()
		<-served
		w.stop()
	})
	return w
}

// answer serves h, and is its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// named answers with a name.
func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, name)
	}
}

// dead is an address that takes no connections.
func dead(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func route(backends ...proxy.Backend) []proxy.Route {
	return []proxy.Route{{Host: host, Backends: backends}}
}

func (w *world) request(method, at string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.address+"/", body)
	require.NoError(w.t, err)
	r.Host = at
	return r
}

// get asks for a host, and returns status and body.
func (w *world) get(at string) (int, string) {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, at, nil))
}

func (w *world) do(r *http.Request) (int, string) {
	w.t.Helper()
	resp, err := w.client.Do(r)
	require.NoError(w.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

// of is the status of a backend, zero if there is none.
func (w *world) of(address string) proxy.Status {
	for _, s := range w.Status() {
		if s.Address == address {
			return s
		}
	}
	return proxy.Status{}
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, 20*time.Second, 5*time.Millisecond, what)
}

func lines(parts ...string) string { return strings.Join(parts, "\r\n") + "\r\n\r\n" }
