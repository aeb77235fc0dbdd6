// Package wake tells the loop of a simulated world that somebody has sent something, which the loop may wait for while time passes.
package wake

import (
	"net"
	"testing/synctest"
	"time"
)

// Wake is how the loop is told. Use [New].
type Wake chan struct{}

// New makes one that nobody has told anything.
func New() Wake { return make(Wake, 1) }

// Signal says that something was sent.
func (w Wake) Signal() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Link is a client's end of a connection, which tells the loop what is written to it, and its end.
func (w Wake) Link(c net.Conn) net.Conn { return link{c, w} }

// Pass lets time pass, or less when something is sent meanwhile and that is what is waited for, until nobody can go on.
func (w Wake) Pass(d time.Duration, wakes bool) {
	if !wakes {
		time.Sleep(d)
	} else {
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-w:
			t.Stop()
		}
	}
	synctest.Wait()
}

type link struct {
	net.Conn
	wake Wake
}

// Write sends, and tells.
func (l link) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	l.wake.Signal()
	return n, err
}

// Close ends it, and tells.
func (l link) Close() error {
	err := l.Conn.Close()
	l.wake.Signal()
	return err
}
