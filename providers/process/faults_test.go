//go:build linux

package process

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process/child"
	"github.com/bcc94042/instar/providers/process/probe"
)

// servingOne is a gateway with one service that serves.
func servingOne(t *testing.T, c Config, req providers.ApplyRequest) (*Gateway, service.Observation) {
	t.Helper()
	g := opened(t, c)
	_, err := g.Apply(t.Context(), req)
	require.NoError(t, err)
	return g, await(t, g, req, converged(req))
}

// control makes a hello misbehave.
func control(t *testing.T, url, query string) {
	t.Helper()
	resp, err := probe.Client.Post(url+"/control?"+query, "", nil)
	if err == nil { // it may be told to exit before it answers
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
	}
}

func TestASickProcessIsNotReady(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	g, o := servingOne(t, config(t.TempDir()), req)
	control(t, o.URL, "sick=true")
	o = await(t, g, req, func(o *service.Observation) bool { return o.Ready == machines.False })
	require.Equal(t, "Unhealthy", o.Reason)
	require.Equal(t, machines.False, o.Route)
	control(t, o.URL, "sick=false")
	await(t, g, req, converged(req))
}

func TestACrashLoopIsToldAndHeals(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	c := config(t.TempDir())
	c.Backoff, c.BackoffCap = time.Minute, time.Minute
	c.Crashes = 1
	g, o := servingOne(t, c, req)
	control(t, o.URL, "exit=9")
	o = await(t, g, req, func(o *service.Observation) bool { return o.Ready == machines.False })
	require.Equal(t, service.ReasonExited, o.Reason)
	require.Contains(t, o.Message, "exit code 9")
	require.Equal(t, int64(1), o.Generation)
	next := apply("web", "hello", 2) // does not wait for the restart
	_, err := g.Apply(t.Context(), next)
	require.NoError(t, err)
	await(t, g, next, converged(next))
}

func TestAFailedRevisionSaysWhatItSaidLast(t *testing.T) {
	t.Parallel()
	g := setup(t)
	req := apply("web", "static", 1)
	_, err := g.Apply(t.Context(), req)
	require.NoError(t, err)
	o := await(t, g, req, func(o *service.Observation) bool { return o.Ready == machines.False })
	require.Equal(t, service.ReasonRevisionFailed, o.Reason)
	require.Contains(t, o.Message, `there is no site "web"`)
	require.Equal(t, service.ReasonExited, o.Revisions[0].Reason)
}

func TestARequestUnderWaySurvivesAnUpdate(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	req.Spec.Env = map[string]string{"HELLO_SLOW": "800ms"}
	g, o := servingOne(t, config(t.TempDir()), req)
	answered := make(chan string, 1)
	go func() {
		resp, err := probe.Client.Get(o.URL)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		answered <- revisionIn(string(body))
		if err != nil {
			answered <- err.Error()
		}
	}()
	next := apply("web", "hello", 2)
	_, err := g.Apply(t.Context(), next)
	require.NoError(t, err)
	await(t, g, next, converged(next))
	require.Equal(t, "-00001", <-answered)
}

func TestAStubbornProcessIsKilled(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	req.Spec.Env = map[string]string{"HELLO_SLOW": "1h"}
	req.Spec.Probe.Path = "/healthz"
	c := config(t.TempDir())
	c.Grace = 200 * time.Millisecond
	g, o := servingOne(t, c, req)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := probe.Client.Get(o.URL); err == nil {
			resp.Body.Close()
		}
	}()
	before := pid(t, g, "default.web")
	require.NoError(t, g.Delete(t.Context(), providers.DeleteRequest{Request: req.Request}))
	<-ended
	require.Eventually(t, func() bool { return !runs(before) }, awhile, tick)
}

func TestLogsAreBounded(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	g, _ := servingOne(t, config(t.TempDir()), req)
	path := logOf(g, "default.web", "web-00001")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	for range 3 {
		_, err = f.WriteString(strings.Repeat("x", 10<<10) + "end\n")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			now, err := os.Stat(path)
			return err == nil && now.Size() <= g.config.LogBytes
		}, awhile, tick)
	}
	kept, err := os.ReadFile(path + ".1")
	require.NoError(t, err)
	require.Len(t, kept, int(g.config.LogBytes))
	require.True(t, strings.HasSuffix(string(kept), "end\n"))
}

func TestAProcessThatNoStateFileKnowsIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := opened(t, config(dir))
	require.NoError(t, g.Close(false))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	p, err := child.Start(child.Command{
		Args: []string{"/bin/sleep", "3600"}, Env: []string{child.OwnerVar + "=" + g.owner}, Dir: "/",
		Files: []int{int(null.Fd()), int(null.Fd()), int(null.Fd())},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(-p.PID, syscall.SIGKILL) })
	opened(t, config(dir))
	ctx, cancel := context.WithTimeout(t.Context(), awhile)
	defer cancel()
	require.NoError(t, p.Watch(ctx.Done()))
	require.Equal(t, "ended by SIGKILL", p.Exit().String())
}

// A control plane that starts holds no socket for what is gone.
func TestWhatIsGoneHoldsNoSocket(t *testing.T) {
	t.Parallel()
	g := setup(t)
	s, err := bind("127.0.0.1", 0, false)
	require.NoError(t, err)
	u := g.newUnit(&state{Namespace: "default", Name: "web", Gone: true, Port: s.port})
	s.close()
	u.takeBack()
	require.Nil(t, u.socket)
	s, err = bind("127.0.0.1", u.state.Port, false)
	require.NoError(t, err)
	s.close()
}

