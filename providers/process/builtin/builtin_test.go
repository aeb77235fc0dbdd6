package builtin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asEnder {
		waitAsEnder(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m)
}

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// answer is what a handler says to one request.
func answer(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestHelloTellsWhoItIs(t *testing.T) {
	t.Parallel()
	g, err := newGreeter(env(map[string]string{"INSTAR_SERVICE": "<web>", "INSTAR_REVISION": "web-00002"}))
	require.NoError(t, err)
	h := g.handler()
	w := answer(h, "GET", "/", "Accept", "application/json")
	var f facts
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &f))
	f.Uptime = 0
	require.Equal(t, facts{Service: "<web>", Namespace: "default", Revision: "web-00002", Greeting: "Hello from <web>", PID: os.Getpid(), Requests: 1}, f)
	page := answer(h, "GET", "/").Body.String()
	require.Contains(t, page, "Hello from &lt;web&gt;")
	require.Contains(t, page, "web-00002")
	require.Equal(t, http.StatusNotFound, answer(h, "GET", "/other").Code)

	g, err = newGreeter(env(map[string]string{"GREETING": "Again"}))
	require.NoError(t, err)
	require.Contains(t, answer(g.handler(), "GET", "/").Body.String(), "<h1>Again</h1>")
}

func TestHelloDoesAsItIsTold(t *testing.T) {
	t.Parallel()
	g, err := newGreeter(env(nil))
	require.NoError(t, err)
	exited := -1
	g.exit = func(code int) { exited = code }
	h := g.handler()
	require.Equal(t, http.StatusOK, answer(h, "GET", "/healthz").Code)
	require.Equal(t, http.StatusNoContent, answer(h, "POST", "/control?sick=true&slow=1ms").Code)
	require.Equal(t, http.StatusServiceUnavailable, answer(h, "GET", "/healthz").Code)
	require.Equal(t, http.StatusServiceUnavailable, answer(h, "GET", "/").Code)
	answer(h, "POST", "/control?exit=3")
	require.Equal(t, 3, exited)
	for _, query := range []string{"slow=long", "slow=-1s", "sick=maybe", "exit=-1", "exit=x"} {
		require.Equal(t, http.StatusBadRequest, answer(h, "POST", "/control?"+query).Code, query)
	}
	w := answer(h, "POST", "/control?sick=false", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, w.Code, "a page of another site must not steer it")
	_, err = newGreeter(env(map[string]string{"HELLO_SICK": "perhaps"}))
	require.Error(t, err)
}

// site is a directory of sites with one that tries to reach out of itself.
func site(t *testing.T) http.Handler {
	t.Helper()
	sites := t.TempDir()
	dir := filepath.Join(sites, "web")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "docs"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o755))
	for name, text := range map[string]string{
		"secret": "secret", "web/docs/a.txt": "hello", "web/.git/config": "secret", "web/.env": "secret",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(sites, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
	require.NoError(t, os.Symlink("docs/a.txt", filepath.Join(dir, "in")))
	root, err := openSite(sites, "web")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return files(root.FS())
}

func TestStaticServesItsSiteOnly(t *testing.T) {
	t.Parallel()
	h := site(t)
	w := answer(h, "GET", "/docs/a.txt")
	require.Equal(t, "hello", w.Body.String())
	stamp := w.Header().Get("Last-Modified")
	require.Equal(t, http.StatusNotModified, answer(h, "GET", "/docs/a.txt", "If-Modified-Since", stamp).Code)
	require.Equal(t, "hello", answer(h, "GET", "/in").Body.String())
	require.Equal(t, "ell", answer(h, "GET", "/docs/a.txt", "Range", "bytes=1-3").Body.String())
	for _, path := range []string{"/out", "/etc/passwd", "/.env", "/.git/config", "/none", "/../secret", "/%2e%2e/secret", "/docs/..%2f..%2fsecret"} {
		w := answer(h, "GET", path)
		require.NotEqual(t, http.StatusOK, w.Code, path)
		require.NotContains(t, w.Body.String(), "secret\n", path)
	}
	list := answer(h, "GET", "/").Body.String()
	require.Contains(t, list, "docs/")
	require.NotContains(t, list, ".git")
	require.Equal(t, http.StatusMethodNotAllowed, answer(h, "DELETE", "/docs/a.txt").Code)
}

func TestSitesAreNamesOfDirectories(t *testing.T) {
	t.Parallel()
	sites := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(sites, "link")))
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".git", "none", "link"} {
		_, err := openSite(sites, name)
		require.Error(t, err, name)
	}
	_, err := openSite("", "web")
	require.ErrorContains(t, err, "INSTAR_SITES")
}

