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
//	sim:down               the apply is never taken: it fails each time, and may be tried again
//
// All take observe=, ready= and route=, durations in the order in which they pass. With answer= the apply takes so long, and is done then,
// whether its caller still waits or not: a provider that hangs, or comes late. What becomes of calls, and what
// happens to a service from outside, is said by [Gateway.Script].
package simulated
