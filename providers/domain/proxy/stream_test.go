package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/domain/proxy"
)

// headers answers with the headers that have reached it.
func headers(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s\n", r.Host, r.URL)
	_ = r.Header.Write(w)
}

func TestWhatAClientSaysOfItselfIsNotPassedOn(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	w.Set(route(proxy.Backend{Address: serve(t, headers), Weight: 1}))
	r := w.request(http.MethodGet, host+":8443", nil)
	r.URL.RawQuery = "a;b=%zz" // which is for the application to understand
	for _, name := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-IP", "X_Forwarded_For", "x_real-ip", "X-Forwarded-User", "Proxy-Authorization",
	} {
		r.Header[name] = []string{"forged"}
	}
	r.Header.Set("Connection", "X-Forwarded-For, X-Mine")
	r.Header.Set("X-Mine", "forged")
	r.Header.Set("X-Forward", "kept")
	r.Header.Set("User-Agent", "test")
	status, got := w.do(r)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, host+":8443 /?a;b=%zz\nAccept-Encoding: gzip\r\nUser-Agent: test\r\nX-Forward: kept\r\nX-Forwarded-For: 127.0.0.1\r\n"+
		"X-Forwarded-Host: "+host+":8443\r\nX-Forwarded-Proto: http\r\n", got)
}

func TestNoUpgradeToWhatCarriesRequests(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	w.Set(route(proxy.Backend{Address: serve(t, headers), Weight: 1}))
	r := w.request(http.MethodGet, host, nil)
	r.Header = http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"H2C"}, "Http2-Settings": {"x"}, "Accept-Encoding": {"x"}, "User-Agent": {"test"}}
	status, got := w.do(r)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, host+" /\nAccept-Encoding: x\r\nUser-Agent: test\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: "+host+"\r\nX-Forwarded-Proto: http\r\n", got)
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	w.Set([]proxy.Route{{Host: "127.0.0.1", Backends: []proxy.Backend{{Address: serve(t, headers), Weight: 1}}}})
	s := httptest.NewUnstartedServer(nil)
	s.Config = w.Server()
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 2, resp.ProtoMajor)
	require.Contains(t, string(body), "X-Forwarded-Proto: https")

	c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // the certificate is the test's
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, lines("GET / HTTP/1.1", "Host: 127.0.0.1", "Connection: close"))
	require.NoError(t, err)
	text, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(text), "200 OK")
}

// dial sends the beginning of a request.
func (w *world) dial(text string) (net.Conn, *bufio.Reader) {
	c, err := net.Dial("tcp", w.address)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	require.NoError(w.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(w.t, err)
	return c, bufio.NewReader(c)
}

func TestSlowHeadersEnd(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{HeaderWithin: 100 * time.Millisecond})
	w.Set(route(proxy.Backend{Address: serve(t, named("it")), Weight: 1}))
	_, slow := w.dial("GET / HTTP/1.1\r\nHost: " + host + "\r\n")
	text, err := io.ReadAll(slow)
	require.NoError(t, err, "it is closed")
	require.NotContains(t, string(text), "200")
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{MaxHeader: 4 << 10})
	w.Set(route(proxy.Backend{Address: serve(t, named("it")), Weight: 1}))
	r := w.request(http.MethodGet, host, nil)
	r.Header.Set("X-Large", strings.Repeat("x", 16<<10))
	status, _ := w.do(r)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status)
}

func TestEventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	gone, next := make(chan error, 1), make(chan struct{})
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := 0; ; n++ {
			fmt.Fprintf(w, "data: %d\n", n)
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				gone <- r.Context().Err()
				return
			}
		}
	})
	w.Set(route(proxy.Backend{Address: address, Weight: 1}))
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := w.client.Do(w.request(http.MethodGet, host, nil).WithContext(ctx))
	require.NoError(t, err)
	events := bufio.NewReader(resp.Body)
	for n := range 3 {
		line, err := events.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n", n), line)
		if n < 2 {
			next <- struct{}{}
		}
	}
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled, "the client has gone")
	require.NoError(t, resp.Body.Close())
	w.eventually("it has ended", func() bool { return w.of(address).InFlight == 0 })
}

// A client that goes before there is an answer ends its request, and the backend is none the worse for it.
func TestAClientThatGoesEndsItsRequest(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	came, gone := make(chan struct{}), make(chan struct{})
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
		close(gone)
	})
	w.Set(route(proxy.Backend{Address: address, Weight: 1}))
	c, _ := w.dial(lines("GET / HTTP/1.1", "Host: "+host))
	<-came
	require.NoError(t, c.Close())
	<-gone
	w.eventually("it has ended", func() bool { return w.of(address).InFlight == 0 })
	require.True(t, w.of(address).Healthy)
}

