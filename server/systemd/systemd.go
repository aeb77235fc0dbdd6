// Package systemd tells the service manager how the process stands: sd_notify(3), of a unit with Type=notify.
package systemd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Manager is systemd, where that has started this process; else nobody is told. [FromEnvironment] finds it.
type Manager struct {
	socket   string        // a path, or @ and the name of an abstract socket; empty tells nobody
	watchdog time.Duration // within which systemd wants a sign of life; 0 wants none
	log      *slog.Logger
}

// FromEnvironment reads what systemd has put into the environment, and takes it out, so that no child speaks for this process.
func FromEnvironment(log *slog.Logger) Manager {
	m := Manager{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.watchdog = max(time.Duration(usec)*time.Microsecond, 0)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for no such name
	}
	return m
}

// Tell sends a state, such as READY=1. One that cannot be sent is logged.
func (m Manager) Tell(state string) {
	if m.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // nothing is buffered
	}
	if err != nil {
		m.log.Warn("cannot notify systemd", "state", state, "error", err)
	}
}

// KeepAlive gives a sign of life twice in the time in which systemd wants one, as long as the handler still answers, until
// ctx ends. A process that hangs is started again by systemd.
func (m Manager) KeepAlive(ctx context.Context, handler http.Handler) {
	if m.socket == "" || m.watchdog == 0 {
		return
	}
	tick := time.NewTicker(m.watchdog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if answers(ctx, handler) {
			m.Tell("WATCHDOG=1")
		}
	}
}

// answers asks /livez as a client would.
func answers(ctx context.Context, handler http.Handler) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/livez", nil)
	if err != nil {
		return false
	}
	w := statusOnly{header: http.Header{}}
	handler.ServeHTTP(&w, r)
	return w.status == http.StatusOK
}

// statusOnly keeps the status of an answer.
type statusOnly struct {
	header http.Header
	status int
}

func (v *statusOnly) Header() http.Header { return v.header }

func (v *statusOnly) WriteHeader(status int) { v.status = status }

func (v *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
