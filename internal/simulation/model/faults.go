package model

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/core"
)

// SetFull makes every publish fail for lack of room, or ends that.
func (s *Server) SetFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.SetFull(full)
}

// Restart ends every connection, loses what is pending, and starts the server again with what it had stored: the process has crashed.
func (s *Server) Restart() { s.PowerLoss(nil, nil) }

// PowerLoss is Restart after a loss of power. Each stream keeps its messages up to what keep says, which is between the last that was synced and the last
// that was stored, and what was taken out of it since the last sync comes back where revive says so and its limits of a subject allow it.
func (s *Server) PowerLoss(keep func(stream string, synced, last uint64) uint64, revive func(stream string, seq uint64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.conns) {
		s.finish(c, true)
	}
	s.core.At(s.o.Now())
	s.core.Restart(keep, revive)
	if s.auto {
		s.at = time.Time{}
		s.arm()
	}
}

// Empty ends every connection, loses what is pending, and starts the server again without streams: it has another data directory.
func (s *Server) Empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.conns) {
		s.finish(c, true)
	}
	s.begin()
	s.core.At(s.o.Now())
}

// Sync syncs what the stream has to disk.
func (s *Server) Sync(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.At(s.o.Now())
	s.core.Sync(stream)
}

// Written is how far a stream has been written now, and whether all of that is on disk.
func (s *Server) Written(stream string) (m core.Mark, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Written(stream)
}

// Synced is the last message of a stream that is on disk for certain.
func (s *Server) Synced(stream string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Synced(stream)
}

// SyncTo syncs what the stream had when [Server.Written] was asked, since the last restart.
func (s *Server) SyncTo(stream string, m core.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.SyncTo(stream, m)
}

// SetBack sets the clock of the server back: what it stamps from now on is of before, and what ends by a time of its clock ends later. [Options.Now] does not go back.
func (s *Server) SetBack(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.SetBack(d)
}

// Redeliver lets the waits for acks of one of the consumers run out that have any, and returns its name; nothing where none has.
func (s *Server) Redeliver(which int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.At(s.o.Now())
	return s.core.Redeliver(which)
}

// LoseLeader leaves a stream with replicas without a leader: what is sent to it is lost, until [Server.Elect].
func (s *Server) LoseLeader(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.LoseLeader(stream)
}

// Elect makes the next member of the cluster lead a stream with replicas.
func (s *Server) Elect(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.At(s.o.Now())
	s.core.Elect(stream)
	if s.auto {
		s.arm()
	}
}
