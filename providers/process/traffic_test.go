//go:build linux

package process

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// hammer asks a service all the time: every second client on a connection of its own per request.
type hammer struct {
	done, failed atomic.Int64
	first        atomic.Value // error
	answers      sync.Map     // revision: true
}

// strike starts clients; the function returned ends them.
func (h *hammer) strike(t *testing.T, url string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var clients sync.WaitGroup
	for i := range 4 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}, Timeout: 10 * time.Second}
		clients.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				h.ask(client, url)
			}
		})
	}
	stop = func() { cancel(); clients.Wait() }
	t.Cleanup(stop)
	return stop
}

func (h *hammer) ask(client *http.Client, url string) {
	req, _ := http.NewRequest(http.MethodGet, url, nil)
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err != nil {
		h.failed.Add(1)
		h.first.CompareAndSwap(nil, err)
		return
	}
	h.done.Add(1)
	h.answers.Store(revisionIn(string(body)), true)
}

func revisionIn(body string) string {
	for _, name := range []string{"-00001", "-00002", "-00003"} {
		if strings.Contains(body, name) {
			return name
		}
	}
	return body
}

// more waits until that many further requests were answered.
func (h *hammer) more(t *testing.T, n int64) {
	t.Helper()
	want := h.done.Load() + n
	require.Eventually(t, func() bool { return h.done.Load() >= want }, awhile, tick)
}

func (h *hammer) unharmed(t *testing.T) {
	t.Helper()
	require.Zero(t, h.failed.Load(), "of %d: %v", h.done.Load(), h.first.Load())
	t.Logf("%d requests, none failed", h.done.Load())
}

func TestAnUpdateFailsNoRequest(t *testing.T) {
	t.Parallel()
	for _, images := range [][3]string{{"hello", "hello", "hello"}, {"ported", "passed", "ported"}, {"hello", "passed", "hello"}} {
		t.Run(strings.Join(images[:], ","), func(t *testing.T) {
			t.Parallel()
			g := setup(t)
			first := apply("web", images[0], 1)
			_, err := g.Apply(t.Context(), first)
			require.NoError(t, err)
			o := await(t, g, first, converged(first))
			h := &hammer{}
			stop := h.strike(t, o.URL)
			for generation := uint64(2); generation <= 3; generation++ {
				h.more(t, 50)
				req := apply("web", images[generation-1], generation)
				req.Spec.Scale.Min = int(generation)
				_, err := g.Apply(t.Context(), req)
				require.NoError(t, err)
				await(t, g, req, func(o *service.Observation) bool { return converged(req)(o) && len(o.Revisions) == 1 })
			}
			h.more(t, 50)
			stop()
			h.unharmed(t)
			for _, name := range []string{"-00001", "-00002", "-00003"} {
				_, served := h.answers.Load(name)
				require.True(t, served, name)
			}
		})
	}
}

func TestACrashRefusesNoConnection(t *testing.T) {
	t.Parallel()
	g := setup(t)
	req := apply("web", "hello", 1)
	_, err := g.Apply(t.Context(), req)
	require.NoError(t, err)
	o := await(t, g, req, converged(req))
	before := pid(t, g, "default.web")
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
	h := &hammer{} // begins after the kill: what was accepted by then is lost
	stop := h.strike(t, o.URL)
	h.more(t, 100)
	stop()
	h.unharmed(t)
	await(t, g, req, converged(req))
	require.NotEqual(t, before, pid(t, g, "default.web"))
}

func TestTheServiceOutlivesItsControlPlane(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"pidfd", "beside"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			web, port := apply("web", "hello", 1), apply("port", "ported", 1)
			plane := startControlPlane(t, dir)
			t.Cleanup(func() { // if the test ends before it opens a gateway of its own
				if g, err := Open(config(dir)); err == nil {
					require.NoError(t, g.Close(true))
				}
			})
			urls := urlsOf(t, dir)
			var hammers []*hammer
			var stops []func()
			for _, url := range urls {
				h := &hammer{}
				hammers, stops = append(hammers, h), append(stops, h.strike(t, url))
				h.more(t, 50)
			}
			require.NoError(t, plane.Process.Kill())
			require.Error(t, plane.Wait())
			for _, h := range hammers {
				h.more(t, 100)
			}
			c := config(dir)
			c.noPidfd = mode == "beside"
			g := opened(t, c)
			for i, req := range []providers.ApplyRequest{web, port} {
				o := await(t, g, req, converged(req))
				require.Equal(t, urls[i], o.URL)
				next := apply(req.Name, req.Spec.Image, 2)
				_, err := g.Apply(t.Context(), next)
				require.NoError(t, err)
				await(t, g, next, func(o *service.Observation) bool { return converged(next)(o) && len(o.Revisions) == 1 })
				hammers[i].more(t, 50)
				stops[i]()
				hammers[i].unharmed(t)
			}
		})
	}
}

func startControlPlane(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "control-plane", dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for _, want := range []string{"open", "applied <nil>", "applied <nil>"} {
		require.True(t, lines.Scan())
		require.Equal(t, want, lines.Text())
	}
	return cmd
}

