//go:build linux

package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/group/grouptest"
)

// started runs a script that writes the ids of what it starts, one a line, into the file that is its output.
func started(t *testing.T, script string, lines int) (*Process, []int) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	p, err := Start(Command{
		Args: []string{"/bin/sh", "-c", script}, Env: []string{OwnerVar + "=" + t.Name(), "PATH=" + os.Getenv("PATH")}, Dir: "/", Files: []int{int(null.Fd()), int(w.Fd()), int(null.Fd())},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := EndStrays(t.Name(), nil)
		require.NoError(t, err)
	})
	require.NoError(t, w.Close())
	var pids []int
	for text := bufio.NewScanner(r); len(pids) < lines && text.Scan(); {
		pid, err := strconv.Atoi(strings.TrimSpace(text.Text()))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, lines)
	return p, pids
}

// leaves is a program that starts another one in a session of its own, which starts one more.
const leaves = `setsid sh -c 'echo $$; setsid sh -c "echo \$\$; exec sleep 3600" & exec sleep 3600' & exec sleep 3600`

func runs(pid int) bool {
	_, state, err := statOf(pid)
	return err == nil && state != 'Z' && state != 'X'
}

// Whatever left the group of a process ends with it all the same.
func TestWhatHasLeftTheGroupEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	p, pids := started(t, leaves, 2)
	other, kept := started(t, leaves, 2) // of the same owner
	p.Signal(syscall.SIGTERM)
	require.NoError(t, p.Watch(nil))
	for _, pid := range pids {
		require.False(t, runs(pid))
	}
	for _, pid := range kept {
		require.True(t, runs(pid), "it is another one's")
	}
	ended, err := EndStrays(t.Name(), []*Process{other})
	require.NoError(t, err)
	require.Empty(t, ended, "what a known process has started is none")
	other.Signal(syscall.SIGKILL)
	require.NoError(t, other.Watch(nil))
}

// The process has ended while nobody watched it.
func TestWhatAProcessHasLeftIsAStray(t *testing.T) {
	t.Parallel()
	p, pids := started(t, leaves, 2)
	require.NoError(t, syscall.Kill(p.PID, syscall.SIGKILL))
	_, err := syscall.Wait4(p.PID, nil, 0, nil)
	require.NoError(t, err)
	require.False(t, p.Adopt())
	ended, err := EndStrays(t.Name(), nil)
	require.NoError(t, err)
	require.ElementsMatch(t, pids, ended)
}

// A process has no environment for an instant in which it is executed: it is found all the same.
func TestAProcessThatIsBeingExecutedIsFound(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	results := make(chan error, 8)
	for range cap(results) { // so that processes are interrupted in that instant
		go func() {
			results <- func() error {
				for range 50 {
					p, err := Start(Command{
						Args: []string{"/bin/sleep", "3600"}, Env: []string{OwnerVar + "=executed"}, Dir: "/",
						Files: []int{int(null.Fd()), int(null.Fd()), int(null.Fd())},
					})
					if err != nil {
						return err
					}
					env, err := environOf(p.PID, time.Now().Add(time.Minute))
					_ = syscall.Kill(-p.PID, syscall.SIGKILL)
					if err := errors.Join(err, p.Watch(nil)); err != nil {
						return err
					}
					if valueOf(env, OwnerVar) != "executed" || valueOf(env, markVar) != p.Mark {
						return fmt.Errorf("the environment of process %d is %q", p.PID, env)
					}
				}
				return nil
			}()
		}()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
}

// What a service manager lets this program do is not passed on to what it starts.
func TestNoCapabilityIsPassedOn(t *testing.T) {
	t.Parallel()
	has := grouptest.Capable(t)
	_, ambient := started(t, `sed -n 's/^CapAmb:\t0*\(.\)/\1/p' /proc/self/status`, 1)
	require.Equal(t, []int{0}, ambient)
	require.True(t, has(), "it has it itself")
}
