package consumers

import "time"

// leastPace is how many entities per second a background pass looks at where there are few: a few percent of a core.
const leastPace = 50

// Spread is the time between two of n entities of a background pass that is to be through within some time, but not faster than most of them per second.
func Spread(n int, within time.Duration, most int) time.Duration {
	return time.Second / time.Duration(min(max(n/max(int(within/time.Second), 1), leastPace), most))
}
