package cluster

import (
	"fmt"

	"github.com/bcc94042/instar/streams"
)

// Fence says under which claim of a partition a report was made, as [publish.Command.Fence] has it. What an owner reports is
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
	return max(n.latest[partition].revision, n.view.claims[partition].revision)
}

// Stale reports whether a fence, as it was sent, is of an earlier claim of its partition: somebody has claimed that since, or it was given
// back. What is no fence is not stale.
func (n *Node) Stale(fence string) (partition int, stale bool) {
	var f Fence
	if _, err := fmt.Sscanf(fence, "%d.%d", &f.Partition, &f.Claim); err != nil || f.Partition < 0 || f.Partition >= streams.Partitions {
		return 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return f.Partition, max(n.latest[f.Partition].revision, n.view.claims[f.Partition].revision) > f.Claim
}
