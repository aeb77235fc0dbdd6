package client

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// body is the body of a request that may be sent more than once. A round trip closes what it is given, so the first body
// is closed only when there will be no other try.
type body struct {
	req   *http.Request
	first io.ReadCloser
	last  *guarded // given to the last try, if that was the first body
	again io.ReadCloser

	mu   sync.Mutex
	read bool
	done bool // there will be no other try
}

func (b *body) reader() io.ReadCloser {
	switch {
	case b.first == nil || b.first == http.NoBody:
		return b.first
	case b.again != nil:
		return b.again
	}
	b.last = &guarded{b: b}
	return b.last
}

// rewind makes the body readable from its start; false if that cannot be.
func (b *body) rewind() bool {
	b.mu.Lock()
	read := b.read
	b.mu.Unlock()
	switch {
	case b.first == nil || b.first == http.NoBody:
		return true
	case b.again == nil && !read:
		return true
	case b.req.GetBody == nil:
		return false
	}
	again, err := b.req.GetBody()
	b.again = again
	return err == nil
}

// close ends it: nobody reads it any more.
func (b *body) close() {
	if b.first != nil {
		_ = b.first.Close() // nobody can do anything about it
	}
}

// commit says that the last try was answered; it may still be sending.
func (b *body) commit() {
	if b.again != nil || b.last == nil {
		b.close()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done = true; b.last.closed {
		b.close()
	}
}

// guarded is the first body as one try has it. A round trip may read it a moment after it returned an error.
type guarded struct {
	b      *body
	closed bool
}

func (g *guarded) Read(p []byte) (int, error) {
	g.b.mu.Lock()
	if g.closed {
		g.b.mu.Unlock()
		return 0, errors.New("the request is over")
	}
	g.b.read = true
	g.b.mu.Unlock()
	return g.b.first.Read(p)
}

func (g *guarded) Close() error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if g.closed = true; g.b.done {
		return g.b.first.Close()
	}
	return nil
}

// counted calls done once: with nil when the answer is read to its end or closed, or with why it cannot be read.
func counted(rc io.ReadCloser, done func(error)) io.ReadCloser {
	c := &countedBody{ReadCloser: rc, done: done}
	if w, ok := rc.(io.Writer); ok { // 101 Switching Protocols
		return struct {
			*countedBody
			io.Writer
		}{c, w}
	}
	if rc == http.NoBody {
		c.over(nil)
	}
	return c
}

type countedBody struct {
	io.ReadCloser
	once sync.Once
	done func(error)
}

func (c *countedBody) over(err error) { c.once.Do(func() { c.done(err) }) }

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		c.over(nil)
	case err != nil:
		c.over(err)
	}
	return n, err
}

func (c *countedBody) Close() error {
	c.over(nil)
	return c.ReadCloser.Close()
}
