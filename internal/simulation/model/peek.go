package model

import (
	"net"
	"slices"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Dial is [Server.Connect] with the id of the connection, as it is in packets and deliveries.
func (s *Server) Dial() (net.Conn, int) { return s.connect() }

// Streams are the names of all, sorted.
func (s *Server) Streams() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.core.Names())
}

// Consumers are the names of those of a stream, as they were made.
func (s *Server) Consumers(stream string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.core.Stream(stream); x != nil {
		for _, o := range x.Consumers() {
			all = append(all, o.Name())
		}
	}
	return all
}

// Log is what a stream has stored, to be read only, and only until anything else is called; nil when there is no such stream.
func (s *Server) Log(stream string) *store.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.core.Stream(stream); x != nil {
		return x.Log()
	}
	return nil
}
