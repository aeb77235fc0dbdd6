package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/domain/proxy"
)

func TestAClientThatSendsNothingOfItsBodyIsCutOff(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{Stalls: 50 * time.Millisecond})
	w.Set(route(proxy.Backend{Address: serve(t, named("one")), Weight: 1}))
	_, r := w.dial("POST / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 10\r\n\r\n12345")
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
	w.eventually("its request has ended", func() bool { return w.of(w.Status()[0].Address).InFlight == 0 })
}

func TestAClientThatTakesNothingOfItsAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{Stalls: 50 * time.Millisecond})
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<10))
		}
	})
	w.Set(route(proxy.Backend{Address: address, Weight: 1}))
	w.dial(lines("GET / HTTP/1.1", "Host: "+host))
	w.eventually("its request is there", func() bool { return w.of(address).InFlight == 1 })
	w.eventually("its request has ended", func() bool { return w.of(address).InFlight == 0 })
}

// Events may be rare, and an answer may take long: only the client is hurried.
func TestABackendMayBeSilent(t *testing.T) {
	t.Parallel()
	w := setup(t, proxy.Options{Stalls: 50 * time.Millisecond})
	w.Set(route(proxy.Backend{Address: serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range 2 {
			select {
			case <-r.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
			_, _ = io.WriteString(w, "event\n")
			_ = http.NewResponseController(w).Flush()
		}
	}), Weight: 1}))
	for range 2 { // the second on a connection whose deadline has gone by
		status, body := w.do(w.request(http.MethodPost, host, strings.NewReader("body")))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "event\nevent\n", body)
	}
	address := w.Status()[0].Address
	w.Set(route(proxy.Backend{Address: serve(t, echo("one")), Weight: 1}))
	w.eventually("the other one is gone", func() bool { return w.of(address).Address == "" })
	s := w.upgrade(w.Status()[0].Address)
	timer := time.NewTimer(200 * time.Millisecond)
	<-timer.C
	s.says("one")
}

func TestRequestsThatAreNotAdmitted(t *testing.T) {
	t.Parallel()
	var held atomic.Int32
	w := setup(t, proxy.Options{Admit: func(address, of string) (func(), error) {
		if !strings.HasPrefix(address, "127.0.0.1:") || of != host || held.Add(1) > 1 {
			held.Add(-1)
			return nil, errors.New("full")
		}
		return func() { held.Add(-1) }, nil
	}})
	w.Set(route(proxy.Backend{Address: serve(t, echo("one")), Weight: 1}))
	s := w.upgrade(w.Status()[0].Address)
	status, body := w.get(host)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "too many requests")
	require.NoError(t, s.Close())
	w.eventually("its place is free", func() bool { return held.Load() == 0 })
	status, _ = w.get(host)
	require.Equal(t, http.StatusUpgradeRequired, status)
}
