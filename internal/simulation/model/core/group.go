package core

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
)

// group are the replicas of a stream: the one that leads it now, out of those that there are. All have what is stored. A stream without replicas has none.
type group struct {
	leader int  // of 0 to replicas-1
	lost   bool // there is none now: nobody takes or delivers anything
}

// Replicated reports whether the stream has replicas.
func (s *Stream) Replicated() bool { return s.cfg.Replicas > 1 }

// Silent reports whether nobody answers for the stream now.
func (s *Stream) Silent() bool { return s.group.lost }

// Cluster is what an info says of replicas; nil where there are none.
func (s *Stream) Cluster() *server.ClusterInfo {
	if !s.Replicated() {
		return nil
	}
	c := &server.ClusterInfo{Name: "model"}
	for i := range s.cfg.Replicas {
		if i == s.group.leader && !s.group.lost {
			c.Leader = member(i)
		} else {
			c.Replicas = append(c.Replicas, &server.PeerInfo{Name: member(i), Current: !s.group.lost})
		}
	}
	return c
}

func member(i int) string { return fmt.Sprintf("model-%d", i) }

// Redeliver lets the waits of one of the consumers run out that wait for acks, as a clock does that is stepped forward. It returns the name of the consumer.
func (c *Core) Redeliver(which int) string {
	var wait []*consumer.Consumer
	for _, name := range c.names {
		for _, o := range c.streams[name].order {
			if o.Awaits() {
				wait = append(wait, o)
			}
		}
	}
	if len(wait) == 0 {
		return ""
	}
	o := wait[which%len(wait)]
	o.RunOut()
	c.Settle()
	return o.Name()
}

// LoseLeader leaves a stream with replicas without a leader: what is sent to it is lost. It does nothing to another one.
func (c *Core) LoseLeader(name string) {
	if s := c.streams[name]; s != nil && s.Replicated() {
		s.group.lost = true
	}
}

// Elect makes the next member lead a stream with replicas. It has all that was stored; batches under way and pulls that wait are lost, and
// consumers go on with what was saved of them. An advisory says so first.
func (c *Core) Elect(name string) {
	s := c.streams[name]
	if s == nil || !s.Replicated() {
		return
	}
	s.group = group{leader: (s.group.leader + 1) % s.cfg.Replicas}
	c.Advise("STREAM.LEADER_ELECTED."+name, &server.JSStreamLeaderElectedAdvisory{
		TypedEvent: c.Event(server.JSStreamLeaderElectedAdvisoryType), Stream: name, Leader: member(s.group.leader), Replicas: s.Cluster().Replicas,
	})
	clear(s.batches)
	clear(s.fast)
	for _, o := range slices.Clone(s.order) {
		o.Lead()
	}
	c.Settle()
}
