package hosted_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// The test binary is also the application of the tenants.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(apptest.Application(os.Args[2]))
	}
	os.Exit(m.Run())
}

const installation = "abcdefgh23"

const quick = "GORACE=atexit_sleep_ms=0" // of programs that are built with the race detector

// program is what a version is of: the engine of images, and systemd, run this binary.
func program(version string) app.Program {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return app.Program{Command: []string{self, "application", version}, Image: "registry.test/app:" + version}
}

func config(t *testing.T, e hosted.Engine) hosted.Config {
	c := hosted.Config{Dir: t.TempDir(), Engine: e, Installation: installation, Startup: 40 * time.Second, Versions: map[string]app.Program{}, Env: apptest.Env, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, v := range apptest.Versions {
		c.Versions[v] = program(v)
	}
	return c
}

// world is a place where an engine runs releases on a machine.
func world(t *testing.T, e hosted.Engine, m *apptest.Machine) apptest.World {
	c := config(t, e)
	t.Cleanup(m.End)
	return apptest.World{
		Open: func(t *testing.T) (app.Provider, func()) {
			a, err := hosted.Open(c)
			require.NoError(t, err)
			return a, func() { require.NoError(t, a.Close(false)) }
		},
		Left: func(t *testing.T) []string {
			return append(apptest.Entries(t, c.Dir, "releases/*/home", "tenants/*"), m.Names()...)
		},
	}
}

// environ is that of a program of the test.
func environ(pairs []string) []string { return append([]string{quick}, pairs...) }
