package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
)

func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &client.Client{Base: s.URL, HTTP: s.Client()}
}

func TestOnlyWhatIsSafeIsRepeated(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	c := serve(t, func(http.ResponseWriter, *http.Request) {
		n.Add(1)
		panic(http.ErrAbortHandler)
	})
	for _, tc := range []struct {
		r    client.Request
		want int32
	}{
		{client.Request{Path: "/"}, 3},
		{client.Request{Method: http.MethodPost, Path: "/"}, 1},
		{client.Request{Method: http.MethodPost, Path: "/", Header: http.Header{"Idempotency-Key": {"k"}}}, 3},
	} {
		n.Store(0)
		c.HTTP.CloseIdleConnections() // net/http repeats by itself on a connection that was used before
		_, err := c.Do(t.Context(), tc.r)
		var u *client.Unreachable
		require.ErrorAs(t, err, &u)
		require.Equal(t, tc.want, n.Load())
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/typed":
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.WriteHeader(409)
			fmt.Fprint(w, `{"type":"https://x/docs#problem-guard-rejected","status":1,"detail":"needs x"}`)
		case "/page":
			w.WriteHeader(502)
			fmt.Fprint(w, "bad gateway\n")
		case "/empty":
			w.WriteHeader(418)
		}
	})
	for path, want := range map[string]string{"/typed": "problem-guard-rejected: needs x", "/page": "HTTP 502: bad gateway", "/empty": "what answers at " + c.Base + " is no Instar: HTTP 418: I'm a teapot"} {
		_, err := c.Do(t.Context(), client.Request{Path: path})
		require.EqualError(t, err, want)
	}
}

func TestWatchIsResumedAndEnds(t *testing.T) {
	t.Parallel()
	var ids []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "retry: 1\nid: %d\r\nevent: entity\ndata: a\ndata: b\n\n: comment\n\nid: %d0\n\n", len(ids), len(ids))
	})
	var got []string
	lost := 0
	err := c.Watch(t.Context(), client.Watching{Path: "/", Lost: func(error, time.Duration) { lost++ }, Each: func(e client.Event) error {
		got = append(got, e.ID+" "+e.Name+" "+string(e.Data))
		if len(got) == 3 {
			return client.ErrStop
		}
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"1 entity a\nb", "2 entity a\nb", "3 entity a\nb"}, got)
	require.Equal(t, []string{"", "10", "20"}, ids, "an id without an event counts, too")
	require.Equal(t, 2, lost)
}

func TestWatchGivesUp(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(403)
		case "/silent":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprint(w, "data: x\n\n")
		}
	})
	err := c.Watch(t.Context(), client.Watching{Path: "/", Each: func(client.Event) error { return broken }})
	require.ErrorIs(t, err, broken)

	var p *client.Problem
	require.ErrorAs(t, c.Watch(t.Context(), client.Watching{Path: "/refused"}), &p)

	ctx, cancel := context.WithCancel(t.Context())
	err = c.Watch(ctx, client.Watching{Path: "/silent", Quiet: 10 * time.Millisecond, Lost: func(error, time.Duration) { cancel() }})
	require.ErrorIs(t, err, context.Canceled, "silence is a loss, and then the caller ended it")

	var u *client.Unreachable
	gone := &client.Client{Base: "http://127.0.0.1:1", HTTP: http.DefaultClient}
	require.ErrorAs(t, gone.Watch(t.Context(), client.Watching{Path: "/"}), &u, "who was never there is not waited for")
}

// A NATS server greets whoever connects: net/http says different things of that when it comes before the request, which
// the second case makes sure of, or after it.
func TestAServerThatSpeaksFirst(t *testing.T) {
	for greeting, want := range map[string]string{"INFO {\"server_id\":\"N\"}\r\n": "NATS server", "220 mail.example ESMTP\r\n": "speaks no HTTP"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, greeting)
				defer conn.Close() // all at the end
			}
		}()
		for _, spokeFirst := range []bool{false, true} {
			ctx, dial := t.Context(), new(net.Dialer).DialContext
			if spokeFirst {
				hungUp := make(chan struct{})
				ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { <-hungUp }})
				dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, address)
					return hangsUp{Conn: conn, hungUp: sync.OnceFunc(func() { close(hungUp) })}, err
				}
			}
			c := &client.Client{Base: "http://" + l.Addr().String(), HTTP: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
			_, err = c.Do(ctx, client.Request{Path: "/"})
			var foreign *client.Foreign
			require.ErrorAs(t, err, &foreign)
			require.Contains(t, foreign.Said, want)
		}
	}
}

// hangsUp tells when the client closes the connection, as it does when it hears what it did not ask for.
type hangsUp struct {
	net.Conn
	hungUp func()
}

func (c hangsUp) Close() error {
	c.hungUp()
	return c.Conn.Close()
}
