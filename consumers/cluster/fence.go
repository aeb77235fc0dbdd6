package cluster

import (
	"fmt"
)

// Fence says under which claim of a partition a report was made, as [streams.Command.Fence] has it. What an owner reports is
// what it has seen; once another one has claimed the partition, which begins by seeing for itself, it does not count.
type Fence struct {
	Partition int
	Claim     uint64
}

func (f Fence) String() string { return fmt.Sprintf("%d.%d", f.Partition, f.Claim) }

// Claim is the revision of the claim under which this node owns the partition, or 0.
func (n *Node) Claim(partition int) uint64 {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.owned.Has(partition) {
		return 0
	}
	return max(n.own[partition].revision, n.view.claims[partition].revision)
}

// Outdated reports whether somebody has claimed the partition since, or it was given back.
func (n *Node) Outdated(f Fence) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.own[f.Partition].revision, n.view.claims[f.Partition].revision) > f.Claim
}
