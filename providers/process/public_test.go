//go:build linux

package process

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

func ask(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// Its listening socket is the service's own: it stays when the process goes, so that a connection waits for the next one.
func TestAProcessWithThePublicSocketIsReplacedUnderIt(t *testing.T) {
	t.Parallel()
	req := apply("web", "public", 1)
	g, o := servingOne(t, config(t.TempDir()), req)
	require.Equal(t, "web-00001 true", ask(t, o.URL), "LISTEN_PID is right behind the limits, too")
	require.NotContains(t, stateOf(t, g), `"forwarder"`)
	first := pid(t, g, "default.web")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Equal(t, "web-00001 true", ask(t, o.URL))
	require.NotEqual(t, first, pid(t, g, "default.web"))
}

func TestTheLimitsOfATemplateHold(t *testing.T) {
	t.Parallel()
	req := apply("web", "public", 1)
	g, _ := servingOne(t, config(t.TempDir()), req)
	proc := fmt.Sprintf("/proc/%d/", pid(t, g, "default.web"))
	status, err := os.ReadFile(proc + "status")
	require.NoError(t, err)
	require.Contains(t, string(status), "NoNewPrivs:\t1")
	limits, err := os.ReadFile(proc + "limits")
	require.NoError(t, err)
	for name, want := range map[string]string{"Max open files": "256", "Max file size": "1048576", "Max core file size": "0"} {
		require.Regexp(t, name+` +`+want+` +`+want, string(limits))
	}
	dir, err := os.Readlink(proc + "cwd")
	require.NoError(t, err)
	require.Equal(t, g.Home("default", "web"), dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "written"), nil, 0o600))
	require.NoError(t, g.Delete(t.Context(), providers.DeleteRequest{Request: apply("web", "", 2).Request}))
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, awhile, tick, "its directory ends with it")
}

// That of the server may be closed to it, as under systemd, and open to others. What somebody has chosen stays.
func TestATemporaryDirectoryIsInTheHome(t *testing.T) {
	t.Parallel()
	c := config(t.TempDir())
	chosen := c.Templates["public"]
	chosen.Env = map[string]string{"GORACE": noSleep, "TMPDIR": "/of-the-template"}
	c.Templates["chosen"] = chosen
	g := opened(t, c)
	has := func(req providers.ApplyRequest) (env []string, dir string) {
		_, err := g.Apply(t.Context(), req)
		require.NoError(t, err)
		await(t, g, req, converged(req))
		raw, err := os.ReadFile("/proc/" + itoa(pid(t, g, "default."+req.Name)) + "/environ")
		require.NoError(t, err)
		return strings.Split(string(raw), "\x00"), filepath.Join(g.Home("default", req.Name), "tmp")
	}
	env, dir := has(apply("web", "public", 1))
	require.Contains(t, env, "TMPDIR="+dir)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
	require.NoError(t, os.RemoveAll(dir)) // as programs clear theirs
	first := pid(t, g, "default.web")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return err == nil }, awhile, tick, "the next process has it again")

	asked := apply("asked", "public", 1)
	asked.Spec.Env = map[string]string{"TMPDIR": "/of-the-request"}
	for want, req := range map[string]providers.ApplyRequest{"TMPDIR=/of-the-template": apply("chosen", "chosen", 1), "TMPDIR=/of-the-request": asked} {
		env, dir := has(req)
		require.Contains(t, env, want)
		require.NoDirExists(t, dir)
	}
}

func TestWhatHasThePublicSocketForItselfDoesNotChange(t *testing.T) {
	t.Parallel()
	g, _ := servingOne(t, config(t.TempDir()), apply("web", "public", 1))
	_, err := g.Apply(t.Context(), apply("web", "hello", 2))
	require.True(t, providers.IsInvalid(err), "%v", err)
	two := apply("two", "public", 1)
	two.Spec.Scale = service.Scale{Min: 2}
	_, err = g.Apply(t.Context(), two)
	require.True(t, providers.IsInvalid(err), "%v", err)
}

// A later gateway takes the process and its socket up, and has the port of one that does not run.
func TestAPublicSocketOutlivesItsControlPlane(t *testing.T) {
	t.Parallel()
	c, req := config(t.TempDir()), apply("web", "public", 1)
	g, o := begun(t, c, req)
	first := pid(t, g, "default.web")
	require.NoError(t, g.Close(false))
	require.Equal(t, "web-00001 true", ask(t, o.URL))
	g = opened(t, c)
	require.Equal(t, o.URL, await(t, g, req, converged(req)).URL)
	require.Equal(t, first, pid(t, g, "default.web"))
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Equal(t, "web-00001 true", ask(t, o.URL), "the socket was taken back from the process")
}

