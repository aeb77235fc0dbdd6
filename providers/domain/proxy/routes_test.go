package proxy_test

import (
	"bufio"
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/domain/proxy"
)

// An application goes from one server to the next fifty times, the old one ends, and nobody notices.
func TestNoRequestFailsWhileRoutesChange(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	start := func(n int) *httptest.Server { return httptest.NewServer(named(fmt.Sprint(n))) }
	current := start(0)
	w.Set(route(proxy.Backend{Address: current.Listener.Addr().String(), Weight: 1}))

	var served, each atomic.Int64
	var load sync.WaitGroup
	stop, failures := make(chan struct{}), make(chan error, 8)
	for worker := range cap(failures) {
		load.Go(func() {
			body := strings.Repeat("x", 3000*worker)
			for {
				select {
				case <-stop:
					return
				default:
				}
				method := http.MethodPost
				if worker%2 == 0 {
					method = http.MethodGet
				}
				resp, err := w.client.Do(w.request(method, host, strings.NewReader(body)))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						err = errors.New(resp.Status)
					}
				}
				if err != nil {
					failures <- err
					return
				}
				served.Add(1)
				each.Add(1)
			}
		})
	}
	for n := 1; n <= 50; n++ {
		next := start(n)
		before, after := current.Listener.Addr().String(), next.Listener.Addr().String()
		both := func(old, new int) { // which drains the old one, or takes it out
			list := []proxy.Backend{{Address: after, Weight: new}}
			if old > 0 || n%2 == 0 {
				list = append(list, proxy.Backend{Address: before, Weight: old})
			}
			w.Set(route(list...))
		}
		both(3, 1)
		each.Store(0)
		w.eventually("requests go on", func() bool { return each.Load() >= 8 || len(failures) > 0 })
		both(0, 1)
		w.eventually("the old one is drained", func() bool { return w.of(before).InFlight == 0 })
		current.Close()
		current = next
	}
	close(stop)
	load.Wait()
	current.Close()
	require.Empty(t, failures)
	require.Greater(t, served.Load(), int64(50*8))
}

func TestRequestsGoByWeight(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	counts := map[string]int{}
	var list []proxy.Backend
	for name, weight := range map[string]int{"a": 1, "b": 3, "c": 6, "d": 0} {
		list = append(list, proxy.Backend{Address: serve(t, named(name)), Weight: weight})
	}
	w.Set(route(list...))
	for range 1000 {
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://"+host, nil))
		require.Equal(t, http.StatusOK, answer.Code)
		counts[answer.Body.String()]++
	}
	for name, want := range map[string]float64{"a": 100, "b": 300, "c": 600, "d": 0} {
		require.InDelta(t, want, counts[name], 20, name)
	}
}

// A name whose route stays keeps its turns, however often others change: else each new table began with the heavier backend.
func TestAShareIsKeptWhileOtherNamesChange(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	old, new, other := serve(t, named("old")), serve(t, named("new")), serve(t, named("other"))
	counts := map[string]int{}
	for n := range 1000 {
		if n%5 == 0 {
			w.Set(append(route(proxy.Backend{Address: old, Weight: 95}, proxy.Backend{Address: new, Weight: 5}),
				proxy.Route{Host: "other.example.com", Backends: []proxy.Backend{{Address: other, Weight: 1 + n}}}))
		}
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://"+host, nil))
		require.Equal(t, http.StatusOK, answer.Code)
		counts[answer.Body.String()]++
	}
	require.Equal(t, map[string]int{"old": 950, "new": 50}, counts)
}

// A server of many names, such as the ingress of a cluster, tells them apart by the host.
func TestABackendMayBeAskedByItsOwnHost(t *testing.T) {
	t.Parallel()
	var checked atomic.Int32
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			if r.Host != "release.cluster.example" {
				w.WriteHeader(http.StatusNotFound)
			}
			checked.Add(1)
			return
		}
		fmt.Fprintf(w, "%s for %s", r.Host, r.Header.Get("X-Forwarded-Host"))
	})
	w := setup(t, proxy.Options{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}})
	routes := route(proxy.Backend{Address: "release.cluster.example:80", Weight: 1, OwnHost: true})
	routes[0].Health = proxy.Health{Path: "/health", Every: 10 * time.Millisecond}
	w.Set(routes)
	w.eventually("it is checked by its own host, too", func() bool { return checked.Load() > 2 })
	require.True(t, w.of("release.cluster.example:80").Healthy)
	_, said := w.get(host)
	require.Equal(t, "release.cluster.example for "+host, said)
	routes[0].Health, routes[0].Backends[0].OwnHost = proxy.Health{}, false
	w.Set(routes)
	_, said = w.get(host)
	require.Equal(t, host+" for "+host, said)
}

