package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hound is a watchdog whose bite is told instead of the end of this process.
func hound(within time.Duration) (*watchdog, *lockedBuffer, chan int) {
	said, exits := &lockedBuffer{}, make(chan int, 1)
	w := newWatchdog(slog.New(slog.NewTextHandler(said, nil)))
	w.within, w.out, w.exit = within, said, func(code int) { exits <- code }
	return w, said, exits
}

// hangs is a part that does not stop.
func (a *app) hangs(until chan struct{}) {
	a.onStop(func(context.Context) error { <-until; return nil })
}

func TestAPartThatHangsDoesNotKeepTheProcess(t *testing.T) {
	t.Parallel()
	a := &app{log: slog.New(slog.DiscardHandler)}
	first, until := make(chan struct{}), make(chan struct{})
	a.onStop(func(context.Context) error { close(first); return nil })
	a.hangs(until)
	dog, said, exits := hound(50 * time.Millisecond)
	done := make(chan error)
	dog.begin()
	go func() { done <- a.shutdown(t.Context(), dog) }()
	require.Equal(t, exitGeneric, <-exits)
	require.Contains(t, said.String(), `"waiting for"=hangs`)
	require.Contains(t, said.String(), "(*app).shutdown", "the goroutines are shown")
	close(until)
	require.NoError(t, <-done)
	<-first
}

func TestWhoStopsInTimeIsNotEnded(t *testing.T) {
	t.Parallel()
	a := &app{log: slog.New(slog.DiscardHandler)}
	failed := errors.New("it failed")
	a.goes(t.Context(), "a loop", func(ctx context.Context) error { <-ctx.Done(); return nil })
	a.onStop(func(context.Context) error { return failed })
	dog, _, exits := hound(time.Hour)
	dog.begin()
	require.ErrorIs(t, a.shutdown(t.Context(), dog), failed)
	dog.end()
	dog.begin() // a signal while it returns
	require.False(t, dog.timer.Stop(), "no timer runs any more")
	require.Empty(t, exits)
}

// The start hangs: the server that it attaches to says nothing.
func TestATermDuringAStartEndsTheProcess(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	asked := make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			close(asked)
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	p := launch(t, "serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-url", "nats://"+listener.Addr().String(), "--gateway", "simulated", "--postgres", "off")
	<-asked
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ends:
		require.Error(t, err, "it did not get to its end")
	case <-time.After(endWithin + 10*time.Second):
		t.Fatal("it goes on")
	}
}
