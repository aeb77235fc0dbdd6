package client_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
)

// three are instances of web, of which the first serves as given.
func three(t *testing.T, f *registry, first http.HandlerFunc) {
	t.Helper()
	f.put("web", "i1", serve(t, first), 100)
	for _, id := range []string{"i2", "i3"} {
		f.put("web", id, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }), 100)
	}
}

// get asks through a transport, by a deadline.
func get(t *testing.T, tr http.RoundTripper, method string, by time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), by)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://web.instar/", nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func TestHungInstanceFailsNoCallAndIsEjected(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct{ try, by time.Duration }{
		"its time is over":          {try: time.Second, by: 60 * time.Second},
		"half of the caller's time": {by: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRegistry(t)
			var hung atomic.Int64
			block := make(chan struct{})
			three(t, f, func(http.ResponseWriter, *http.Request) { hung.Add(1); <-block })
			t.Cleanup(func() { close(block) })
			tr := f.client(t).Transport(nil)
			tr.TryTimeout = s.try
			t.Cleanup(tr.Close)
			for range 100 {
				require.NoError(t, get(t, tr, "GET", s.by))
			}
			require.Equal(t, int64(5), hung.Load())
		})
	}
}

// A request that must not be repeated waits for as long as its caller; that the instance let the deadline pass counts.
func TestDeadlinesEject(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	var hung atomic.Int64
	block := make(chan struct{})
	three(t, f, func(http.ResponseWriter, *http.Request) { hung.Add(1); <-block })
	t.Cleanup(func() { close(block) })
	tr := f.client(t).Transport(nil)
	tr.TryTimeout = time.Millisecond
	t.Cleanup(tr.Close)
	failed := 0
	for range 60 {
		if get(t, tr, "POST", time.Second) != nil {
			failed++
		}
	}
	require.Equal(t, 5, failed)
	require.Equal(t, int64(5), hung.Load())
}

// drip is a body that comes in parts.
type drip struct {
	left  int
	pause time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	<-time.After(d.pause)
	return copy(p, "x"), nil
}

// A body that takes longer than a try to be sent is no hung instance; one that is not taken is.
func TestLongUploads(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	block := make(chan struct{})
	f.put("web", "i1", serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-block
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}), 100)
	t.Cleanup(func() { close(block) })
	tr := f.client(t).Transport(nil)
	tr.TryTimeout = 500 * time.Millisecond
	t.Cleanup(tr.Close)
	put := func(path string, body io.Reader) (string, error) {
		req, err := http.NewRequestWithContext(within(t), "PUT", "http://web.instar"+path, body)
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return string(raw), err
	}
	said, err := put("/", &drip{left: 20, pause: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "20", said)
	_, err = put("/hang", io.LimitReader(rand.Reader, 64<<20))
	require.ErrorContains(t, err, "did not answer in time")
}

// repeats sends what GetBody gives, as a transport does that met a connection which was closed.
type repeats struct{ http.RoundTripper }

func (r repeats) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	_ = req.Body.Close()
	req = req.Clone(req.Context())
	req.Body = body
	return r.RoundTripper.RoundTrip(req)
}

// So is one that the transport below begins again.
func TestLongUploadsThatAreRepeated(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	}), 100)
	tr := f.client(t).Transport(repeats{&http.Transport{DisableKeepAlives: true}})
	tr.TryTimeout = 500 * time.Millisecond
	t.Cleanup(tr.Close)
	req, err := http.NewRequestWithContext(within(t), "PUT", "http://web.instar/", &drip{left: 20, pause: 50 * time.Millisecond})
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(&drip{left: 20, pause: 50 * time.Millisecond}), nil
	}
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "20", string(raw))
}

func TestBreakInMidBodyEjects(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	three(t, f, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	tr := f.client(t).Transport(nil)
	t.Cleanup(tr.Close)
	broken := 0
	for range 60 {
		if err := get(t, tr, "GET", 10*time.Second); err != nil {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			broken++
		}
	}
	require.Equal(t, 5, broken)
}

// When all fail, what is sent again is a part of what is sent, and not a multiple.
func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	var served atomic.Int64
	for i := range 5 {
		f.put("web", fmt.Sprintf("i%d", i), serve(t, func(w http.ResponseWriter, _ *http.Request) {
			served.Add(1)
			conn, _, _ := http.NewResponseController(w).Hijack()
			_ = conn.Close()
		}), 100)
	}
	tr := f.client(t).Transport(nil)
	t.Cleanup(tr.Close)
	begun := time.Now()
	const calls = 300
	for range calls {
		require.Error(t, get(t, tr, "GET", 10*time.Second))
	}
	reserve := 10 + int64(time.Since(begun).Seconds()) + 1
	require.LessOrEqual(t, served.Load(), calls+calls/5+reserve)
	require.Greater(t, served.Load(), int64(calls), "some are")
}