// What a server answers badly, or does not take, is known of it alone.
func TestTrafficIsCountedByServer(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	good, bad := httptest.NewServer(named("good")), httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(good.Close)
	t.Cleanup(bad.Close)
	fine, sick, away := good.Listener.Addr().String(), bad.Listener.Addr().String(), "127.0.0.1:1"
	w.Set(route(proxy.Backend{Address: fine, Weight: 1}, proxy.Backend{Address: sick, Weight: 1}, proxy.Backend{Address: away, Weight: 1}))
	for range 6 {
		resp, err := w.client.Do(w.request(http.MethodGet, host, nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Eventually(t, func() bool { // a request ends after its answer
		return w.Traffic(host, fine).Asked+w.Traffic(host, sick).Asked == 6
	}, time.Minute, time.Millisecond)
	for address, fails := range map[string]func(n, bad int64) bool{
		fine: func(n, bad int64) bool { return n > 0 && bad == 0 }, sick: func(n, bad int64) bool { return n > 0 && bad == n },
		away: func(n, bad int64) bool { return n > 0 && bad == n }, "127.0.0.1:2": func(n, bad int64) bool { return n == 0 && bad == 0 },
	} {
		n := w.Traffic(host, address)
		require.True(t, fails(n.Asked, n.Failures), "%s: %+v", address, n)
	}
}

// What a client breaks is no failure of the server that waits for it.
func TestABodyThatIsNoneIsTheClients(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	waits := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			rw.WriteHeader(http.StatusNoContent)
		}
	})
	w.Set(route(proxy.Backend{Address: waits, Weight: 1}))
	conn, err := net.Dial("tcp", w.address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nZZ\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	w.eventually("it is counted", func() bool { return w.Traffic(host, waits).Asked == 1 })
	require.Zero(t, w.Traffic(host, waits).Failures)
}

// A backend that hangs is told from one that answers late, and from a client that goes at once, or is slow to send its body.
func TestWhatHangsIsCounted(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	came, answer := make(chan struct{}, 8), make(chan struct{})
	back := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	within := 500 * time.Millisecond
	w.Set([]proxy.Route{{Host: host, Backends: []proxy.Backend{{Address: back, Weight: 1}}, Health: proxy.Health{Within: time.Hour}}})
	soon, _ := w.dial(lines("GET / HTTP/1.1", "Host: "+host))
	<-came
	require.NoError(t, soon.Close())
	w.eventually("a client that goes at once says nothing", func() bool { return w.of(back).InFlight == 0 })
	require.Equal(t, proxy.Count{}, w.Traffic(host, back))

	w.Set([]proxy.Route{{Host: host, Backends: []proxy.Backend{{Address: back, Weight: 1}}, Health: proxy.Health{Within: within}}})
	slow, _ := w.dial("POST / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 9\r\n\r\nabc")
	<-came
	leaves, _ := w.dial(lines("GET / HTTP/1.1", "Host: "+host))
	stays, read := w.dial(lines("GET / HTTP/1.1", "Host: "+host))
	<-came
	<-came
	w.eventually("both hang", func() bool { return w.Traffic(host, back) == proxy.Count{Asked: 2, Hung: 2} })
	require.NoError(t, leaves.Close())
	w.eventually("one has left", func() bool { return w.of(back).InFlight == 2 })
	require.Equal(t, proxy.Count{Asked: 2, Hung: 2}, w.Traffic(host, back))
	require.NoError(t, slow.Close())
	w.eventually("the slow one has left", func() bool { return w.of(back).InFlight == 1 })
	close(answer)
	resp, err := http.ReadResponse(read, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	w.eventually("one was answered after all", func() bool { return w.of(back).InFlight == 0 })
	require.Equal(t, proxy.Count{Asked: 2, Hung: 2}, w.Traffic(host, back), "and it was late all the same")
	require.NoError(t, stays.Close())
}

func TestHostsInAnySpelling(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	back := serve(t, named("it"))
	w.Set([]proxy.Route{
		{Host: "Shop.Example.com", Backends: []proxy.Backend{{Address: back, Weight: 1}}},
		{Host: "[::1]", Backends: []proxy.Backend{{Address: back, Weight: 1}}},
	})
	for _, at := range []string{host, host + ":8443", "SHOP.example.COM", host + ".", host + ".:80", "[::1]", "[::1]:80"} {
		require.True(t, w.Serves(at), at)
		status, body := w.get(at)
		require.Equal(t, http.StatusOK, status, at)
		require.Equal(t, "it", body)
	}
	for _, at := range []string{"example.com", "x" + host, host + "..", "", "[::2]:80"} {
		require.False(t, w.Serves(at), at)
	}
	resp, err := w.client.Do(w.request(http.MethodGet, "elsewhere.example.com", nil))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	require.JSONEq(t, `{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "No application is served under this name."}`, string(body))
	status, _ := w.do(w.request(http.MethodConnect, host, nil))
	require.Equal(t, http.StatusMethodNotAllowed, status)
}

func TestWhatIsInBothTablesStays(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	var connections atomic.Int64
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			entered <- struct{}{}
			<-leave
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	address := s.Listener.Addr().String()
	for n := range 20 {
		w.Set(route(proxy.Backend{Address: address, Weight: n + 1}, proxy.Backend{Address: serve(t, named("")), Weight: 1}))
		w.get(host)
		w.eventually("it has ended", func() bool { return w.of(address).InFlight == 0 })
	}
	require.Equal(t, int64(1), connections.Load())

	done := make(chan int)
	go func() {
		status, _ := w.do(w.request(http.MethodPut, host, nil))
		done <- status
	}()
	w.Set(route(proxy.Backend{Address: address, Weight: 1}))
	<-entered
	for range 3 { // drained, gone, and back again
		w.Set(route(proxy.Backend{Address: address}))
		require.Equal(t, proxy.Status{Host: host, Address: address, Healthy: true, InFlight: 1}, w.of(address))
		status, _ := w.get(host)
		require.Equal(t, http.StatusServiceUnavailable, status)
		w.Set(nil)
		require.Equal(t, proxy.Status{Host: host, Address: address, Gone: true, Healthy: true, InFlight: 1}, w.of(address))
		w.Set(route(proxy.Backend{Address: address, Weight: 1}))
		require.Equal(t, proxy.Status{Host: host, Address: address, Weight: 1, Healthy: true, InFlight: 1}, w.of(address))
	}
	w.Set(nil)
	close(leave)
	require.Equal(t, http.StatusOK, <-done)
	w.eventually("nothing is known of it any more", func() bool { return len(w.Status()) == 0 })
}

func TestOnlyHostsOfTheTableAreCounted(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.Proxy)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	w.Set(route(proxy.Backend{Address: address, Weight: 1}, proxy.Backend{Address: "127.0.0.1:1"}))
	for _, at := range []string{host, host + ":80", strings.ToUpper(host), "a.example.com", "b.example.com"} {
		w.get(at)
	}
	w.eventually("it has ended", func() bool { return w.of(address).InFlight == 0 })
	want := func(of string) string {
		return `
# HELP instar_proxy_backends Backends of a host by what they stand at.
# TYPE instar_proxy_backends gauge
instar_proxy_backends{host="shop.example.com",state="drained"} 1
instar_proxy_backends{host="shop.example.com",state="healthy"} 1
instar_proxy_backends{host="shop.example.com",state="unhealthy"} 0
# HELP instar_proxy_requests_total Requests that the proxy has answered, by host and class of the status; none: the client went away before.
# TYPE instar_proxy_requests_total counter
instar_proxy_requests_total{code="1xx",host="(other)"} 0
instar_proxy_requests_total{code="1xx",host="shop.example.com"} 0
instar_proxy_requests_total{code="2xx",host="(other)"} 0
instar_proxy_requests_total{code="2xx",host="shop.example.com"} 0
instar_proxy_requests_total{code="3xx",host="(other)"} 0
instar_proxy_requests_total{code="3xx",host="shop.example.com"} 0
instar_proxy_requests_total{code="4xx",host="(other)"} 2
instar_proxy_requests_total{code="4xx",host="shop.example.com"} ` + of + `
instar_proxy_requests_total{code="5xx",host="(other)"} 0
instar_proxy_requests_total{code="5xx",host="shop.example.com"} 0
instar_proxy_requests_total{code="none",host="(other)"} 0
instar_proxy_requests_total{code="none",host="shop.example.com"} 0
# HELP instar_proxy_upgraded Connections of a host that were upgraded (WebSocket) and are open.
# TYPE instar_proxy_upgraded gauge
instar_proxy_upgraded{host="shop.example.com"} 0
`
	}
	page := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return "\n" + w.Body.String()
	}
	require.Equal(t, want("3"), page())
	w.Set(route(proxy.Backend{Address: address, Weight: 1}, proxy.Backend{Address: "127.0.0.1:1"}))
	w.get(host)
	w.eventually("it has ended", func() bool { return w.of(address).InFlight == 0 })
	require.Equal(t, want("4"), page())
	w.Set(nil)
	require.NotContains(t, page(), host)
}
