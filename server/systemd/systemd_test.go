package systemd_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/systemd"
)

// listen is the receiving end of sd_notify.
func listen(t *testing.T) (path string, told func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // shorter than t.TempDir: a socket's path has 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return path, func() string {
		buf := make([]byte, 512)
		_ = conn.SetReadDeadline(time.Now().Add(60 * time.Second))
		n, err := conn.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
}

// None is parallel: systemd speaks through the environment of the process.
func TestTellsSystemd(t *testing.T) {
	path, told := listen(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = t.TempDir(), "127.0.0.1:0", "", "error"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, cfg, server.Options{Machines: []*machines.Machine{preservation.Machine}})
	}() // one without a provider
	require.Contains(t, told(), "READY=1\nSTATUS=Serving http://127.0.0.1:")
	require.Equal(t, "WATCHDOG=1", told())
	require.Equal(t, "WATCHDOG=1", told())
	require.Empty(t, os.Getenv("NOTIFY_SOCKET"), "services that it starts are not to speak for it")
	cancel()
	for said := ""; said != "STOPPING=1"; {
		said = told()
		require.Contains(t, []string{"WATCHDOG=1", "STOPPING=1"}, said)
	}
	require.NoError(t, <-ended)
}

// A process whose door does not answer gives no sign of life.
func TestNoSignOfLifeFromAHandlerThatHangs(t *testing.T) {
	path, told := listen(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	var hangs atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			asked <- struct{}{}
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	m := systemd.FromEnvironment(slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() { defer close(done); m.KeepAlive(ctx, handler) }()
	require.Equal(t, "WATCHDOG=1", told())
	hangs.Store(true)
	<-asked
	cancel()
	<-done
	m.Tell("END")
	for said := told(); said != "END"; said = told() {
		require.Equal(t, "WATCHDOG=1", said, "from before")
	}
}

func TestUnitAndWatchdogOfAnotherProcess(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "@nobody")
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	systemd.FromEnvironment(slog.New(slog.DiscardHandler)).KeepAlive(t.Context(), nil) // nobody wants a sign of life of this one
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "instar.service"))
	require.NoError(t, err)
	unit := string(text)
	require.Contains(t, unit, "\nType=notify\n")
	require.Contains(t, unit, "\nNotifyAccess=main\n")
	require.Regexp(t, `(?m)^WatchdogSec=\d+s$`, unit)
	require.Regexp(t, `(?m)^Delegate=cpu memory pids\nDelegateSubgroup=\w+$`, unit, "releases of tenants are limited by groups below the unit")
	require.NotRegexp(t, `(?m)^ProtectControlGroups=(yes|true|1)$`, unit, "nothing could be made there")
}
