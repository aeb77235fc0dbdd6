package builtin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// How long a connection is held while nothing takes it, and how often another try is made.
const (
	hold  = 15 * time.Second
	again = 20 * time.Millisecond
)

// forwarder is the program forward: it accepts on the public socket and passes each connection on to one of its
// targets. While none takes it (they are being restarted) the client waits and is not refused.
type forwarder struct {
	dialer net.Dialer
	conns  sync.WaitGroup

	mu      sync.Mutex
	targets []string
	turn    int
}

func forward([]string) error {
	f := &forwarder{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /-/targets", f.aim)
	return serve(f, mux)
}

// aim replaces the targets: a JSON list of addresses. Connections that run already stay where they are.
func (f *forwarder) aim(w http.ResponseWriter, r *http.Request) {
	var targets []string
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&targets); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.targets = targets
	f.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// next is the target whose turn it is.
func (f *forwarder) next() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.targets) == 0 {
		return "", false
	}
	f.turn++
	return f.targets[f.turn%len(f.targets)], true
}

func (f *forwarder) Serve(l net.Listener) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		f.conns.Go(func() { f.pass(client) })
	}
}

// Drain waits for the connections that run.
func (f *forwarder) Drain(ctx context.Context) bool {
	done := make(chan struct{})
	go func() { f.conns.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *forwarder) pass(client net.Conn) {
	defer client.Close()
	server, ok := f.dial()
	if !ok {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() { pump(server, client) })
	both.Go(func() { pump(client, server) })
	both.Wait()
}

// dial tries the targets in turn until one takes the connection.
func (f *forwarder) dial() (net.Conn, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), hold)
	defer cancel()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		if target, ok := f.next(); ok {
			if conn, err := f.dialer.DialContext(ctx, "tcp", target); err == nil {
				return conn, true
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// pump copies one direction and tells the end of it, so that half-closed connections work. When the reading side
// failed, the writing side is reset rather than ended as if all had been said.
func pump(to, from net.Conn) {
	_, err := io.Copy(to, from)
	dst, ok := to.(*net.TCPConn)
	if !ok {
		return
	}
	if err != nil {
		_ = dst.SetLinger(0)
		_ = dst.Close()
		return
	}
	_ = dst.CloseWrite() // fails when the other direction has ended it
}
