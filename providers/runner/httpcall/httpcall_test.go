package httpcall

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/rebind"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/guard"
)

func open() *Client { return &Client{} } // its guard admits this host

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("x", 100)))
		case "/later":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("nothing"))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("x"))
		default:
			w.Header().Set("Content-Type", "text/x")
			_, _ = fmt.Fprint(w, r.Method, r.Header.Get("X-A"), r.Header.Get("Idempotency-Key"))
		}
	})
	c := &Client{MaxBody: 10, Headers: map[string]string{"Idempotency-Key": "k"}}
	a, err := c.Do(t.Context(), &Call{Method: "PUT", URL: at, Headers: map[string]string{"x-a": "1"}})
	require.NoError(t, err)
	require.Equal(t, &Answer{Status: 200, Type: "text/x", Body: []byte("PUT1k")}, a)
	a, err = c.Do(t.Context(), &Call{URL: at + "/long"})
	require.NoError(t, err)
	require.Len(t, a.Body, 10)
	require.True(t, a.Cut)
	_, err = c.Do(t.Context(), &Call{URL: at + "/later"})
	require.Equal(t, providers.Later(7*time.Second, "it was answered with 503 Service Unavailable"), err)
	a, err = c.Do(t.Context(), &Call{URL: at + "/missing"})
	require.True(t, providers.IsInvalid(err))
	require.Equal(t, "nothing", string(a.Body))
	_, err = c.Do(t.Context(), &Call{URL: at + "/cut"})
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

func TestItGoesNowhereElse(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 10)
	inside := serve(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(inside, "http://"))
	to := ""
	front := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
	frontAt := netip.MustParseAddrPort(strings.TrimPrefix(front, "http://"))
	_ = frontAt
	strict := &Client{Guard: guard.Guard{Public: true}}
	for _, u := range []string{inside, "http://169.254.169.254/latest", "http://[::1]:" + port, "http://0.0.0.0:" + port, "http://localhost:" + port} {
		_, err := strict.Do(t.Context(), &Call{URL: u})
		require.ErrorContains(t, err, "may not be connected to", u)
		require.True(t, providers.IsInvalid(err))
	}
	// Where a redirect leads is judged, too: the front may be reached, this program's own listener may not.
	own := &Client{Guard: guard.Guard{Own: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:" + port)} }}}
	to = inside
	_, err := own.Do(t.Context(), &Call{URL: front})
	require.ErrorContains(t, err, "it is this program's own")
	// A name that leads elsewhere by now.
	moved := &Client{Guard: guard.Guard{Public: true, Resolver: rebind.Resolver(t, "127.0.0.1")}}
	_, err = moved.Do(t.Context(), &Call{URL: "http://shop.example:" + port})
	require.ErrorContains(t, err, "may not be connected to")
	require.Empty(t, seen)
	// What is for one host is not told to another.
	_, err = open().Do(t.Context(), &Call{URL: front, Headers: map[string]string{"X-Key": "s", "Authorization": "s"}})
	require.NoError(t, err)
	r := <-seen
	require.Empty(t, r.Header.Get("X-Key")+r.Header.Get("Authorization"))
	for _, elsewhere := range []string{"file:///etc/passwd", "http://u:p@127.0.0.1:" + port, "gopher://x"} {
		to = elsewhere
		_, err = open().Do(t.Context(), &Call{URL: front})
		require.ErrorContains(t, err, "no URL of http or https", elsewhere)
	}
	to = front
	_, err = open().Do(t.Context(), &Call{URL: front})
	require.ErrorContains(t, err, "more than 5 times")
}

// A body is for one host: 307 and 308 would send it again.
func TestABodyGoesToNoOtherHost(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 10)
	inside := serve(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	to := inside
	front := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) })
	_, err := open().Do(t.Context(), &Call{Method: http.MethodPost, URL: front, Body: "secret"})
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "with its body to another host")
	require.Empty(t, seen)
	_, err = open().Do(t.Context(), &Call{URL: front})
	require.NoError(t, err, "there is nothing to tell")
}

func TestTheContextEndsIt(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	at := serve(t, func(http.ResponseWriter, *http.Request) { close(began); <-end })
	t.Cleanup(func() { close(end) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := open().Do(ctx, &Call{URL: at}); done <- err }()
	<-began
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []Call{
		{URL: "ftp://x"},
		{URL: "http://"},
		{URL: "/x"},
		{URL: "http://u:p@x"},
		{URL: "http://x", Method: "CONNECT"},
		{URL: "http://x\n"},
		{URL: "http://x", Headers: map[string]string{"Host": "y"}},
		{URL: "http://x", Headers: map[string]string{"A": "b\r\nC: d"}},
		{URL: "http://x", Headers: map[string]string{"A B": "c"}},
	} {
		require.True(t, providers.IsInvalid(Check(&c)), "%+v", c)
	}
	require.NoError(t, Check(&Call{URL: "https://example.com/a?b=c", Method: "POST", Headers: map[string]string{"Content-Type": "text/plain"}}))
}
