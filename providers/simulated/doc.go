// Package simulated is a gateway that runs nothing: for tests, and for demonstrations of failures. Never the default.
//
// It is deterministic: what it answers depends on the calls, on its clock and on its script only. Between two calls
// it does nothing, so that nobody is told of what time alone brings; observe again.
//
// What becomes of a service is said by its image:
//
//	sim:ok                 healthy after Ready, routed after Route
//	sim:slow?ready=3s      the same, later
//	sim:never-ready        Ready stays Unknown
//	sim:fail?ready=1s      the revision fails; an older one goes on serving
//	sim:flap?period=2s     becomes healthy, then unhealthy, and so on
//
// All take observe=, ready= and route=, durations in the order in which they pass. What becomes of calls, and what
// happens to a service from outside, is said by [Gateway.Script].
package simulated
