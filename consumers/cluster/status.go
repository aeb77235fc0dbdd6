package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// NodeInfo is one node as this one sees it.
type NodeInfo struct {
	Name       string
	State      NodeState
	Desired    NodeState // what an operator wants it to be; it gets there within a second
	Started    time.Time
	Version    string
	HTTP       string // URL of its API
	Partitions []int
	Roles      []string // leases that it holds
	Offers     map[string]int
}

// Nodes are the nodes that live, by name.
func (n *Node) Nodes() []NodeInfo {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []NodeInfo
	for _, r := range n.view.nodes {
		info := NodeInfo{Name: r.Name, State: r.State, Desired: cmp.Or(n.view.desired[r.Name], NodeLive), Started: r.Started, Version: r.Version, HTTP: r.HTTP, Partitions: []int{}, Roles: []string{}, Offers: r.Offers}
		for p, c := range n.view.claims {
			if c.of(r) {
				info.Partitions = append(info.Partitions, p)
			}
		}
		for role, holder := range n.view.roles {
			if holder == r.Name {
				info.Roles = append(info.Roles, role)
			}
		}
		slices.Sort(info.Roles)
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b NodeInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// SetDesired makes a node live, cordoned or draining, now and after a restart. It fails with [ErrNoNode] for one that does not
// live and of which nothing else was wanted.
func (n *Node) SetDesired(ctx context.Context, name string, state NodeState) error {
	n.prepare()
	n.mu.Lock()
	_, lives := n.view.nodes[name]
	_, wanted := n.view.desired[name]
	n.mu.Unlock()
	if !lives && (!wanted || state != NodeLive) {
		r, _, err := n.readNode(ctx, name) // it may have come a moment ago
		var before []byte                  // what was wanted of it, which this node has not read when it has just begun
		if err == nil && r.Nonce == "" && state == NodeLive {
			before, _, err = n.read(ctx, desiredKey+name)
		}
		if err != nil {
			return fmt.Errorf("cannot ask whether node %s lives: %w", name, err)
		}
		if r.Nonce == "" && len(before) == 0 {
			return ErrNoNode
		}
	}
	if state == NodeLive {
		state = ""
	}
	if r := n.Appender.Append(ctx, []publish.Write{kv.Write(n.bucket(), desiredKey+name, []byte(state))})[0]; r.Err != nil {
		return fmt.Errorf("cannot write what is wanted of node %s: %w", name, r.Err)
	}
	return nil
}

// Status is how this node stands.
type Status struct {
	Member bool // it has a key that it renewed in time
	State  NodeState
	Owned  int // partitions that it owns
	Due    int // partitions that it owns or should take now
	Nodes  int // that live, this one among them
}

// Status tells how this node stands.
func (n *Node) Status() Status {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{Member: n.revision != 0 && n.LeaseValid(), State: n.state(), Nodes: len(n.view.nodes)}
	live := n.view.live()
	for p := range streams.Partitions {
		if n.owned.Has(p) {
			s.Owned++
		}
		if n.shouldRun(p, live) {
			s.Due++
		}
	}
	return s
}
