// Package panics is what becomes of a panic in what answers somebody else: a request, a question, a task. It goes no
// further than that one, is logged with its stack, and is counted for the whole process. What keeps the state of the
// program itself is not guarded by it: that ends the process rather than to go on with what may be wrong.
package panics

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
)

var (
	mu     sync.Mutex
	counts = map[string]uint64{ // all words that are used: a rate does not see the first increase of what was not there
		"acknowledgement": 0, "batch": 0, "dns": 0, "effect": 0, "gateway": 0, "heartbeat": 0, "http": 0, "nats": 0, "observation": 0, "probe": 0, "xds": 0,
	}
)

// Caught takes note of a panic that was recovered. where is one of a few words, the label of the metric; args are further
// attributes of the log line. A nil log only counts.
func Caught(log *slog.Logger, where string, p any, args ...any) {
	count(where)
	if log != nil {
		log.Error("a panic was recovered", append([]any{"where", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack())}, args...)...)
	}
}

// Error takes note of a panic that was recovered by whoever returns the error, which has the stack.
func Error(where string, p any) error {
	count(where)
	return fmt.Errorf("%s panics: %v\n%s", where, p, debug.Stack())
}

// Recover is deferred where nobody has to be told of a panic: it recovers, logs and counts it.
func Recover(log *slog.Logger, where string, args ...any) {
	if p := recover(); p != nil {
		Caught(log, where, p, args...)
	}
}

// Counts are the panics since the start of the process.
func Counts() map[string]uint64 {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(counts)
}

func count(where string) {
	mu.Lock()
	defer mu.Unlock()
	counts[where]++
}