func TestADirectoryHasOneControlPlane(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := opened(t, config(dir))
	_, err := Open(config(dir))
	require.ErrorContains(t, err, "another control plane")
	require.NoError(t, g.Close(false))
	_, err = g.Apply(t.Context(), apply("web", "hello", 1))
	require.True(t, providers.IsUnavailable(err))
	opened(t, config(dir))
}

func TestPortsAreKeptAndNotShared(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	g := setup(t)
	req := apply("web", "hello", 1)
	req.Spec.Port = l.Addr().(*net.TCPAddr).Port
	_, err = g.Apply(t.Context(), req)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.NoError(t, l.Close())
	require.Eventually(t, func() bool { // another test may be given the port meanwhile, for a moment
		_, err = g.Apply(t.Context(), req)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	o := await(t, g, req, converged(req))
	require.Equal(t, "http://"+l.Addr().String(), o.URL)
	other := apply("other", "hello", 1)
	other.Spec.Port = req.Spec.Port
	_, err = g.Apply(t.Context(), other)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	moved := apply("web", "hello", 2)
	moved.Spec.Port = 1
	_, err = g.Apply(t.Context(), moved)
	require.True(t, providers.IsInvalid(err), "%v", err)
}

func TestScaleIsTheNumberOfProcesses(t *testing.T) {
	t.Parallel()
	req := apply("web", "hello", 1)
	req.Spec.Scale.Min = 3
	g, o := servingOne(t, config(t.TempDir()), req)
	h := &hammer{}
	stop := h.strike(t, o.URL)
	h.more(t, 50)
	require.Equal(t, machines.True, o.Ready)
	require.Equal(t, 3, strings.Count(stateOf(t, g), `"pid"`))
	stop()
	h.unharmed(t)
}

func TestSpecsThatCannotRunAreInvalid(t *testing.T) {
	t.Parallel()
	g := setup(t)
	env := func(name, value string) service.Spec {
		return service.Spec{Image: "hello", Env: map[string]string{name: value}}
	}
	for what, spec := range map[string]service.Spec{
		"image": {Image: "/bin/sh"}, "scale": {Image: "hello", Scale: service.Scale{Min: 2, Max: 1}},
		"probe": {Image: "hello", Probe: service.Probe{Type: "exec"}}, "path": {Image: "hello", Probe: service.Probe{Path: "x"}},
		"PATH": env("PATH", "/tmp"), "preload": env("LD_PRELOAD", "/tmp/x.so"), "fds": env("LISTEN_FDS", "1"),
		"own": env("INSTAR_OWNER", "me"), "node": env("NODE_OPTIONS", "--require=/tmp/x"), "port": env("PORT", "1"),
		"name": env("A=B", "c"), "nul": env("A", "\x00"), "much": env("A", strings.Repeat("x", 64<<10)),
	} {
		req := apply("web", "", 1)
		req.Spec = spec
		_, err := g.Apply(t.Context(), req)
		require.True(t, providers.IsInvalid(err), "%s: %v", what, err)
	}
	for _, kind := range service.ProbeTypes {
		require.NoError(t, g.config.checkSpec(&service.Spec{Image: "hello", Probe: service.Probe{Type: kind}}))
	}
	for _, name := range []string{"", "../x", "a.b", "A", strings.Repeat("a", 64)} {
		_, err := g.Apply(t.Context(), apply(name, "hello", 1))
		require.True(t, providers.IsInvalid(err), "%s: %v", name, err)
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"no directory":        {},
		"not an IP address":   {Dir: t.TempDir(), Host: "localhost"},
		"no name":             {Dir: t.TempDir(), Templates: map[string]Template{"A/B": {Command: []string{"true"}}}},
		"no command":          {Dir: t.TempDir(), Templates: map[string]Template{"a": {}}},
		"executable file not": {Dir: t.TempDir(), Templates: map[string]Template{"a": {Command: []string{"no-such-program"}}}},
		"socket":              {Dir: t.TempDir(), Templates: map[string]Template{"a": {Command: []string{"true"}, Socket: "magic"}}},
		"self":                {Dir: t.TempDir(), Self: []string{"no-such-program"}},
	} {
		_, err := Open(c)
		require.ErrorContains(t, err, want)
	}
}

// Processes run in another directory than the control plane.
func TestPathsAreAbsolute(t *testing.T) {
	t.Parallel()
	c, err := Config{Dir: "data/process", Sites: "data/sites"}.complete()
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(c.Dir) && filepath.IsAbs(c.Sites), "%s %s", c.Dir, c.Sites)
}

func TestSecretsOfTheControlPlaneStayThere(t *testing.T) {
	t.Setenv("INSTAR_TEST_SECRET", "hidden")
	req := apply("web", "passed", 1)
	g, _ := servingOne(t, config(t.TempDir()), req)
	env, err := os.ReadFile("/proc/" + itoa(pid(t, g, "default.web")) + "/environ")
	require.NoError(t, err)
	require.NotContains(t, string(env), "hidden")
	require.Contains(t, string(env), "LISTEN_PID="+itoa(pid(t, g, "default.web"))+"\x00")
}
