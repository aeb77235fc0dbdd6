// Package claim relays the rows of mode claim, which have a state each: open.go compares it with the stream, lanes.go runs a few lanes
// beside one another, and lane.go is the turn of one: mark what was published, claim what is due, publish it.
package claim
