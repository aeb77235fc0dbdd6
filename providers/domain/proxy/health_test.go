package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/domain/proxy"
)

func TestARefusedConnectionGoesToAnotherBackend(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	refuses := dead(t)
	alive := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	w.Set(route(proxy.Backend{Address: refuses, Weight: 100}, proxy.Backend{Address: alive, Weight: 1}))
	body := strings.Repeat("all of it ", 20_000)
	for range 20 {
		status, got := w.do(w.request(http.MethodPost, host, strings.NewReader(body)))
		require.Equal(t, http.StatusOK, status)
		require.True(t, body == got, "%d bytes of %d came back", len(got), len(body))
		status, _ = w.get(host)
		require.Equal(t, http.StatusOK, status)
	}
	w.eventually("it is told, for as long as it is left out", func() bool { // which may be over when the machine is busy
		status, _ := w.get(host)
		now := w.of(refuses)
		return status == http.StatusOK && !now.Healthy && strings.Contains(now.Problem, "refused")
	})

	w.Set(route(proxy.Backend{Address: refuses, Weight: 1}))
	resp, err := w.client.Do(w.request(http.MethodPost, host, strings.NewReader(body)))
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.JSONEq(t, `{"type": "about:blank", "title": "Service Unavailable", "status": 503,
		"detail": "No server of this application is healthy at the moment. Try again in a moment."}`, string(answer))
}

// A backend that has just started again is not kept waiting when it is the only one.
func TestTheOnlyBackendIsTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	var dialer net.Dialer
	w := setup(t, proxy.Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !up.Load() {
			return nil, net.ErrClosed
		}
		return dialer.DialContext(ctx, network, address)
	}})
	w.Set(route(proxy.Backend{Address: serve(t, named("it")), Weight: 1}))
	status, _ := w.get(host)
	require.Equal(t, http.StatusServiceUnavailable, status)
	up.Store(true)
	status, _ = w.get(host)
	require.Equal(t, http.StatusOK, status)
}

func TestASickBackendGetsNoRequestsUntilItIsWell(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	var sick, asked atomic.Bool
	application := func(name string, sick *atomic.Bool) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/health":
				named(name)(w, r)
			case r.Host != host:
				t.Errorf("asked as %s", r.Host)
			case sick.Load():
				asked.Store(true)
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			}
		})
	}
	one, two := application("one", &sick), application("two", new(atomic.Bool))
	routes := func(health proxy.Health) {
		r := route(proxy.Backend{Address: one, Weight: 1}, proxy.Backend{Address: two, Weight: 1})
		r[0].Health = health
		w.Set(r)
	}
	checked := proxy.Health{Path: "/health", Every: 5 * time.Millisecond}
	routes(checked)
	require.True(t, w.of(one).Healthy, "until somebody knows better")

	sick.Store(true)
	w.eventually("it is noticed", func() bool { return !w.of(one).Healthy })
	require.Contains(t, w.of(one).Problem, "/health with 503")
	routes(checked)
	require.False(t, w.of(one).Healthy, "a new table does not heal it")
	for range 10 {
		_, body := w.get(host)
		require.Equal(t, "two", body)
	}

	sick.Store(false)
	w.eventually("it is noticed", func() bool { return w.of(one).Healthy })
	bodies := map[string]bool{}
	for range 4 {
		_, body := w.get(host)
		bodies[body] = true
	}
	require.Len(t, bodies, 2)

	sick.Store(true)
	w.eventually("it is noticed", func() bool { return !w.of(one).Healthy })
	routes(proxy.Health{})
	w.eventually("nobody checks it any more", func() bool { return w.of(one).Healthy })
	asked.Store(false)
	routes(proxy.Health{Path: "/health", Every: time.Hour})
	w.eventually("it is checked at once", asked.Load)
}

func TestNoRequestGoesToSickBackends(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	r := route(proxy.Backend{Address: address, Weight: 1})
	r[0].Health = proxy.Health{Path: "/", Every: 5 * time.Millisecond}
	w.Set(r)
	w.eventually("it is noticed", func() bool { return !w.of(address).Healthy })
	status, _ := w.get(host)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestABackendThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{AnswerWithin: 50 * time.Millisecond})
	leave := make(chan struct{})
	w.Set(route(proxy.Backend{Address: serve(t, func(http.ResponseWriter, *http.Request) { <-leave }), Weight: 1}))
	status, body := w.get(host)
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Contains(t, body, "did not answer in time")
	close(leave)
}

func TestABackendThatBreaksOff(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{})
	w.Set(route(proxy.Backend{Address: serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), Weight: 1}))
	status, body := w.get(host)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, body, "broke off")
}