// Where the kernel gives no socket back, the one of this gateway takes connections as soon as nobody else does, however long the next process takes to begin: also of a program that is ended as
// it hangs, and of a forwarder.
func TestNoConnectionIsRefusedWhereTheSocketIsNotTakenBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, pid int){
		"public": func(t *testing.T, pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGKILL)) },
		"hangs":  freeze,
		"ported": func(t *testing.T, pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, image := config(t.TempDir()), name
			if name == "hangs" {
				image, c.Grace = "public", time.Minute
				public := c.Templates[image]
				public.Hung = 500 * time.Millisecond
				c.Templates[image] = public
			}
			req := apply("web", image, 1)
			req.Spec.Probe.TimeoutMillis = 200
			g, _ := begun(t, c, req)
			require.NoError(t, g.Close(false))
			c.noPidfd, c.Backoff, c.BackoffCap = true, time.Hour, time.Hour
			g = opened(t, c)
			await(t, g, req, converged(req))
			u, err := g.unit("default", "web", false)
			require.NoError(t, err)
			u.mu.Lock()
			s, holder := u.socket, u.holders()[0].PID
			u.mu.Unlock()
			listens := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.listening }
			require.False(t, listens(), "the process has all connections")
			end(t, holder)
			require.Eventually(t, listens, awhile, tick)
			if name == "hangs" {
				require.True(t, runs(holder), "connections are kept from it before it is ended")
				require.NoError(t, syscall.Kill(holder, syscall.SIGKILL))
			}
			conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", s.port))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		})
	}
}

// What the configuration says by then is of what is begun then: a process has the socket that it was started for, and so has the one that takes its place.
func TestARevisionKeepsTheKindOfItsSocket(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{"ported": SocketPublic, "public": SocketPort, "passed": SocketPort} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, req := config(t.TempDir()), apply("web", name, 1)
			g, o := begun(t, c, req)
			answer := ask(t, o.URL)
			require.NoError(t, g.Close(false))
			changed := c.Templates[name]
			changed.Socket = other
			c.Templates[name] = changed
			g = opened(t, c)
			await(t, g, req, converged(req))
			require.Equal(t, answer, ask(t, o.URL))
			first := pid(t, g, "default.web")
			killed(t, first, o.URL)
			await(t, g, req, converged(req))
			require.Equal(t, answer, ask(t, o.URL), "of the next one")
			env, err := os.ReadFile("/proc/" + itoa(pid(t, g, "default.web")) + "/environ")
			require.NoError(t, err)
			require.Equal(t, name == "ported", slices.Contains(strings.Split(string(env), "\x00"), "HOST=127.0.0.1"), "who listens by itself is told where")
		})
	}
}

// An earlier program did not note it. It is noted at the first start after the upgrade, at which the template may have changed already where all had the same.
func TestWhatRanBeforeTheUpgradeKeepsTheKindOfItsSocket(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]string{"public": SocketPublic, "ported": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, req := config(t.TempDir()), apply("web", name, 1)
			c.Earlier = earlier
			g, o := begun(t, c, req)
			answer, first := ask(t, o.URL), pid(t, g, "default.web")
			require.NoError(t, g.Close(false))
			path := filepath.Join(c.Dir, "default.web", "state.json")
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			noted := []byte(`"socket": "` + c.Templates[name].Socket + `",`)
			require.Contains(t, string(raw), string(noted))
			require.NoError(t, os.WriteFile(path, bytes.Replace(raw, noted, nil, 1), 0o600))
			if earlier == "" {
				g, err = Open(c)
				require.NoError(t, err)
				require.NoError(t, g.Close(false))
			}
			changed := c.Templates[name]
			changed.Socket = map[string]string{"public": SocketPort, "ported": SocketPublic}[name]
			c.Templates[name] = changed
			g = opened(t, c)
			require.Equal(t, first, pid(t, g, "default.web"))
			require.Contains(t, stateOf(t, g), string(noted))
			await(t, g, req, converged(req))
			killed(t, first, o.URL)
			require.Equal(t, answer, ask(t, o.URL), "of the next one")
		})
	}
}

