package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
)

// caller is an http.Client that calls through a Transport.
func caller(t *testing.T, f *registry) *http.Client {
	t.Helper()
	tr := f.client(t).Transport(nil)
	t.Cleanup(tr.Close)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func call(c *http.Client, method, url, body string) (string, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body)) // the client has a timeout
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(raw), err
}

// refusing is an address where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func serveAt(t *testing.T, addr string, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	return s
}

func TestTransportNames(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host+r.URL.Path) })
	f.put("web", "i1", addr, 100)
	c := caller(t, f)
	for url, want := range map[string]string{
		"http://web.instar/x": "web.instar/x", "http://WEB.instar:8080/y": "WEB.instar:8080/y", "instar://web/z": "web/z", "http://web.default.instar/": "web.default.instar/",
		"http://" + addr + "/plain": addr + "/plain",
	} {
		got, err := call(c, "GET", url, "")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := call(c, "GET", "http://nobody.instar/", "")
	require.ErrorIs(t, err, client.ErrNoEndpoints)
}

func TestRefusedGoesElsewhere(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", refusing(t), 1000)
	f.put("web", "i2", serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }), 1)
	c := caller(t, f)
	for _, method := range []string{"POST", "GET", "PATCH"} {
		got, err := call(c, method, "http://web.instar/", "hello")
		require.NoError(t, err)
		require.Equal(t, "hello", got)
	}
	req, err := http.NewRequestWithContext(within(t), "POST", "http://web.instar/", io.NopCloser(strings.NewReader("a stream"))) // cannot be read again
	require.NoError(t, err)
	fresh := caller(t, f)
	resp, err := fresh.Do(req)
	require.NoError(t, err, "nothing of it was read")
	raw, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.Equal(t, "a stream", string(raw))
}

// A connection that breaks after the request was written: it may have been processed.
func TestBrokenIsRepeatedOnlyIfThatDoesNoHarm(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	var broken, good atomic.Int64
	f.put("web", "i1", serve(t, func(w http.ResponseWriter, r *http.Request) {
		broken.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	}), 1000)
	f.put("web", "i2", serve(t, func(w http.ResponseWriter, r *http.Request) { good.Add(1); _, _ = io.Copy(w, r.Body) }), 1)
	c := caller(t, f)
	_, err := call(c, "POST", "http://web.instar/", "once")
	require.Error(t, err)
	require.Equal(t, int64(1), broken.Load(), "sent once")
	require.Zero(t, good.Load())
	got, err := call(c, "PUT", "http://web.instar/", "again")
	require.NoError(t, err)
	require.Equal(t, "again", got)

	req, err := http.NewRequestWithContext(within(t), "POST", "http://web.instar/", strings.NewReader("keyed"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "k")
	resp, err := caller(t, f).Do(req)
	require.NoError(t, err)
	_ = resp.Body.Close()

	req, err = http.NewRequestWithContext(within(t), "PUT", "http://web.instar/", io.NopCloser(strings.NewReader("a stream")))
	require.NoError(t, err)
	_, err = caller(t, f).Do(req) // it fails
	require.Error(t, err, "it was read, and cannot be read again")
}

// base is a round tripper that is no *http.Transport.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(req *http.Request) (*http.Response, error) { return b(req) }

// What a Base does not tell of may have been processed.
func TestWhatIsNotKnownToBeUnsentIsNotRepeated(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	for i := range 4 {
		f.put("web", fmt.Sprintf("i%d", i), refusing(t), 100)
	}
	wrapped := &http.Transport{}
	t.Cleanup(wrapped.CloseIdleConnections)
	var tries atomic.Int64
	silent := func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") }
	asks := func(req *http.Request) (*http.Response, error) { // something else first, as for a token
		first, err := http.NewRequestWithContext(req.Context(), "GET", "http://"+refusing(t), nil)
		require.NoError(t, err)
		_, err = wrapped.RoundTrip(first) // it fails
		require.Error(t, err)
		return silent(req)
	}
	for name, c := range map[string]struct {
		base        base
		posts, gets int64
	}{
		"tells nothing":      {silent, 1, 4},
		"of another request": {asks, 1, 4},
		"passes it on":       {wrapped.RoundTrip, 4, 4},
	} {
		tr := f.client(t).Transport(base(func(req *http.Request) (*http.Response, error) {
			tries.Add(1)
			return c.base(req)
		}))
		t.Cleanup(tr.Close)
		for method, want := range map[string]int64{"POST": c.posts, "GET": c.gets} {
			tries.Store(0)
			require.Error(t, get(t, tr, method, 10*time.Second))
			require.Equal(t, want, tries.Load(), "%s: %s", name, method)
		}
	}
}

func TestCallerThatGivesUpEjectsNobody(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	block, reached := make(chan struct{}), make(chan struct{}, 12)
	for _, id := range []string{"i1", "i2"} {
		f.put("web", id, serve(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{}; <-block }), 100)
	}
	t.Cleanup(func() { close(block) })
	tr := f.client(t).Transport(nil)
	defer tr.Close()
	for range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-reached; cancel() }()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://web.instar/", nil)
		require.NoError(t, err)
		_, err = tr.RoundTrip(req) // it fails
		require.ErrorIs(t, err, context.Canceled)
	}
	r, err := tr.Resolver(within(t), "web")
	require.NoError(t, err)
	require.Len(t, picks(t, r, 4), 2)
}

// node is one instance of a service that can be restarted.
type node struct {
	addr   string
	server *http.Server
	lease  *client.Lease
	served chan error
}

func startNode(t *testing.T, c *client.Client, addr string, served *atomic.Int64) *node {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	n := &node{addr: l.Addr().String(), served: make(chan error, 1)}
	n.lease, err = c.Register(within(t), client.Registration{Service: "web", NodeAddress: n.addr, Check: client.Check{TTL: 2 * time.Second}})
	require.NoError(t, err)
	n.server = &http.Server{ReadHeaderTimeout: time.Second, Handler: n.lease.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))}
	go func() { n.served <- n.server.Serve(l) }()
	return n
}

// end is what DrainOnSignal does.
func (n *node) end(t *testing.T) {
	t.Helper()
	require.NoError(t, n.lease.Drain(within(t)))
	require.NoError(t, n.server.Shutdown(within(t)))
	<-n.served
}

// Ten instances are restarted one after the other while others call them all the time, also with methods that are never
// repeated: no call fails, and none is processed twice.
func TestRollingRestartFailsNoCall(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	registryClient := f.client(t)
	var served, failed, calls atomic.Int64
	var nodes []*node
	for range 10 {
		nodes = append(nodes, startNode(t, registryClient, "127.0.0.1:0", &served))
	}
	c := caller(t, f)
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	var first atomic.Value
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				want := fmt.Sprintf("%d/%d", i, n)
				calls.Add(1)
				if got, err := call(c, []string{"POST", "GET"}[n%2], "http://web.instar/", want); err != nil || got != want {
					failed.Add(1)
					first.CompareAndSwap(nil, fmt.Sprint(want, got, err))
				}
			}
		})
	}
	eventually(t, func() bool { return calls.Load() > 200 })
	for i, n := range nodes {
		n.end(t)
		nodes[i] = startNode(t, registryClient, n.addr, &served)
		seen := calls.Load()
		eventually(t, func() bool { return calls.Load() > seen+100 })
	}
	stop()
	callers.Wait()
	t.Logf("%d calls during ten restarts, %d failed", calls.Load(), failed.Load())
	require.Zero(t, failed.Load(), first.Load())
	require.Equal(t, calls.Load(), served.Load(), "none twice")
	for _, n := range nodes {
		n.end(t)
	}
}
