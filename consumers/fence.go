package consumers

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
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

// outdated reports whether somebody has claimed the partition since, or it was given back.
func (n *Node) outdated(f Fence) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.own[f.Partition].revision, n.view.claims[f.Partition].revision) > f.Claim
}

// fenced is why a report is refused that was made under an earlier claim. What is no fence keeps nothing out.
func (p *partition) fenced(it *item, h nats.Header) *machines.Refusal {
	text := streams.Header(h, streams.HeaderFence)
	if text == "" || p.e.Node == nil {
		return nil
	}
	var f Fence
	if _, err := fmt.Sscanf(text, "%d.%d", &f.Partition, &f.Claim); err != nil || f.Partition < 0 || f.Partition >= streams.Partitions || !p.e.Node.outdated(f) {
		return nil
	}
	return &machines.Refusal{Code: machines.CodeStale, State: it.slot.entity.State, Command: it.addr.Last, Message: fmt.Sprintf("partition %d has been claimed since this was reported", f.Partition)}
}
