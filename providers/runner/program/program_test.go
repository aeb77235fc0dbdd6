package program

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/runner/usage"
)

func runner() *Runner {
	return &Runner{Programs: map[string]Program{
		"say":   {Path: "/bin/sh", Args: []string{"-c", `printf '%s|' "$@"; pwd; echo "$GREETING $HOME" >&2`, "sh"}, Arguments: true, Env: map[string]string{"GREETING": "hello"}},
		"exit":  {Path: "/bin/sh", Args: []string{"-c", `exit "$0"`}, Arguments: true},
		"flood": {Path: "/bin/sh", Args: []string{"-c", "yes"}},
		"wait":  {Path: "/bin/sh", Args: []string{"-c", "echo begun; sleep 600"}},
		"spin":  {Path: "/bin/sh", Args: []string{"-c", "while :; do :; done"}},
		"gone":  {Path: "/no/such/file"},
		"near":  {Path: "sh"},
	}}
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, runner().Run(t.Context(), &Call{Program: "say", Args: []string{"a b", "; rm -rf /", "$HOME"}}, Where{Dir: dir, Out: &out}))
	require.Equal(t, "a b|; rm -rf /|$HOME|"+dir+"\nhello "+dir+"\n", out.String())
	require.NoError(t, runner().Run(t.Context(), &Call{Program: "say"}, Where{Dir: dir}), "nobody has to listen")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	limited := runner()
	limited.Limits = group.Limits{CPU: time.Second}
	others := runner()
	others.Programs["exit"] = Program{Path: "/bin/sh", Namespaces: []string{"shop"}}
	for name, c := range map[string]struct {
		runner *Runner
		call   Call
		code   providers.Code
		says   string
	}{
		"another try":  {runner(), Call{Program: "exit", Args: []string{"75"}}, providers.Unavailable, "asks for another try"},
		"no other":     {runner(), Call{Program: "exit", Args: []string{"2"}}, providers.Invalid, "exit ended with exit code 2"},
		"unknown":      {runner(), Call{Program: "/bin/sh"}, providers.Invalid, "not in the configuration"},
		"of others":    {others, Call{Program: "exit"}, providers.Invalid, "not in the configuration"},
		"no arguments": {runner(), Call{Program: "wait", Args: []string{"x"}}, providers.Invalid, "takes no arguments"},
		"not there":    {runner(), Call{Program: "gone"}, providers.Invalid, "cannot start /no/such/file"},
		"not absolute": {runner(), Call{Program: "near"}, providers.Invalid, "not absolute"},
		"zero byte":    {runner(), Call{Program: "say", Args: []string{"a\x00"}}, providers.Invalid, "zero byte"},
		"CPU time":     {limited, Call{Program: "spin"}, "", "spin was ended by"},
	} {
		err := c.runner.Run(t.Context(), &c.call, Where{Dir: t.TempDir()})
		require.ErrorContains(t, err, c.says, name)
		if c.code != "" {
			require.Equal(t, c.code, providers.CodeOf(err), name)
		}
	}
}

// A program that writes without end fills nothing, and ends with the context.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	r := runner()
	r.Output, r.Grace = 1000, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	full := writer(func(p []byte) (int, error) {
		n, err := out.Write(p)
		if out.Len() >= 1000 {
			cancel()
		}
		return n, err
	})
	left := int64(0)
	require.ErrorIs(t, r.Run(ctx, &Call{Program: "flood"}, Where{Dir: t.TempDir(), Out: full, LeftOut: func(n int64) { left = n }}), context.Canceled)
	require.Less(t, out.Len(), 1100)
	require.Positive(t, left)
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestTheContextEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- runner().Run(ctx, &Call{Program: "wait"}, Where{Dir: t.TempDir(), Out: to}) }()
	line := make([]byte, 16)
	n, err := from.Read(line)
	require.NoError(t, err)
	require.Equal(t, "begun", strings.TrimSpace(string(line[:n])))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func pidIn(t *testing.T, file string) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(raw), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	return pid
}

func gone(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && syscall.Kill(pid, 0) == syscall.ESRCH || strings.Contains(string(raw), ") Z ")
}

// What has begun a session of its own ends with the program: when that ends, and when the context does.
func TestSessionsEndWithIt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("there are no sessions to begin, or they cannot be ended")
	}
	r := runner()
	r.Grace = 50 * time.Millisecond
	r.Programs["leaves"] = Program{Path: "/bin/sh", Args: []string{"-c", `setsid sh -c 'setsid sleep 600 >/dev/null 2>&1 & echo $! > pid; sleep 600' >/dev/null 2>&1 & until [ -s pid ]; do sleep 0.01; done; eval "$0"`}, Arguments: true}
	for name, then := range map[string]string{"it ends": "exit 0", "the context ends": "sleep 600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- r.Run(ctx, &Call{Program: "leaves", Args: []string{then}}, Where{Dir: dir})
			}()
			pid := pidIn(t, filepath.Join(dir, "pid"))
			if then == "exit 0" {
				require.NoError(t, <-done)
			} else {
				cancel()
				require.ErrorIs(t, <-done, context.Canceled)
			}
			require.True(t, gone(pid))
		})
	}
}

// A program that writes many files is ended when they are too large together, though none is by itself.
func TestAllFilesTogether(t *testing.T) {
	t.Parallel()
	r := runner()
	r.Programs["fill"] = Program{Path: "/bin/sh", Args: []string{"-c", `i=0; while :; do i=$((i+1)); head -c 100000 /dev/zero > f$i; done`}}
	r.Disk, r.Limits = usage.Of{Bytes: 1 << 20}, group.Limits{File: 1 << 20}
	err := r.Run(t.Context(), &Call{Program: "fill"}, Where{Dir: t.TempDir()})
	require.Equal(t, providers.LimitExceeded, providers.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "fill has written more than 1048576 bytes")
}

// Where the server is root's, a program need not be.
func TestAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can do that")
	}
	const nobody = 65534
	r := runner()
	r.As = &User{UID: nobody, GID: nobody}
	r.Programs["who"] = Program{Path: "/bin/sh", Args: []string{"-c", `id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; kill -0 $PPID 2>/dev/null || echo stranger`}}
	dir, err := os.MkdirTemp("", "exec-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chown(dir, nobody, nobody))
	var out bytes.Buffer
	require.NoError(t, r.Run(t.Context(), &Call{Program: "who"}, Where{Dir: dir, Out: &out}))
	require.Equal(t, []string{"65534", "65534", "65534", "NoNewPrivs:", "1", "stranger"}, strings.Fields(out.String()))
}
