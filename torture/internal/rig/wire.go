package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Wire stands between a program and its NATS server, reads what the program publishes, and does something to one
// message of it: what a network does that breaks or is slow at exactly the wrong moment.
type Wire struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	rule  *Rule
}

// Rule is what is done to the Nth message whose subject matches.
type Rule struct {
	Match func(subject string) bool
	N     int
	Do    Fault
	Kill  func()        // of the fault Kill
	Hold  time.Duration // of the fault Hold

	Done chan struct{} // closed when it was done
	seen int
}

// Fault is what a [Wire] does to a message.
type Fault string

// The faults.
const (
	Kill Fault = "kill" // the message goes on, and the program is killed before it sends anything else
	Cut  Fault = "cut"  // the message goes on, and the connection breaks before its answer comes
	Drop Fault = "drop" // the connection breaks before the message goes on
	Hold Fault = "hold" // the message comes late, behind others that were sent later
)

// NewWire listens for programs that want to talk to the server at target, host:port.
func NewWire(target string) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	w := &Wire{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return w, nil
}

// URL is where the program connects.
func (w *Wire) URL() string { return "nats://" + w.listener.Addr().String() }

// Arm makes a rule hold from now on, until it was done once.
func (w *Wire) Arm(r *Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = r
}

// Close ends it, with all connections.
func (w *Wire) Close() {
	_ = w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

// due takes the rule if this message is its turn.
func (w *Wire) due(subject string) *Rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rule
	if r == nil || !r.Match(subject) {
		return nil
	}
	if r.seen++; r.seen != r.N {
		return nil
	}
	w.rule = nil
	return r
}

func (w *Wire) track(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
}

func (w *Wire) untrack(c net.Conn) {
	_ = c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// carry carries one connection until it ends.
func (w *Wire) carry(program net.Conn) {
	w.track(program)
	defer w.untrack(program)
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		return // as if the server were away
	}
	w.track(server)
	defer w.untrack(server)
	go func() {
		_, _ = io.Copy(program, server) // until one of them ends
		_ = program.Close()
	}()
	l := &line{wire: w, in: bufio.NewReaderSize(program, 1<<16), out: bufio.NewWriterSize(server, 1<<16)}
	for l.next() == nil {
	}
}

// line is the way of one connection from the program to the server.
type line struct {
	wire *Wire
	in   *bufio.Reader

	mu  sync.Mutex // of out: a held message is written later, from elsewhere
	out *bufio.Writer
}

// next carries one message of the protocol. An error ends the connection.
func (l *line) next() error {
	head, err := l.in.ReadString('\n')
	if err != nil {
		return err
	}
	message := []byte(head)
	fields := strings.Fields(head)
	if len(fields) < 3 || fields[0] != "PUB" && fields[0] != "HPUB" {
		return l.write(message)
	}
	size, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return err
	}
	message = append(message, make([]byte, size+2)...)
	if _, err := io.ReadFull(l.in, message[len(head):]); err != nil {
		return err
	}
	r := l.wire.due(fields[1])
	if r == nil {
		return l.write(message)
	}
	defer close(r.Done)
	switch r.Do {
	case Drop:
		return io.EOF
	case Hold:
		time.AfterFunc(r.Hold, func() {
			if l.write(message) == nil { // the connection may have ended
				l.flush()
			}
		})
		return nil
	}
	if err := l.write(message); err != nil {
		return err
	}
	l.flush()
	if r.Do == Kill {
		r.Kill()
	}
	return io.EOF
}

func (l *line) write(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(message); err != nil {
		return err
	}
	if l.in.Buffered() == 0 {
		return l.out.Flush()
	}
	return nil
}

func (l *line) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Flush() // the connection ends anyway
}
