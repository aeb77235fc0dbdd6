package engine

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// fenced is why a report is refused that was made under an earlier claim. What is no fence keeps nothing out.
func (p *partition) fenced(it *item, h nats.Header) *machines.Refusal {
	text := streams.Header(h, streams.HeaderFence)
	if text == "" || p.e.Node == nil {
		return nil
	}
	var f cluster.Fence
	if _, err := fmt.Sscanf(text, "%d.%d", &f.Partition, &f.Claim); err != nil || f.Partition < 0 || f.Partition >= streams.Partitions || !p.e.Node.Outdated(f) {
		return nil
	}
	return &machines.Refusal{Code: machines.CodeStale, State: it.slot.entity.State, Command: it.addr.Last, Message: fmt.Sprintf("partition %d has been claimed since this was reported", f.Partition)}
}
