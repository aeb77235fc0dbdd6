package cluster

import "time"

// MaxSkew is how far the clock of a node and that of the NATS server may be apart before it is told.
const MaxSkew = 2 * time.Second

// renewal is the last write of this node's key, by this machine's wall clock.
type renewal struct {
	revision     uint64
	sent, stored time.Time
}

// Skew is by how much the clock of the server that leads the bucket of owners was ahead of this machine's when this node
// renewed its key last, at the least; 0 when the two agree as far as can be told.
func (n *Node) Skew() time.Duration { return time.Duration(n.skew.Load()) }

// compareClocks holds the time that the server has stamped the last renewal with against those between which it was written.
func (n *Node) compareClocks() {
	n.mu.Lock()
	wrote := n.wrote
	n.mu.Unlock()
	it, ok := n.index.Get(nodeKey + n.Name)
	if !ok || wrote.revision == 0 || it.Revision != wrote.revision {
		return // the watch is behind; the next one will do
	}
	skew := outside(it.UpdatedAt, wrote.sent, wrote.stored)
	n.skew.Store(int64(skew))
	switch apart := skew.Abs(); {
	case apart > MaxSkew && !n.skewed:
		n.skewed = true
		n.Log.Warn("the clocks of this machine and of the NATS server differ: deadlines, ages and event times are off by as much", "node", n.Name, "server_ahead", skew)
	case apart < MaxSkew/2 && n.skewed:
		n.skewed = false
		n.Log.Info("the clock of this machine and that of the NATS server agree again", "node", n.Name, "server_ahead", skew)
	}
}

// outside is how far a time is from the span of two.
func outside(at, from, to time.Time) time.Duration {
	switch {
	case at.Before(from):
		return at.Sub(from)
	case at.After(to):
		return at.Sub(to)
	}
	return 0
}
