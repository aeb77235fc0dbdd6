package backup

import "time"

// What an installation gives out, at most: no stream of one takes as many messages.
const perSecond = 100_000

// skew is by how much the clocks of two machines may differ.
const skew = time.Hour

// epoch is before the first installation.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fresh finds numbers that nobody can have seen: neither from the installation that a backup is of, nor from those that were restored before.
type fresh struct {
	at  time.Time // of the backup
	now time.Time
}

// bound is above what any installation has given out until then by its clock: it began at or below the bound of its beginning.
func bound(until time.Time) uint64 {
	return uint64(max(until.Sub(epoch)+skew, 0) / (time.Second / perSecond)) // it is not negative
}

// above is a number above all that were given out since an installation was at n. That is the bound of now, so that of two restores the later one is above the
// other, whatever they restore. Where n or the time of the backup show that the clocks differ, it is also above what can have been given out since then.
func (f fresh) above(n uint64) uint64 {
	now := bound(f.now)
	if n <= bound(f.at) && !f.at.After(f.now) {
		return now
	}
	since := max(f.now.Sub(f.at), 0) + skew
	return max(now, n+uint64(since/(time.Second/perSecond))) // it is not negative
}
