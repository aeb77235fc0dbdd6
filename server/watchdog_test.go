package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/bcc94042/instar/internal/lockedbuffer"

	"github.com/stretchr/testify/require"
)

// hound is a watchdog whose bite is told instead of the end of this process.
func hound(within time.Duration) (*watchdog, *lockedbuffer.Buffer, chan int) {
	said, exits := &lockedbuffer.Buffer{}, make(chan int, 1)
	w := newWatchdog(slog.New(slog.NewTextHandler(said, nil)))
	w.within, w.out, w.exit = within, said, func(code int) { exits <- code }
	return w, said, exits
}

// hangs is a part that does not stop.
func (a *app) hangs(until chan struct{}) {
	a.onStop("hangs", func(context.Context) error { <-until; return nil })
}

func TestAPartThatHangsDoesNotKeepTheProcess(t *testing.T) {
	t.Parallel()
	dog, said, exits := hound(50 * time.Millisecond)
	a := &app{log: slog.New(slog.DiscardHandler), dog: dog}
	first, until := make(chan struct{}), make(chan struct{})
	a.onStop("a part", func(context.Context) error { close(first); return nil })
	a.hangs(until)
	done := make(chan error)
	dog.begin()
	go func() { done <- a.shutdown(t.Context()) }()
	require.Equal(t, 1, <-exits)
	require.Contains(t, said.String(), `"waiting for"=hangs`)
	require.Contains(t, said.String(), "(*app).shutdown", "the goroutines are shown")
	close(until)
	require.NoError(t, <-done)
	<-first
}

func TestWhoStopsInTimeIsNotEnded(t *testing.T) {
	t.Parallel()
	dog, _, exits := hound(time.Hour)
	a := &app{log: slog.New(slog.DiscardHandler), dog: dog}
	failed := errors.New("it failed")
	a.goes(t.Context(), "a loop", func(ctx context.Context) error { <-ctx.Done(); return nil })
	a.onStop("a part", func(context.Context) error { return failed })
	dog.begin()
	require.ErrorIs(t, a.shutdown(t.Context()), failed)
	dog.end()
	dog.begin() // a signal while it returns
	require.False(t, dog.timer.Stop(), "no timer runs any more")
	require.Empty(t, exits)
}
