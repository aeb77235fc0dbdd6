// Package simulation is a world in which the program runs as it is, and in which everything that can go wrong does, in an order that is drawn from a seed.
//
// A [World] is one run, in a bubble of testing/synctest. Nodes (node.go) are put together from the program's own parts, on connections to the simulated NATS server of package
// model (network.go). Clients (client.go) send commands that are drawn from the tables of the machines (package orders), and repeat them under their keys; the outside (package outside)
// performs effects well, late, wrongly or not. The loop in world.go waits until nobody can go on, and then lets one thing happen: a packet reaches the server, a message reaches
// a client, time passes, or a fault (faults.go) of the schedule (package schedule). What is stored is read after each step (history.go) and held against the invariants (invariants.go).
//
// The same seed makes the same run, step by step (docs/testing.md says where not), in programs that cmd/simulate builds: package overlay holds the Go runtime still there. docs/testing.md tells how to use it.
package simulation
