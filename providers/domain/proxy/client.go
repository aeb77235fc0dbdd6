package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// client is the other side of a request: each Read and Write of a body has a deadline of its own. Nothing is due between them, and nothing of a connection that was upgraded.
type client struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	body    io.ReadCloser
	streams bool         // it is one of several of a connection: what is due ends it even when nothing is being written
	stalled atomic.Bool  // a Read was not done in time
	broken  atomic.Bool  // what was read is no body, or ended before its end
	sent    atomic.Int64 // when all of the request was there, in nanoseconds; 0 is not yet
}

// newClient takes the place of the writer, and of the body if there is one.
func newClient(w http.ResponseWriter, r *http.Request, within time.Duration) *client {
	c := &client{ResponseWriter: w, control: http.NewResponseController(w), within: within, streams: r.ProtoMajor > 1}
	if r.Body != nil && r.Body != http.NoBody {
		c.body, r.Body = r.Body, reading{c}
	} else {
		c.sent.Store(time.Now().UnixNano())
	}
	return c
}

// Unwrap is for http.ResponseController, which upgrades.
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// due sets the deadline of what is written. That a writer has none, as one of a test, is its own affair.
func (c *client) due() { _ = c.control.SetWriteDeadline(time.Now().Add(c.within)) }

func (c *client) written() {
	if c.streams {
		_ = c.control.SetWriteDeadline(time.Time{})
	}
}

// end is for what the server still has to write after the handler.
func (c *client) end() { c.due() }

func (c *client) WriteHeader(status int) {
	c.due()
	c.ResponseWriter.WriteHeader(status)
	c.written()
}

func (c *client) Write(p []byte) (int, error) {
	c.due()
	defer c.written()
	return c.ResponseWriter.Write(p)
}

// FlushError is asked by http.ResponseController.
func (c *client) FlushError() error {
	c.due()
	defer c.written()
	return c.control.Flush()
}

// reading is the body of a request.
type reading struct{ *client }

// Read has a deadline, which also holds for the 100 Continue that a first one sends.
func (b reading) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.within))
	n, err := b.body.Read(p)
	_ = b.control.SetReadDeadline(time.Time{}) // afterwards the server itself reads, to see that the client has gone
	switch {
	case err == io.EOF:
		b.sent.CompareAndSwap(0, time.Now().UnixNano())
	case err == nil, errors.Is(err, http.ErrBodyReadAfterClose):
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.stalled.Store(true)
	default:
		b.broken.Store(true)
	}
	return n, err
}

func (b reading) Close() error { return b.body.Close() }
