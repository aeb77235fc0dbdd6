// Package shop is what there is about the relays of an outbox whatever world they run in: a schedule that is drawn from a seed (options.go), applications that append in transactions that commit late, in another order, or not at all
// (app.go), an operator who redrives and discards (operator.go), relays as they are (relay.go), and a [Judge], who holds the stream against the tables and against what applications know (judge.go).
//
// Package relays is the simulated world, in which a seed repeats. The tests of this package run the same schedules in the real one: against a Postgres and an embedded NATS server, by the clock, on connections that break where the schedule
// says so.
package shop
