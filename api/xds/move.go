package xds

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/internal/panics"
)

// xDS has no word for "this may be old". What a server can do is to end the streams: a proxy keeps what it has, shows that
// it is not connected (control_plane.connected_state), and asks the next of its servers.
const (
	staleFirst = 10 * time.Second // behind for so long, the streams are ended
	staleAgain = 30 * time.Second // and those that came back, when it is so still
	staleLook  = time.Second
)

// mover ends streams.
type mover struct {
	log *slog.Logger // of panics

	mu    sync.Mutex
	moved chan struct{} // closed when the streams of now are to end
}

// now is the channel of the streams that begin now.
func (m *mover) now() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved == nil {
		m.moved = make(chan struct{})
	}
	return m.moved
}

// end ends all streams of now.
func (m *mover) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// watchStale ends streams while the catalog is behind.
func (f *feed) watchStale(ctx context.Context) {
	tick := time.NewTicker(staleLook)
	defer tick.Stop()
	for next := staleFirst; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch age := f.Stale(); {
		case age == 0:
			next = staleFirst
		case age >= next:
			f.log.Warn("xDS: this node cannot reach the others; moving its proxies to other nodes", "behind", age.Round(time.Second), "streams", f.Stats().Streams)
			f.mover.end()
			next = age + staleAgain
		}
	}
}

// intercept makes a stream that can be ended.
func (m *mover) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Caught(m.log, "xds", p)
			err = status.Error(codes.Internal, "an unexpected error; it is in the log of the server")
		}
	}()
	moved := m.now()
	err = handler(srv, movable{ss, moved})
	select {
	case <-moved:
		return status.Error(codes.Unavailable, "this server is behind: ask another one")
	default:
		return err
	}
}

// movable is a stream from which nothing is read any more once it is to end; with that its handler returns.
type movable struct {
	grpc.ServerStream
	moved <-chan struct{}
}

func (s movable) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { // ends with the stream, at the latest
		defer func() {
			if p := recover(); p != nil {
				got <- panics.Error("xds", p)
			}
		}()
		got <- s.ServerStream.RecvMsg(m)
	}()
	select {
	case err := <-got:
		return err
	case <-s.moved:
		return status.Error(codes.Unavailable, "this server is behind")
	}
}
