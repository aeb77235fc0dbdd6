package index

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map holds the index of each machine, by the machine's name. One may be set while others look, which costs them an atomic load. The zero
// value is ready, and empty; so is a nil one, which takes none.
type Map struct {
	mu  sync.Mutex // held by writers
	now atomic.Pointer[map[string]*Index]
}

// Get returns the index of a machine; nil when there is none.
func (x *Map) Get(machine string) *Index {
	if x == nil {
		return nil
	}
	if now := x.now.Load(); now != nil {
		return (*now)[machine]
	}
	return nil
}

// Set gives a machine its index; nil takes it away.
func (x *Map) Set(machine string, ix *Index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := map[string]*Index{}
	if now := x.now.Load(); now != nil {
		next = maps.Clone(*now)
	}
	next[machine] = ix
	x.now.Store(&next)
}
