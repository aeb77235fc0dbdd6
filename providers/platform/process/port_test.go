//go:build linux

package process_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/process"
)

// Most frameworks know PORT alone: who runs them has the contract as well, connections that wait included.
func TestProgramsThatListenByThemselvesKeepTheContract(t *testing.T) {
	t.Parallel()
	keepTheContract(t, byPort)
}

func byPort(c process.Config) process.Config {
	for v, p := range c.Versions {
		p.Port = true
		c.Versions[v] = p
	}
	return c
}

// It is on loopback, and reached under the address of the release, which is another one.
func TestAProgramListensOnItsOwnPort(t *testing.T) {
	t.Parallel()
	a := opened(t, byPort(config(t, t.TempDir())))
	address, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
	has := apptest.Ask(t, address)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.NotEqual(t, port, has.Port)
	require.Equal(t, has, apptest.Ask(t, "127.0.0.1:"+has.Port))
	require.Equal(t, uint64(1024), has.Files)
	require.Equal(t, 1, has.NoNewPrivs)
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(has.PID), "environ"))
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(env), "\x00"), "HOST=127.0.0.1")
	require.NotContains(t, string(env), "LISTEN_FDS")
}

// Of a version that does not say how its program listens, the failure does.
func TestAProgramThatDoesNotTakeItsSocketIsToldOfPort(t *testing.T) {
	t.Parallel()
	c := config(t, t.TempDir())
	plain := c.Versions["1.0"]
	plain.Command = append([]string{"/usr/bin/env", "-u", "LISTEN_FDS"}, plain.Command...)
	c.Versions["1.0"] = plain
	a := opened(t, c)
	_, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	var unhealthy *app.UnhealthyError
	require.ErrorAs(t, err, &unhealthy)
	require.Regexp(t, "^the release tenant-acme-r1 does not become healthy: ExitCode: exit code 3: no socket: .*address already in use; it took no connection from its socket, file 3 \\(a program that listens on PORT needs socket: port\\)$", err.Error())
	at, err := a.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.Regexp(t, "^failed: ExitCode: exit code 3: no socket: ", at.Status)

	plain.Port = true
	c.Versions["1.0"], c.Dir = plain, t.TempDir()
	_, err = opened(t, c).Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
}
