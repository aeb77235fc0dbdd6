package consumers

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
}

// Everything is the Shares of a node that is alone.
type Everything struct{}

// Owned returns all partitions, for ever.
func (Everything) Owned() (Set, <-chan struct{}) { return All, nil }
