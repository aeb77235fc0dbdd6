// Package pinned is the part of the Go runtime that a simulation holds still: what the runtime draws at random, such as the case of a select that is taken
// and the order in which a map is ranged over, and the wall clock of each simulated node. This file does nothing: a build with the overlay of package overlay
// replaces it by one that reaches into the runtime, so that nothing of this is in a program that ships.
package pinned

// Clock is the wall clock of one simulated node. Offset, in nanoseconds, is how far it is ahead of the clock of the bubble; what measures durations does not see it.
type Clock struct{ Offset int64 }

// Pinned reports whether the runtime is held still: the same seed gives the same run.
const Pinned = false

// Seed starts the runtime's random numbers anew for the goroutines of synctest bubbles.
func Seed(uint64) {}

// Use gives this goroutine, and all that it starts from now on, a wall clock; nil is that of the bubble.
func Use(*Clock) {}
