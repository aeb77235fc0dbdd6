package limits

import "sync/atomic"

// Quota bounds how much each of many owners has of what somebody else counts. It is safe for concurrent use; nil allows everything.
type Quota struct {
	name  string
	bound int
	most  func() int

	refused atomic.Uint64
}

// NewQuota allows each owner so much; 0 is no bound, and then it is nil. most is how much the owner has that has most, for the metrics.
func NewQuota(name string, bound int, most func() int) *Quota {
	if bound <= 0 {
		return nil
	}
	return &Quota{name: name, bound: bound, most: most}
}

// Bound is how much each owner may have.
func (q *Quota) Bound() int { return q.bound }

// Allows reports whether an owner who has so much may have one more.
func (q *Quota) Allows(has int) bool { return q == nil || has < q.bound }

// Refused counts that an owner was refused one more.
func (q *Quota) Refused() { q.refused.Add(1) }
