// Package relays is a world in which relays of an outbox run as they are, beside applications that append, and in which everything that can go wrong does, in an order that is drawn from a seed.
//
// A [World] is one run, in a bubble of testing/synctest. Relays (relay.go) are processes: streams/outbox/relay on pgx and nats.go, on connections to the model of the tables (package tables) and of JetStream (package model). What applications
// append, and what has to hold, is that of package shop. The loop in world.go waits until nobody can go on, and then lets one thing happen: a statement is executed, a packet
// reaches the server, an answer arrives, time passes, or a fault (faults.go) of the schedule strikes, at any step or at a statement or message that it waits for. What the stream stores is told to the judge (check.go).
//
// With the overlay of package overlay, as cmd/simulate -of relays builds it, the same seed makes the same run. docs/testing.md tells how to use it.
package relays
