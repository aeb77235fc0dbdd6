package child

import (
	"context"
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
)

// The children of these tests are this test again.
func init() {
	Do("test", does)
	Do("parent", func(ctx context.Context, pids string) (int, error) {
		return 0, (&Command{Name: "test"}).Run(ctx, job{What: "wait", Path: pids}, new(string))
	})
}

type job struct{ What, Path string }

func does(ctx context.Context, j job) (string, error) {
	switch j.What {
	case "memory":
		for all := [][]byte{}; ; {
			all = append(all, make([]byte, 1<<20))
			for i := range all[len(all)-1] {
				all[len(all)-1][i] = 1
			}
		}
	case "cpu":
		for n := uint64(1); n > 0; n++ { // longer than anybody waits
			_ = n
		}
	case "file":
		raw := make([]byte, 1<<20)
		f, err := os.Create(j.Path)
		for err == nil {
			_, err = f.Write(raw)
		}
		return "", err
	case "panic":
		panic("broken")
	case "refuse":
		return "", providers.Later(3*time.Second, "not now")
	case "wait":
		err := os.WriteFile(j.Path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
		if err == nil {
			<-ctx.Done()
		}
		return "", err
	case "large":
		return strings.Repeat("x", most), nil
	case "surroundings":
		files, err := os.ReadDir("/proc/self/fd")
		var there []string
		for _, f := range files {
			to, _ := os.Readlink("/proc/self/fd/" + f.Name()) // that of the directory is closed
			there = append(there, to)
		}
		return strings.Join(append(os.Environ(), there...), "\n"), err
	}
	return "did " + j.What, nil
}

func try(t *testing.T, c Command, j job) (string, error) {
	var out string
	c.Name = "test"
	err := c.Run(t.Context(), j, &out)
	return out, err
}

func TestRun(t *testing.T) {
	t.Parallel()
	out, err := try(t, Command{}, job{What: "this"})
	require.NoError(t, err)
	require.Equal(t, "did this", out)
	_, err = try(t, Command{}, job{What: "refuse"})
	require.Equal(t, providers.Later(3*time.Second, "not now"), err)
	_, err = try(t, Command{}, job{What: "large"})
	require.Equal(t, providers.LimitExceeded, providers.CodeOf(err))
	_, err = try(t, Command{}, job{What: "panic"})
	require.Equal(t, providers.Panicked, providers.CodeOf(err))
	require.ErrorContains(t, err, "panic: broken")
}

// What reaches a limit is ended, and the error says which.
func TestLimits(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		limits Limits
		says   string
	}{
		"memory": {Limits{Memory: 64 << 20}, "needs more than the 64 MiB of memory"},
		"cpu":    {Limits{CPU: time.Second}, "needs more than the 1s of processor time"},
		"file":   {Limits{File: 1 << 20}, "more than the 1 MiB"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if what == "memory" && runtime.GOOS != "linux" {
				t.Skip("this system bounds no memory")
			}
			at := filepath.Join(t.TempDir(), "file")
			_, err := try(t, Command{Limits: c.limits}, job{what, at})
			require.ErrorContains(t, err, c.says)
			require.Equal(t, providers.LimitExceeded, providers.CodeOf(err))
			if info, err := os.Stat(at); err == nil {
				require.LessOrEqual(t, info.Size(), int64(1<<20))
			}
		})
	}
}

// It gets no secret of this process, neither by the environment nor by a descriptor that is open.
func TestSurroundings(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	t.Setenv("INSTAR_SECRET", "canary")
	at := filepath.Join(t.TempDir(), "canary")
	f, err := os.Create(at)
	require.NoError(t, err)
	defer f.Close()
	out, err := try(t, Command{Env: []string{"A=b"}}, job{What: "surroundings"})
	require.NoError(t, err)
	require.Contains(t, out, "A=b\n")
	require.Contains(t, out, "pipe:")
	require.NotContains(t, out, "canary")
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
	}, 20*time.Second, 5*time.Millisecond)
	return pid
}

func gone(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && syscall.Kill(pid, 0) == syscall.ESRCH || strings.Contains(string(raw), ") Z ")
}

func TestTheContextEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	at, done := filepath.Join(t.TempDir(), "pid"), make(chan error, 1)
	go func() { done <- (&Command{Name: "test"}).Run(ctx, job{"wait", at}, new(string)) }()
	pid := pidIn(t, at)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.True(t, gone(pid))
}

// A child ends with its parent, also when that is killed.
func TestItEndsWithItsParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("this system has no signal for that")
	}
	at := filepath.Join(t.TempDir(), "pid")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	parent := exec.Command(os.Args[0], argument("parent"))
	parent.Stdin, parent.ExtraFiles = strings.NewReader(`{"In":`+strconv.Quote(at)+`}`), []*os.File{w}
	require.NoError(t, parent.Start())
	require.NoError(t, w.Close())
	pid := pidIn(t, at)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 5*time.Millisecond)
}
