// Package limits bounds what one client, and all clients together, may hold, wait for and ask, over every protocol. A [Pool] and a [Rate] refuse at once what
// is above their bound. In a [Queue], whose places a pool bounds, clients take turns.
package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Bound is how much of something may be held at once: in all, and by one client. 0 is no bound.
type Bound struct{ All, Each int }

// Pool counts what is held. It is safe for concurrent use.
type Pool struct {
	name  string
	bound Bound

	mu   sync.Mutex
	held int
	of   map[string]int

	refusedAll, refusedEach atomic.Uint64
}

// NewPool makes a pool whose name is a label of its metrics.
func NewPool(name string, bound Bound) *Pool {
	return &Pool{name: name, bound: bound, of: map[string]int{}}
}

// Full says that there is no place.
type Full struct {
	Pool      string
	PerClient bool // the client has as many as one may have; else all clients together have
	Bound     int
}

func (f *Full) Error() string {
	if f.PerClient {
		return fmt.Sprintf("this client has %d %s already, as many as one may have", f.Bound, f.Pool)
	}
	return fmt.Sprintf("there are %d %s already", f.Bound, f.Pool)
}

// Take takes a place for a client, or returns a [*Full]. leave gives it back; it may be called again.
func (p *Pool) Take(client string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bound.Each > 0 && p.of[client] >= p.bound.Each:
		p.refusedEach.Add(1)
		return nil, &Full{p.name, true, p.bound.Each}
	case p.bound.All > 0 && p.held >= p.bound.All:
		p.refusedAll.Add(1)
		return nil, &Full{p.name, false, p.bound.All}
	}
	p.held++
	p.of[client]++
	return sync.OnceFunc(func() { p.leave(client) }), nil
}

func (p *Pool) leave(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	if p.of[client]--; p.of[client] == 0 {
		delete(p.of, client)
	}
}

// Held is how many places are taken.
func (p *Pool) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}
