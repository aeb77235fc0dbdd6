// Package gctune sets how much a program may allocate between two garbage collections, and below which limit it is to stay.
//
// The runtime's own rule, as much again as is in use (GOGC=100), has a process with 15 MB in use collect twenty times a second
// under load. More for everybody (GOGC=300 was tried) leaves gaps in large heaps that no later collection closes: what a
// burst of registrations leaves lies between what has gone, and 10,000 instances took 8 KB each beyond their values instead of 4.
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// least is what may be allocated with a small heap, in bytes.
const least = 32 << 20

// most is the largest percentage: what is in use is only known after a collection, and may grow soon.
const most = 1000

var once sync.Once

// Keep lets a program allocate 32 MiB between two collections (ten times what is in use, where that is less), or as much as
// is in use, where that is more. It does nothing when GOGC is set. It is for the start of a program, and lasts for the life of the process.
func Keep() {
	if os.Getenv("GOGC") == "" {
		once.Do(func() { afterEach(new(tuner).tune) })
	}
}

// percent is what GOGC has to be with so many bytes in use.
func percent(live uint64) int {
	return int(min(max(100, 100*least/max(live, 1)), most))
}

// tuner sets the percentage that the last collection asks for.
type tuner struct{ set int }

func (t *tuner) tune() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() != metrics.KindUint64 {
		return // another runtime; its own rule will do
	}
	// #nosec G602 -- it has one
	if p := percent(live[0].Value.Uint64()); p > t.set+t.set/10 || p < t.set-t.set/10 { // setting it stops the world for a moment
		t.set = p
		debug.SetGCPercent(p)
	}
}

// afterEach calls f now and after each collection, from the goroutine of finalizers.
func afterEach(f func()) {
	f()
	type marker struct{ _ [2]*byte } // large enough not to share its place with others
	runtime.SetFinalizer(new(marker), func(*marker) { afterEach(f) })
}
