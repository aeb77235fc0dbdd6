package shop

// Connections that break, stand still, and lose what is on its way, where the schedule says so.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/bcc94042/instar/internal/simulation/tables"
)

var errCut = errors.New("the connection was cut")

// wire is one connection.
type wire struct {
	net.Conn
	w    *world
	p    *process // nil for an application
	ear  *ear     // nil for one to NATS
	gone chan struct{}
	once sync.Once

	mu   sync.Mutex
	held time.Time
}

func (w *world) wire(c net.Conn, p *process, ear *ear) *wire {
	x := &wire{Conn: c, w: w, p: p, ear: ear, gone: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p != nil {
		x.held = p.held
	}
	w.wires = append(w.wires, x)
	return x
}

// Write sends, unless a fault has waited for just that.
func (x *wire) Write(b []byte) (int, error) {
	x.wait()
	if x.over() {
		return 0, errCut
	}
	f := x.w.passes(x.says(b))
	switch {
	case f == nil:
	case f.Kind == "stall" || f.Kind == "zombie":
		x.w.strike(*f, x)
		x.wait()
		if x.over() {
			return 0, errCut
		}
	case f.Lose: // nothing is lost of a connection that lives
		x.w.strike(*f, x)
		x.end(0)
		return len(b), nil
	default: // it takes effect, and its answer does not arrive
		n, err := x.Conn.Write(b)
		x.w.strike(*f, x)
		return n, err
	}
	return x.Conn.Write(b)
}

// Read receives.
func (x *wire) Read(b []byte) (int, error) {
	n, err := x.Conn.Read(b)
	x.wait()
	x.w.passes(nil)
	return n, err
}

// Close ends it.
func (x *wire) Close() error {
	x.end(0)
	return nil
}

// SetDeadline does nothing to one that is broken: who uses it would read from it again.
func (x *wire) SetDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over() {
		return nil
	}
	return x.Conn.SetDeadline(t)
}

// end breaks it. The other side finds out after a time.
func (x *wire) end(late time.Duration) {
	x.once.Do(func() {
		x.mu.Lock()
		close(x.gone)
		_ = x.Conn.SetDeadline(time.Unix(1, 0))
		x.mu.Unlock()
		x.w.forget(x)
		if late == 0 {
			_ = x.Conn.Close()
			return
		}
		x.w.after(late, func() { _ = x.Conn.Close() })
	})
}

// over reports whether it is broken.
func (x *wire) over() bool {
	select {
	case <-x.gone:
		return true
	default:
		return false
	}
}

func (x *wire) hold(until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held = until
}

// wait returns when nothing holds it up any more.
func (x *wire) wait() {
	for {
		x.mu.Lock()
		d := time.Until(x.held)
		x.mu.Unlock()
		if d <= 0 {
			return
		}
		t := time.NewTimer(min(d, 20*time.Millisecond)) // it may be let go sooner
		select {
		case <-t.C:
		case <-x.gone:
			t.Stop()
			return
		}
	}
}

// says are the moments of a schedule that are in what is sent.
func (x *wire) says(b []byte) (moments []string) {
	if x.ear != nil {
		return x.ear.hear(b)
	}
	for moment, subject := range subjects {
		if bytes.Contains(b, []byte("PUB "+subject)) {
			moments = append(moments, moment)
		}
	}
	return moments
}

func (w *world) forget(x *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wires = slices.DeleteFunc(w.wires, func(y *wire) bool { return y == x })
}

// wiresOf are those of a process, or all.
func (w *world) wiresOf(p *process) []*wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.wires), func(x *wire) bool { return p != nil && x.p != p })
}

// ear hears which statements a client sends to a database on one connection.
type ear struct {
	raw      []byte // of a message that is not complete
	begun    bool   // the first one, which has no kind, is over
	prepared map[string]string
}

// hear returns the names of the statements that end with these bytes.
func (e *ear) hear(b []byte) (names []string) {
	e.raw = append(e.raw, b...)
	for {
		head := 1
		if !e.begun {
			head = 0
		}
		if len(e.raw) < head+4 {
			return names
		}
		n := head + int(binary.BigEndian.Uint32(e.raw[head:]))
		if len(e.raw) < n {
			return names
		}
		if name := e.name(e.raw[0], e.raw[head+4:n]); e.begun && name != "" {
			names = append(names, name)
		}
		e.begun, e.raw = true, e.raw[n:]
	}
}

func (e *ear) name(kind byte, body []byte) string {
	switch kind {
	case 'P':
		if p := (pgproto3.Parse{}); p.Decode(body) == nil {
			e.prepared[p.Name] = tables.Named(p.Query)
		}
	case 'B':
		if b := (pgproto3.Bind{}); b.Decode(body) == nil {
			return e.prepared[b.PreparedStatement]
		}
	case 'Q':
		return tables.Named(string(bytes.TrimRight(body, "\x00")))
	}
	return ""
}