// urlsOf reads where the services of a control plane in another process are, when both serve.
func urlsOf(t *testing.T, dir string) []string {
	t.Helper()
	var urls []string
	g := &Gateway{config: Config{Host: "127.0.0.1"}}
	require.Eventually(t, func() bool {
		states, err := load(dir)
		urls = nil
		for _, key := range []string{"web", "port"} {
			for _, s := range states {
				if s.Name == key && s.Serving != "" {
					urls = append(urls, (&unit{gateway: g, state: s}).url())
				}
			}
		}
		return err == nil && len(urls) == 2
	}, awhile, tick)
	return urls
}

func TestAStopLeavesTheServiceRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := config(dir)
	g := opened(t, c)
	req := apply("web", "hello", 1)
	_, err := g.Apply(t.Context(), req)
	require.NoError(t, err)
	o := await(t, g, req, converged(req))
	before := pid(t, g, "default.web")
	h := &hammer{}
	stop := h.strike(t, o.URL)
	h.more(t, 20)
	require.NoError(t, g.Close(false))
	h.more(t, 20)
	g = opened(t, c)
	await(t, g, req, converged(req))
	require.Equal(t, before, pid(t, g, "default.web"))
	h.more(t, 20)
	stop()
	h.unharmed(t)
	require.NoError(t, g.Close(true))
	require.Eventually(t, func() bool { return !runs(before) }, awhile, tick)
}

func TestAnUpdateGoesOnUnderTheNextControlPlane(t *testing.T) {
	t.Parallel()
	c := config(t.TempDir())
	g := opened(t, c)
	first := apply("web", "hello", 1)
	_, err := g.Apply(t.Context(), first)
	require.NoError(t, err)
	o := await(t, g, first, converged(first))
	h := &hammer{}
	stop := h.strike(t, o.URL)
	for i, image := range []string{"ported", "hello"} {
		req := apply("web", image, uint64(i+2))
		_, err := g.Apply(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, g.Close(false)) // while the new revision starts
		g = opened(t, c)
		await(t, g, req, converged(req))
		require.NoError(t, g.Close(false)) // while the old one is to be ended
		g = opened(t, c)
		await(t, g, req, func(o *service.Observation) bool { return converged(req)(o) && len(o.Revisions) == 1 })
		h.more(t, 50)
	}
	require.Eventually(t, func() bool { return !strings.Contains(stateOf(t, g), `"forwarder"`) }, awhile, tick)
	h.more(t, 50)
	stop()
	h.unharmed(t)
}

// stateOf is the state file of the service.
func stateOf(t *testing.T, g *Gateway) string {
	t.Helper()
	raw, err := os.ReadFile(g.config.Dir + "/default.web/state.json")
	require.NoError(t, err)
	return string(raw)
}

// What a process knows, which may be a tenant's, steers the traffic of no other one; a later gateway still does.
func TestOnlyTheGatewaySteersAForwarder(t *testing.T) {
	t.Parallel()
	c, req := config(t.TempDir()), apply("web", "ported", 1)
	g, o := begun(t, c, req)
	env, err := os.ReadFile("/proc/" + itoa(pid(t, g, "default.web")) + "/environ")
	require.NoError(t, err)
	u := g.units["default.web"]
	u.mu.Lock()
	at, secret := u.state.Forwarder.Address, u.state.Forwarder.Secret
	u.mu.Unlock()
	require.NotContains(t, string(env), "INSTAR_SECRET=")
	for _, known := range strings.Split(string(env), "\x00") {
		_, value, _ := strings.Cut(known, "=")
		order, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/-/targets", strings.NewReader("[]"))
		require.NoError(t, err)
		order.Header.Set("Instar-Owner", value)
		resp, err := http.DefaultClient.Do(order)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusForbidden, resp.StatusCode, known)
	}
	require.NoError(t, g.Close(false))
	g = opened(t, c)
	next := apply("web", "ported", 2)
	_, err = g.Apply(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, o.URL, await(t, g, next, converged(next)).URL)
	require.Contains(t, ask(t, o.URL), "web-00002")
	require.Contains(t, stateOf(t, g), secret, "of the same process")
}

// A program that did not know of the secret has had the forwarder meanwhile: nobody can steer it any more, so another takes its place.
func TestAForwarderWhoseSecretIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	c, req := config(t.TempDir()), apply("web", "ported", 1)
	g, o := begun(t, c, req)
	require.NoError(t, g.Close(false))
	path := filepath.Join(c.Dir, "default.web", "state.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	secret := regexp.MustCompile(`,\s*"secret": "[^"]+"`)
	require.Regexp(t, secret, string(raw))
	require.NoError(t, os.WriteFile(path, secret.ReplaceAll(raw, nil), 0o600))
	g = opened(t, c)
	next := apply("web", "ported", 2)
	_, err = g.Apply(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, o.URL, await(t, g, next, converged(next)).URL)
	require.Contains(t, ask(t, o.URL), "web-00002")
	require.Regexp(t, secret, stateOf(t, g))
}
