//go:build linux

package process_test

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/process"
	"github.com/bcc94042/instar/providers/process/builtin"
)

// The test binary is also the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "run-template" {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(apptest.Application(os.Args[2]))
	}
	if len(os.Args) > 1 && os.Args[1] == "stops-all" {
		for {
			_ = syscall.Kill(-1, syscall.SIGSTOP) // also where there is nobody else at the moment
		}
	}
	os.Exit(m.Run())
}

const quick = "atexit_sleep_ms=0" // of programs that are built with the race detector

func config(t *testing.T, dir string) process.Config {
	self, err := os.Executable()
	require.NoError(t, err)
	c := process.Config{
		Dir: dir, Startup: 40 * time.Second, Grace: 5 * time.Second, Versions: map[string]app.Program{}, Env: apptest.Env,
		Self: []string{"/usr/bin/env", "GORACE=" + quick, self, "run-template"},
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, v := range apptest.Versions {
		c.Versions[v] = app.Program{Command: []string{self, "application", v}, Env: map[string]string{"GORACE": quick}}
	}
	return c
}

func opened(t *testing.T, c process.Config) *process.Apps {
	t.Helper()
	a, err := process.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close(true)) })
	return a
}