func TestIdleServicesAreLetGo(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	three(t, f, func(http.ResponseWriter, *http.Request) {})
	tr := f.client(t).Transport(nil)
	tr.Bound(10, 100*time.Millisecond)
	t.Cleanup(tr.Close)
	require.NoError(t, get(t, tr, "GET", 10*time.Second))
	require.Equal(t, 1, tr.Followed())
	eventually(t, func() bool { return tr.Followed() == 0 })
	eventually(t, func() bool {
		return look(f, func() bool {
			for _, index := range f.watchers {
				return index > 1000
			}
			return false
		})
	}, "it said goodbye")
	require.NoError(t, get(t, tr, "GET", 10*time.Second), "and comes back")
	_, err := tr.Resolver(within(t), "web")
	require.NoError(t, err)
	require.Never(t, func() bool { return tr.Followed() == 0 }, 400*time.Millisecond, 10*time.Millisecond, "one that was handed out stays")
}

func TestManyNamesDoNotKeepOthersOut(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.with(func() { f.down = true })
	tr := f.client(t).Transport(nil)
	tr.Bound(20, time.Hour)
	t.Cleanup(tr.Close)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 30 {
		req, err := http.NewRequestWithContext(over, "GET", fmt.Sprintf("http://s%d.instar/", i), nil)
		require.NoError(t, err)
		_, err = tr.RoundTrip(req) // it fails
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, 20, tr.Followed())
}

func TestConnectionsAreItsOwn(t *testing.T) {
	t.Parallel()
	a, b := &client.Client{}, &client.Client{}
	require.NotSame(t, http.DefaultClient, a.HTTPClient())
	require.NotSame(t, a.HTTPClient().Transport, b.HTTPClient().Transport)
	require.Same(t, a.HTTPClient(), a.In("shop").HTTPClient())
}

func TestRestartedWhileTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	c := f.client(t)
	c.CacheDir = filepath.Join(t.TempDir(), "instances")
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	r.Close()
	nobody, err := c.Resolve(within(t), "nobody", client.Options{})
	require.NoError(t, err)
	nobody.Close()
	files, err := os.ReadDir(c.CacheDir)
	require.NoError(t, err)
	require.Len(t, files, 1, "none of a service without instances")
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(c.CacheDir, files[0].Name()), long, long))

	f.with(func() { f.down = true })
	again := &client.Client{URLs: c.URLs, HTTP: c.HTTP, CacheDir: c.CacheDir}
	r, err = again.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.Equal(t, []string{"i1"}, ids(r.Endpoints()))
	require.Greater(t, r.Staleness(), 59*time.Minute)
	choice, err := r.Pick()
	require.NoError(t, err)
	choice.Done(client.OK)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = again.Resolve(ctx, "web", client.Options{Zone: "b", Version: "2"})
	require.ErrorIs(t, err, context.DeadlineExceeded, "what was filtered otherwise is another question")

	f.with(func() { f.down = false })
	f.put("web", "i2", "10.0.0.2:80", 100)
	eventually(t, func() bool { return r.Staleness() == 0 && len(r.Endpoints()) == 2 })
}

// A registry that takes connections and says nothing is away, too.
func TestRestartedWhileTheRegistryHangs(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	c := f.client(t)
	c.CacheDir = t.TempDir()
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	r.Close()
	block := make(chan struct{})
	addr := f.server.Listener.Addr().String()
	f.stop()
	hung := serveAt(t, addr, func(http.ResponseWriter, *http.Request) { <-block })
	t.Cleanup(hung.Close)
	t.Cleanup(func() { close(block) })
	r, err = c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.Equal(t, []string{"i1"}, ids(r.Endpoints()))
	require.Positive(t, r.Staleness())
}