func TestPortsComeFromTheRangeUntilThereAreNone(t *testing.T) {
	t.Parallel()
	port := 21000 + os.Getpid()%9000 // below those that the system chooses for others
	for ; ; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			require.NoError(t, l.Close())
			break
		}
	}
	c := config(t.TempDir())
	c.Ports = Ports{First: port, Last: port}
	g := opened(t, c)
	req := apply("web", "public", 1)
	_, err := g.Apply(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("http://127.0.0.1:%d", port), await(t, g, req, converged(req)).URL)
	_, err = g.Apply(t.Context(), apply("two", "public", 1))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("all ports of 127.0.0.1 from %d to %d are in use", port, port))
	require.NoError(t, g.Delete(t.Context(), providers.DeleteRequest{Request: apply("web", "", 2).Request}))
	require.Eventually(t, func() bool { _, err := g.Apply(t.Context(), apply("two", "public", 1)); return err == nil }, awhile, tick, "it is free again")
}

// Until a program listens on the port that it was given, nobody else may.
func TestAPortThatAProgramWasGivenIsNoServices(t *testing.T) {
	t.Parallel()
	g := setup(t)
	given, err := g.ports.Take("a program")
	require.NoError(t, err)
	req := apply("web", "public", 1)
	req.Spec.Port = given
	_, err = g.Apply(t.Context(), req)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	g.ports.Drop("a program")
	_, err = g.Apply(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("http://127.0.0.1:", given), await(t, g, req, converged(req)).URL)
}

// freeze stops a process, and returns when none of its threads goes on.
func freeze(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob("/proc/" + itoa(pid) + "/task/*/stat")
		require.NoError(t, err)
		for _, path := range threads {
			if raw, err := os.ReadFile(path); err == nil && !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" T")) {
				return false
			}
		}
		return true
	}, awhile, tick)
}

// A program that hangs keeps its socket and its process: it is ended, and started anew.
func TestAProcessThatDoesNotAnswerForLongIsStartedAnew(t *testing.T) {
	t.Parallel()
	c, req := config(t.TempDir()), apply("web", "public", 1)
	c.Grace = 100 * time.Millisecond
	public := c.Templates["public"]
	public.Hung = 500 * time.Millisecond
	c.Templates["public"] = public
	req.Spec.Probe.TimeoutMillis = 200
	g, o := servingOne(t, c, req)
	first := pid(t, g, "default.web")
	freeze(t, first)
	require.Equal(t, "web-00001 true", ask(t, o.URL), "the connection waits for the next one")
	require.False(t, runs(first))
	await(t, g, req, converged(req))
	require.NoError(t, g.Close(false)) // nor does one help that hung before a start of the control plane
	second := pid(t, g, "default.web")
	freeze(t, second)
	opened(t, c)
	require.Equal(t, "web-00001 true", ask(t, o.URL))
	require.False(t, runs(second))
}

// After a restart of the machine a program may need longer than when it was deployed: it gets longer each time, so that there is an end of that.
func TestAProcessThatStartsSlowlyIsNotStartedAnewForEver(t *testing.T) {
	t.Parallel()
	c, req := config(t.TempDir()), apply("web", "late", 1)
	c.Grace, req.Spec.Probe.TimeoutMillis = 100*time.Millisecond, 200
	g, o := servingOne(t, c, req)
	require.NoError(t, syscall.Kill(pid(t, g, "default.web"), syscall.SIGKILL))
	require.Eventually(t, func() bool { // who has asked one that is ended then asks again
		resp, err := http.Get(o.URL)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, awhile, tick)
	await(t, g, req, converged(req))
}

// A machine that stood still, as a virtual one does, is no sign of a process that hangs.
func TestAStandstillIsNotCounted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	q := &quiet{last: now}
	after := func(d time.Duration, answered bool) time.Duration {
		now = now.Add(d)
		return q.probed(now, answered, 2*time.Second)
	}
	require.Zero(t, after(time.Second, true))
	require.Equal(t, 2*time.Second, after(time.Hour, false))
	require.Equal(t, 3*time.Second, after(time.Second, false))
	require.Equal(t, 5*time.Second, after(time.Hour, false))
	require.Zero(t, after(time.Hour, true))
	require.Equal(t, time.Second, after(time.Second, false))
}

// killed kills a process, and returns when another one answers in its place.
func killed(t *testing.T, first int, url string) {
	t.Helper()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !runs(first) }, awhile, tick)
	require.Eventually(t, func() bool { // what the one that was killed had accepted is reset
		resp, err := http.Get(url)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, awhile, tick)
}
