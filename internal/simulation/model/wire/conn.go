package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is the client's end of a connection in memory. What is queued for the client is not bounded, so that the server never waits for it.
// It is safe for concurrent use, as a [net.Conn] is.
type Conn struct {
	sent   func([]byte) error // takes what the client writes; the bytes are the client's
	closed func()

	mu       sync.Mutex
	ready    *sync.Cond
	buf      []byte // from the server
	off      int    // what of it was read
	ended    bool   // by the server: the rest is still read
	gone     bool   // by the client
	deadline time.Time
	timer    *time.Timer
}

// NewConn gives what the client writes to sent, and calls closed once when the client closes.
func NewConn(sent func([]byte) error, closed func()) *Conn {
	c := &Conn{sent: sent, closed: closed}
	c.ready = sync.NewCond(&c.mu)
	return c
}

// Push queues bytes for the client.
func (c *Conn) Push(b []byte) {
	c.mu.Lock()
	if !c.ended && !c.gone {
		if c.off == len(c.buf) {
			c.buf, c.off = c.buf[:0], 0
		}
		c.buf = append(c.buf, b...)
	}
	c.mu.Unlock()
	c.ready.Signal()
}

// End lets the client read what is queued, and then the end.
func (c *Conn) End() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.ready.Broadcast()
}

// Read waits for bytes of the server.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.off == len(c.buf) {
		switch {
		case c.gone:
			return 0, net.ErrClosed
		case c.ended:
			return 0, io.EOF
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		c.ready.Wait()
	}
	n := copy(b, c.buf[c.off:])
	c.off += n
	return n, nil
}

// Write gives bytes to the server. It never blocks.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	over := c.gone || c.ended
	c.mu.Unlock()
	if over {
		return 0, io.ErrClosedPipe
	}
	if err := c.sent(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the connection from the client's side.
func (c *Conn) Close() error {
	c.mu.Lock()
	first := !c.gone
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.ready.Broadcast()
	if first {
		c.closed()
	}
	return nil
}

// SetReadDeadline bounds Read; the zero time takes the bound away.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), c.ready.Broadcast)
	}
	return nil
}

// SetDeadline is SetReadDeadline: Write does not block.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: Write does not block.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr names the connection.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr names the connection.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memory" }
