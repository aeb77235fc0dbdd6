package index

import "time"

// Activity is how much has happened lately: numbers for each of the last [ActivitySteps] pieces of time, the newest last. What was there when the index was
// built is no activity, nor is what happened before.
type Activity struct {
	Transitions []uint64            // by how much versions have risen
	Entered     map[string][]uint64 // keys that have come into a state
}

const (
	ActivityStep  = 30 * time.Second
	ActivitySteps = 120 // an hour
)

// activity is a ring of such pieces. The lock of the index guards it.
type activity [ActivitySteps]struct {
	tick        int64 // which piece of time since 1970
	transitions uint64
	entered     map[string]uint64
}

func tickOf(at time.Time) int64 { return at.UnixNano() / int64(ActivityStep) }

// add counts one update: a version that was the first number, and the state that was entered with it, or none.
func (a *activity) add(now time.Time, was, is uint64, entered string) {
	tick := tickOf(now)
	s := &a[tick%ActivitySteps]
	if s.tick != tick {
		s.tick, s.transitions, s.entered = tick, 0, nil
	}
	if is > was {
		s.transitions += is - was
	}
	if entered != "" {
		if s.entered == nil {
			s.entered = map[string]uint64{}
		}
		s.entered[entered]++
	}
}

// Activity returns what has happened within the last hour.
func (ix *Index) Activity(now time.Time) Activity {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	all := Activity{Transitions: make([]uint64, ActivitySteps), Entered: map[string][]uint64{}}
	last := tickOf(now)
	for i := range all.Transitions {
		tick := last - int64(ActivitySteps-1-i)
		s := &ix.recent[tick%ActivitySteps]
		if s.tick != tick {
			continue
		}
		all.Transitions[i] = s.transitions
		for state, n := range s.entered {
			if all.Entered[state] == nil {
				all.Entered[state] = make([]uint64, ActivitySteps)
			}
			all.Entered[state][i] = n
		}
	}
	return all
}
