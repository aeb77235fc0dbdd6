package cluster

import "github.com/bcc94042/instar/streams"

// Set is a set of partitions.
type Set uint32

// All are all partitions.
const All Set = 1<<streams.Partitions - 1

// Has reports whether the partition is in the set.
func (s Set) Has(partition int) bool { return s&(1<<partition) != 0 }

// Shares says which partitions this node owns. What owners do beside the engine's transitions (probes, heartbeat
// deadlines) follows it: it begins for a partition that appears and ends for one that goes.
type Shares interface {
	// Owned returns the partitions that this node owns now, and a channel that is closed when that changes.
	Owned() (Set, <-chan struct{})
	// Claim is the revision of the claim under which this node owns the partition now: higher than that of any owner before,
	// and 0 when it does not.
	Claim(partition int) uint64
}

// Everything is the Shares of a node that is alone.
type Everything struct{}

// Owned returns all partitions, for ever.
func (Everything) Owned() (Set, <-chan struct{}) { return All, nil }

// Claim returns 1: nobody owned anything before.
func (Everything) Claim(int) uint64 { return 1 }
