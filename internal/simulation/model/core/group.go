package core

import "github.com/nats-io/nats-server/v2/server"

// group are the replicas of a stream: the one that leads it now, out of those that there are. A stream without replicas has none.
type group struct {
	leader int  // of 0 to replicas-1
	lost   bool // there is none now: nobody answers
}

func (s *Stream) Replicated() bool { return s.cfg.Replicas > 1 }

// Silent reports whether nobody answers for the stream now.
func (s *Stream) Silent() bool { return s.group.lost }

// Cluster is what an info says of replicas.
func (s *Stream) Cluster() *server.ClusterInfo {
	if !s.Replicated() {
		return nil
	}
	return nil
}
