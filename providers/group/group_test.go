package group

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func shell(script string, args ...string) (*Command, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &Command{Path: "/bin/sh", Args: append([]string{"-c", script}, args...), Env: []string{"PATH=" + os.Getenv("PATH")}, Stdout: out, Stderr: out}, out
}

func TestRun(t *testing.T) {
	t.Parallel()
	c, out := shell(`echo "$0 $1"; echo err >&2; exit 3`, "a b", "$(x)")
	c.Limits = Limits{CPU: 5 * time.Second, Memory: 1 << 30, File: 1 << 20, Files: 50}
	var exit *exec.ExitError
	require.True(t, errors.As(c.Run(t.Context()), &exit))
	require.Equal(t, 3, exit.ExitCode())
	require.Equal(t, "a b $(x)\nerr\n", out.String())
	c, out = shell("env")
	require.NoError(t, c.Run(t.Context()))
	require.NotContains(t, out.String(), "HOME=")
	require.ErrorContains(t, (&Command{Path: "/no/such/program"}).Run(t.Context()), "cannot start /no/such/program")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Run(ended), context.Canceled)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c, out := shell("ulimit -t; ulimit -v; ulimit -f; ulimit -n; ulimit -c")
	c.Limits = Limits{CPU: 7 * time.Second, Memory: 2 << 30, File: 1 << 20, Files: 99}
	require.NoError(t, c.Run(t.Context()))
	require.Equal(t, []string{"7", strconv.Itoa(2 << 20), "2048", "99", "0"}, strings.Fields(out.String()))

	dir := t.TempDir()
	c, _ = shell("dd if=/dev/zero of=big bs=65536 count=64")
	c.Dir, c.Limits = dir, Limits{File: 1 << 20}
	require.Error(t, c.Run(t.Context()))
	info, err := os.Stat(filepath.Join(dir, "big"))
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(1<<20))

	c, _ = shell("while :; do :; done")
	c.Limits = Limits{CPU: time.Second}
	var exit *exec.ExitError
	require.True(t, errors.As(c.Run(t.Context()), &exit))
	require.True(t, exit.Sys().(syscall.WaitStatus).Signaled())
}

// gone reports whether there is no process of that id, or one that has ended and is not reaped.
func gone(t *testing.T, pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return strings.HasPrefix(after, "Z")
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(file)
		if err != nil || !bytes.HasSuffix(raw, []byte("\n")) {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
	return pid
}

// A program that has ended leaves nothing behind.
func TestChildrenEndWithIt(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pid")
	c, _ := shell("sleep 600 >/dev/null 2>&1 & echo $! > " + pids)
	require.NoError(t, c.Run(t.Context()))
	child := pidIn(t, pids)
	require.Eventually(t, func() bool { return gone(t, child) }, 10*time.Second, 5*time.Millisecond)
}

func TestTheContextEndsAllOfThem(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"at once":       "sleep 600 & echo $! > %; wait",
		"with a word":   "trap 'echo ended > %.word; exit 0' TERM; sleep 600 & echo $! > %; wait",
		"after a grace": "trap '' TERM; sleep 600 & echo $! > %; wait; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pid")
			c, _ := shell(strings.ReplaceAll(script, "%", pids))
			if name != "at once" {
				c.Grace = map[string]time.Duration{"with a word": time.Minute, "after a grace": 100 * time.Millisecond}[name]
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			child := pidIn(t, pids)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			require.Eventually(t, func() bool { return gone(t, child) }, 10*time.Second, 5*time.Millisecond)
			if name == "with a word" {
				require.FileExists(t, pids+".word")
			}
		})
	}
}
