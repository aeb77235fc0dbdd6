package server

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

// What a stop may take. Parts are waited for until stopWithin; what hangs beyond all that is cut off at endWithin, before a
// service manager would do so without a word.
const (
	stopWithin = 20 * time.Second
	endWithin  = 30 * time.Second
)

// shutdown stops everything in reverse order and returns what went wrong.
func (a *app) shutdown(ctx context.Context) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer end()
	a.dog.at("what is given to other nodes")
	a.leave(ctx)
	return a.stopAll(ctx, a.dog.at)
}

// watchdog ends the process when it does not come to an end after it was told to, in whatever part it hangs: it says in which,
// writes what all goroutines do, and exits with 1.
type watchdog struct {
	within time.Duration
	log    *slog.Logger
	out    io.Writer
	exit   func(int)

	mu    sync.Mutex
	part  string
	timer *time.Timer
}

func newWatchdog(log *slog.Logger) *watchdog {
	return &watchdog{within: endWithin, log: log, out: os.Stderr, exit: os.Exit, part: "the start"}
}

// begin counts from now on, or from an earlier call.
func (w *watchdog) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.within, w.bite)
	}
}

// at says what is being stopped.
func (w *watchdog) at(part string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part = part
}

func (w *watchdog) bite() {
	w.mu.Lock()
	part := w.part
	w.mu.Unlock()
	w.cut("the process does not stop; it is ended", "after", w.within, "waiting for", part)
}

// cut ends the process at once: nothing that would be stopped first can stop.
func (w *watchdog) cut(why string, about ...any) {
	w.log.Error(why, append(about, "goroutines", runtime.NumGoroutine())...)
	_ = pprof.Lookup("goroutine").WriteTo(w.out, 1) // there is nobody to tell
	w.exit(1)
}

// end is the end of the process.
func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.NewTimer(time.Hour) // begin comes too late
	}
	w.timer.Stop()
}
