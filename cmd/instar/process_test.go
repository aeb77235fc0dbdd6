package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bcc94042/instar/internal/lockedbuffer"

	"github.com/stretchr/testify/require"
)

// launched is the program as a process of its own.
type launched struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lockedbuffer.Buffer
	ends chan error
}

// launch starts the program; it is killed when the test ends.
func launch(t *testing.T, args ...string) *launched {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith starts it with more variables in its environment.
func launchWith(t *testing.T, env []string, args ...string) *launched {
	t.Helper()
	p := &launched{t: t, out: &lockedbuffer.Buffer{}, ends: make(chan error, 1), cmd: exec.Command(os.Args[0], args...)} // see TestMain
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	require.NoError(t, p.cmd.Start())
	go func() { p.ends <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		if t.Failed() {
			t.Log(p.out.String())
		}
	})
	return p
}

// launchDev starts a server on a directory, on ports of its own choice.
func launchDev(t *testing.T, dir string) *launched {
	t.Helper()
	return launch(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--gateway", "simulated", "--postgres", "off")
}

func (p *launched) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGKILL))
	<-p.ends
}

// ready waits until the server is ready and tells its address.
func (p *launched) ready(within time.Duration) string {
	p.t.Helper()
	url := ""
	require.Eventually(p.t, func() bool {
		line := httpLine.FindStringSubmatch(p.out.String())
		if line == nil {
			return false
		}
		url = line[1]
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, within, 10*time.Millisecond)
	return url
}

// The second process is killed before it has entered as a node, so that the key is that of the first. The third knows that
// both have ended and takes commands at once, long before the life of that key is over.
func TestAKillDuringTheStartCostsNoWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := launchDev(t, dir)
	first.ready(time.Minute)
	before, err := os.ReadFile(filepath.Join(dir, "nonce"))
	require.NoError(t, err)
	first.kill()
	second := launchDev(t, dir)
	require.Eventually(t, func() bool {
		now, err := os.ReadFile(filepath.Join(dir, "nonce"))
		return err == nil && string(now) != string(before)
	}, time.Minute, 100*time.Microsecond)
	second.kill()
	require.NotContains(t, second.out.String(), "API and docs", "it was killed while it started")
	third := launchDev(t, dir)
	third.ready(time.Minute)
	require.NotContains(t, third.out.String(), "may still live", "it waited for nobody")
}
