// Package floorplan holds the plan of the house as tests: which folder may import what, what must not be called in the
// machines, how large a file may be, and that a long one says what it does. It exports nothing.
//
// Change the table in a commit of its own, and say why there. Run it with -count=1: the test cache does not see that
// another package has changed.
package floorplan
