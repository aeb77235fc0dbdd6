package databasetest

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Fault is what becomes of a statement on its way to a server.
type Fault int

// Faults.
const (
	None Fault = iota
	Cut        // the connection ends, and the statement with it
	Lost       // the server performs it, and the connection ends before its answer comes
	Full       // the server does not get it, and the answer is that its disk is full
)

// Through is the same address by way of a proxy, which asks of each statement, when it is to be performed, what becomes of it. It ends with the test.
func Through(t *testing.T, a pg.Address, fault func(sql string) Fault) pg.Address {
	t.Helper()
	u, err := url.Parse(a.DSN)
	require.NoError(t, err)
	return ThroughTo(t, a, fault, func() string { return u.Host })
}

// ThroughTo is [Through] to the host and port that each connection is asked for, as by the name of a server that may fail over.
func ThroughTo(t *testing.T, a pg.Address, fault func(sql string) Fault, to func() string) pg.Address {
	t.Helper()
	u, err := url.Parse(a.DSN)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{to: to, fault: fault, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); w.end(); all.Wait() })
	u.Host = l.Addr().String()
	a.DSN = u.String()
	return a
}

type wire struct {
	to    func() string
	fault func(sql string) Fault

	mu    sync.Mutex
	open  map[net.Conn]bool
	ended bool
}

// keep has a connection closed with the proxy.
func (w *wire) keep(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[c] = true; w.ended {
		_ = c.Close()
	}
}

func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for c := range w.open {
		_ = c.Close()
	}
}

// way is one connection.
type way struct {
	client, server net.Conn

	prepared map[string]string // statements by their names
	skips    bool              // until the client asks for what has become of the statement that was refused

	mu   sync.Mutex
	lost bool // nothing more goes back, and the next answer ends it
}

func (w *wire) carry(client net.Conn) {
	w.keep(client)
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", w.to())
	if err != nil {
		return
	}
	w.keep(server)
	defer func() { _ = server.Close() }()
	c := &way{client: client, server: server, prepared: map[string]string{}}
	if c.start() != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(c.back)
	defer back.Wait()
	defer func() { _ = client.Close(); _ = server.Close() }()
	for {
		kind, m, err := message(client)
		if err != nil {
			return
		}
		f := None
		if sql, performed := c.statement(kind, m[5:]); performed && !c.skips {
			f = w.fault(sql)
		}
		if f == Cut {
			return
		}
		if err := c.forth(kind, m, f); err != nil {
			return
		}
	}
}

// start passes the first message on; what asks for encryption is refused, as the statements are read here.
func (c *way) start() error {
	for {
		m := make([]byte, 8)
		if _, err := io.ReadFull(c.client, m); err != nil {
			return err
		}
		if code := binary.BigEndian.Uint32(m[4:]); code == 80877103 || code == 80877104 {
			if _, err := c.client.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		}
		if _, err := c.server.Write(m); err != nil {
			return err
		}
		_, err := io.CopyN(c.server, c.client, int64(binary.BigEndian.Uint32(m))-8)
		return err
	}
}

// statement is what a message has performed: a query without parameters, or what was prepared before and gets its parameters now.
func (c *way) statement(kind byte, body []byte) (sql string, performed bool) {
	texts := strings.SplitN(string(body), "\x00", 3)
	switch kind {
	case 'Q':
		return texts[0], true
	case 'P':
		c.prepared[texts[0]] = texts[1]
	case 'B':
		return c.prepared[texts[1]], true
	}
	return "", false
}

var ready = []byte{'Z', 0, 0, 0, 5, 'E'} // in a transaction that has failed

func (c *way) forth(kind byte, m []byte, f Fault) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f == Full:
		answer := errorMessage("53100", "could not extend file: No space left on device")
		if c.skips = kind == 'B'; !c.skips {
			answer = append(answer, ready...)
		}
		_, err := c.client.Write(answer)
		return err
	case c.skips && kind == 'S':
		c.skips = false
		_, err := c.client.Write(ready)
		return err
	case c.skips:
		return nil
	}
	c.lost = c.lost || f == Lost
	_, err := c.server.Write(m)
	return err
}

// back passes on what the server says.
func (c *way) back() {
	defer func() { _ = c.client.Close(); _ = c.server.Close() }()
	for {
		kind, m, err := message(c.server)
		if err != nil {
			return
		}
		c.mu.Lock()
		lost := c.lost
		if !lost {
			_, err = c.client.Write(m)
		}
		c.mu.Unlock()
		if err != nil || lost && kind == 'Z' { // it is done, and ready for the next
			return
		}
	}
}

// message reads one with its kind and length.
func message(r io.Reader) (kind byte, m []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	m = make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	copy(m, head)
	_, err = io.ReadFull(r, m[5:])
	return head[0], m, err
}

func errorMessage(state, text string) []byte {
	fields := "SERROR\x00VERROR\x00C" + state + "\x00M" + text + "\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(fields))), fields...)
}
