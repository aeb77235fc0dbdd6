package index

import (
	"slices"
	"time"
)

// Stays says how long keys were in a state, of the newest [staysKept] that have left it while the index was served. A stay whose beginning or end the index has not seen,
// as one revision among several that came as one, is none.
type Stays struct {
	Count    int
	P50, P95 time.Duration
}

const staysKept = 500

// stays are the newest ones of each state. The lock of the index guards them.
type stays map[string]*lately

type lately struct {
	took []int64 // nanoseconds
	next int     // where the next one goes, once there are as many as are kept
}

func (s stays) add(state string, took int64) {
	if took < 0 { // the clocks of two nodes differ
		took = 0
	}
	of := s[state]
	switch {
	case of == nil:
		s[state] = &lately{took: []int64{took}}
	case len(of.took) < staysKept:
		of.took = append(of.took, took)
	default:
		of.took[of.next] = took
		of.next = (of.next + 1) % staysKept
	}
}

// Stays returns how long keys were in each state that one has left.
func (ix *Index) Stays() map[string]Stays {
	ix.mu.RLock()
	all := make(map[string][]int64, len(ix.stays))
	for state, of := range ix.stays {
		all[state] = slices.Clone(of.took)
	}
	ix.mu.RUnlock()
	out := make(map[string]Stays, len(all))
	for state, took := range all {
		slices.Sort(took)
		at := func(percent int) time.Duration { return time.Duration(took[(len(took)*percent+99)/100-1]) } // the nearest rank
		out[state] = Stays{Count: len(took), P50: at(50), P95: at(95)}
	}
	return out
}