func TestBodiesAndTrailersBothWays(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	began := make(chan struct{})
	w.Set(route(proxy.Backend{Weight: 1, Address: serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 1))
		close(began)
		n, errRest := io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "Announced")
		fmt.Fprint(w, n, err, errRest, r.Trailer)
		w.Header().Set("Announced", "yes")
		w.Header().Set(http.TrailerPrefix+"Surprise", "too")
	})}))
	body, upload := io.Pipe()
	r := w.request(http.MethodPost, host, body)
	r.Trailer = http.Header{"Sum": nil}
	go func() {
		part := strings.Repeat("x", 1<<20)
		_, _ = io.WriteString(upload, part)
		<-began // before it is all there
		for range 16 {
			_, _ = io.WriteString(upload, part)
		}
		r.Trailer.Set("Sum", "42")
		_ = upload.Close()
	}()
	resp, err := w.client.Do(r)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, fmt.Sprint(17<<20-1, nil, nil, http.Header{"Sum": {"42"}}), string(got))
	require.Equal(t, http.Header{"Announced": {"yes"}, "Surprise": {"too"}}, resp.Trailer)
}

func TestAnswersBeginBeforeRequestsEnd(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	w.Set(route(proxy.Backend{Weight: 1, Address: serve(t, func(w http.ResponseWriter, r *http.Request) {
		both := http.NewResponseController(w)
		if err := both.EnableFullDuplex(); err != nil {
			panic(err)
		}
		for lines := bufio.NewReader(r.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, line)
			_ = both.Flush()
		}
	})}))
	body, upload := io.Pipe()
	go func() { _, _ = io.WriteString(upload, "0\n") }()
	resp, err := w.client.Do(w.request(http.MethodPost, host, body))
	require.NoError(t, err)
	lines := bufio.NewReader(resp.Body)
	for n := range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", n), line)
		_, err = fmt.Fprintf(upload, "%d\n", n+1)
		require.NoError(t, err)
	}
	require.NoError(t, upload.Close())
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "3\n", string(rest))
	require.NoError(t, resp.Body.Close())
}

// echo upgrades to a protocol that says everything again, with a name before it.
func echo(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		c, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, lines("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"))
		for {
			line, err := both.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name+": "+line)
		}
	}
}

type socket struct {
	net.Conn
	*bufio.Reader
	t *testing.T
}

// upgrade opens one, and waits until it is counted.
func (w *world) upgrade(address string) *socket {
	w.t.Helper()
	before := w.of(address).Upgraded
	c, r := w.dial(lines("GET /socket HTTP/1.1", "Host: "+host, "Connection: keep-alive, Upgrade", "Upgrade: websocket"))
	resp, err := http.ReadResponse(r, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, resp.Body.Close())
	require.Equal(w.t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Equal(w.t, before+1, w.of(address).Upgraded)
	return &socket{c, r, w.t}
}

func (s *socket) says(want string) {
	s.t.Helper()
	_, err := io.WriteString(s.Conn, "hello\n")
	require.NoError(s.t, err)
	line, err := s.ReadString('\n')
	require.NoError(s.t, err)
	require.Equal(s.t, want+": hello\n", line)
}

func (s *socket) closed() {
	s.t.Helper()
	_, err := s.ReadByte()
	require.Error(s.t, err)
	var late net.Error
	require.False(s.t, errors.As(err, &late) && late.Timeout(), "it is open")
}

func TestUpgradedConnectionsEndWithTheDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{Drain: 200 * time.Millisecond})
	one, two := serve(t, echo("one")), serve(t, echo("two"))
	w.Set(route(proxy.Backend{Address: one, Weight: 1}, proxy.Backend{Address: two, Weight: 1}))
	first, second := w.upgrade(one), w.upgrade(two) // by turns
	first.says("one")
	second.says("two")
	status, _ := w.get(host)
	require.Equal(t, http.StatusUpgradeRequired, status)

	w.Set(route(proxy.Backend{Address: two, Weight: 1}))
	w.Set(route(proxy.Backend{Address: one, Weight: 1}, proxy.Backend{Address: two, Weight: 1})) // one has come back
	w.Set(route(proxy.Backend{Address: one, Weight: 1}, proxy.Backend{Address: two}))
	second.closed() // later than the first would be
	first.says("one")
	w.eventually("two is drained", func() bool { return w.of(two).InFlight == 0 })

	w.Set(route(proxy.Backend{Address: two, Weight: 1}))
	third := w.upgrade(two)
	first.closed()
	third.says("two")
	require.Equal(t, 1, w.of(two).Upgraded)

	w.stop()
	third.closed()
}
