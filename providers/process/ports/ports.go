// Package ports gives ports to programs that listen by themselves.
//
// Until such a program listens, its port is nobody's to the kernel: another one that got the same would be probed, and called, in its place. So a
// port that was given is given to nobody else before it is taken back.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Given are the ports that were given. The zero value is ready, and gives those that the system chooses.
type Given struct {
	First, Last int // the range that they are of, with both its ends, where there is one

	mu   sync.Mutex
	to   map[int]any
	last int // a program may not be able to listen again at once on the port that it had
}

// Take gives a holder a port on which nobody listens, in place of the one that it had.
func (g *Given) Take(holder any) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(holder)
	tries := 1000
	if g.Last > 0 {
		tries = g.Last - g.First + 1
	}
	for range tries {
		port, err := g.next()
		if err == nil && g.to[port] == nil {
			g.put(port, holder)
			return port, nil
		}
	}
	return 0, errors.New("no port is free for a program that listens by itself: free some, or widen the range")
}

// next is another free port, of every address: a program may listen on all of them. The lock is held.
func (g *Given) next() (int, error) {
	port := 0
	if g.Last > 0 {
		if port = g.last + 1; port < g.First || port > g.Last {
			port = g.First
		}
		g.last = port
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("%s is no port: %w", l.Addr(), err)
	}
	return at.Port, nil
}

// Put notes that a holder has the port of an address already.
func (g *Given) Put(address string, holder any) {
	_, text, _ := net.SplitHostPort(address)
	if port, err := strconv.Atoi(text); err == nil && port > 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.put(port, holder)
	}
}

func (g *Given) put(port int, holder any) {
	if g.to == nil {
		g.to = map[int]any{}
	}
	g.to[port] = holder
}

// Listen has a holder listen on a port by itself, and gives it that: on the first free one of the range where it is 0 and there is one, else on one that the system chooses. listen answers which it is. Nothing is given meanwhile.
func (g *Given) Listen(port int, holder any, listen func(port int) (int, error)) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := port
	if port == 0 && g.Last > 0 {
		port, last = g.First, g.Last
	}
	for ; port <= last; port++ {
		if err = g.others(port, holder); err == nil {
			var at int
			if at, err = listen(port); err == nil {
				err = g.others(at, holder)
			}
			if err == nil {
				g.put(at, holder)
			}
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// others fails for what another holder has. The lock is held.
func (g *Given) others(port int, holder any) error {
	if to := g.to[port]; to != nil && to != holder {
		return fmt.Errorf("port %d was given to a program: %w", port, syscall.EADDRINUSE)
	}
	return nil
}

// Drop takes back what a holder has.
func (g *Given) Drop(holder any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(holder)
}

func (g *Given) drop(holder any) {
	for port, to := range g.to {
		if to == holder {
			delete(g.to, port)
		}
	}
}
