package embedded

import (
	"cmp"
	"slices"
	"sync"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/streams"
)

// ends is where streams ended when the server started.
type ends struct {
	mu    sync.Mutex
	where *stores
	of    map[string]end // by stream
}

type end struct {
	store unsafe.Pointer
	last  uint64
}

// note takes down where the streams end, if this version of the server lets it.
func (s *Server) note(srv *server.Server) {
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	if s.ends.where = s.stores(); s.ends.where == nil {
		return
	}
	s.ends.of = map[string]end{}
	all := s.ends.where.of(srv)
	slices.SortFunc(all, func(a, b store) int { return cmp.Compare(rank(a.name), rank(b.name)) })
	for _, st := range all {
		var state server.StreamState
		st.FastState(&state)
		s.ends.of[st.name] = end{st.pointer(), state.LastSeq}
	}
}

// stores is where the server keeps what it stores, if that was proven.
func (s *Server) stores() *stores {
	switch {
	case s.barrier != nil:
		return s.barrier.where
	case s.flusher != nil:
		return s.flusher.where
	}
	return nil
}

// rank puts buckets before streams. Clients may write already: what a value that was noted came from is in a stream that is noted later.
func rank(stream string) int {
	if _, bucket := streams.BucketOf(stream); bucket {
		return 0
	}
	return 1
}

// EndAtStart is the last sequence that a stream had when the server started, and false if that is not known, as of a stream that was made anew since. A power loss before may have cost later ones.
func (s *Server) EndAtStart(stream string) (uint64, bool) {
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	e, known := s.ends.of[stream]
	if !known {
		return 0, false
	}
	srv := s.running()
	if srv == nil {
		return 0, false
	}
	now, err := s.ends.where.named(srv, stream)
	if err != nil || now.StreamStore == nil || now.pointer() != e.store {
		return 0, false
	}
	return e.last, true
}