func TestOnlyTheOwnerSteers(t *testing.T) {
	t.Parallel()
	h := owned("me", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	require.Equal(t, http.StatusForbidden, answer(h, "POST", "/-/activate").Code)
	require.Equal(t, http.StatusForbidden, answer(h, "POST", "/-/targets", "Instar-Owner", "you").Code)
	require.Equal(t, http.StatusNoContent, answer(h, "POST", "/-/activate", "Instar-Owner", "me").Code)
	require.Equal(t, http.StatusNoContent, answer(h, "GET", "/healthz").Code)
}

func TestForwardHoldsConnectionsUntilThereIsATarget(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "reached") }))
	defer target.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &forwarder{}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	body := make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			body <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		body <- string(text)
	}()
	select {
	case text := <-body:
		require.FailNow(t, "answered without a target", text)
	case <-time.After(3 * again):
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())
	targets, err := json.Marshal([]string{dead.Addr().String(), target.Listener.Addr().String()})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	f.aim(w, httptest.NewRequest("POST", "/-/targets", strings.NewReader(string(targets))))
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Equal(t, "reached", <-body)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-served, net.ErrClosed)
	require.True(t, f.Drain(t.Context()))
}

func TestDrainingAnswersAndCloses(t *testing.T) {
	t.Parallel()
	w := newWeb(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- w.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func() *http.Response {
		resp, err := client.Get("http://" + l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	require.False(t, ask().Close)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-served, net.ErrClosed)
	drained := make(chan bool, 1)
	go func() { drained <- w.Drain(context.Background()) }()
	require.Eventually(t, w.draining.Load, time.Second, time.Millisecond)
	require.True(t, ask().Close, "on the connection that was open")
	require.True(t, <-drained)
}

// late returns from Accept with a connection when it is told to, whatever was closed since the connection came.
type late struct {
	net.Listener
	has, give chan struct{}
}

func (l *late) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		close(l.has)
		<-l.give
	}
	return c, err
}

// A connection that is accepted while the socket is closed is answered: it is nobody's who accepts after that.
func TestDrainingMissesNoConnection(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &late{Listener: inner, has: make(chan struct{}), give: make(chan struct{})}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	p := &program{acceptor: newWeb(handler), sockets: &sockets{public: func() (net.Listener, error) { return l, nil }}, failed: make(chan error, 2)}
	require.NoError(t, p.activate())
	status := make(chan string, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + inner.Addr().String())
		if err != nil {
			status <- err.Error()
			return
		}
		_ = resp.Body.Close()
		status <- resp.Status
	}()
	<-l.has
	drained := make(chan error, 1)
	go func() { drained <- p.drain() }()
	select {
	case <-drained:
		t.Error("it is drained while a connection is on its way")
		drained <- nil
	case <-time.After(3 * again):
	}
	close(l.give)
	require.Equal(t, "204 No Content", <-status)
	require.NoError(t, <-drained)
}

// silent is a connection that nothing was said on when no more are accepted.
func silent(t *testing.T, w *web) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- w.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.Eventually(t, func() bool { _, none := w.resting(true); return !none }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-served, net.ErrClosed)
	return conn
}

// Who has connected, and says what it wants when those that rest are closed, is answered.
func TestDrainingWaitsForWhoHasNotAskedYet(t *testing.T) {
	t.Parallel()
	w := newWeb(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) }))
	conn := silent(t, w)
	drained := make(chan bool, 1)
	go func() { drained <- w.Drain(context.Background()) }()
	select {
	case <-drained:
		t.Error("it is drained with a connection that nothing was said on")
	case <-time.After(lead + 5*again):
	}
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "204 No Content")
	require.Contains(t, string(answer), "Connection: close")
	require.True(t, <-drained)
}

// Who says nothing holds nobody up for long.
func TestDrainingWaitsForASilentClientForAWhile(t *testing.T) {
	t.Parallel()
	w := newWeb(http.NotFoundHandler())
	silent(t, w)
	began := time.Now()
	require.True(t, w.Drain(context.Background()))
	require.Less(t, time.Since(began), 9*time.Second)
}

func TestMainKnowsItsPrograms(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.Equal(t, 2, run(nil, &out))
	require.Equal(t, 2, run([]string{"sh"}, &out))
	require.Equal(t, 1, run([]string{"exec"}, &out))
	for _, users := range [][]string{{"end"}, {"end", "70000"}, {"end", "70000", "0"}, {"end", "0", "70000"}, {"end", "70000", "70000"}} {
		require.Equal(t, 1, run(users, &out))
	}
	require.Equal(t, 1, run([]string{"exec", "/no/such/program"}, &out))
	require.Contains(t, out.String(), "there are hello, static")
	require.Contains(t, out.String(), "cannot run /no/such/program")
}
