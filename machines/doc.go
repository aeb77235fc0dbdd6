// Package machines holds the tables: what a thing is, which states it has, and what takes it from one to the next.
//
// A lifecycle is a [Definition]: states, commands, effects, events and edges, read on one screen. [Define] checks
// it when the program starts and panics with the reason when it is broken. [Machine.Step] takes an entity and an
// input and gives the entity that follows and what is to be done about it: events, effects and timers, as data.
//
// The contract:
//   - Step is pure. Time comes in with the input, work goes out as data; there is no clock, goroutine, log or I/O
//     here, and the same entity and input always give the same result, on any node, at any time.
//   - Step never changes what it was given. Actions get a shallow copy of the data: they replace maps, slices and
//     pointers and do not write through them.
//   - A transition raises the version by one and follows an edge of the table; looplab/fsm decides which inputs a state takes, and where an edge leads (fsm.go).
//     Where an effect failed, the version also rises above the fence that its provider has seen, and a try that is planned follows no edge (retry.go).
//   - A refused input is a [*Refusal]: an answer with the state and what is allowed now, never an error to retry.
//   - Every state with a timeout has its deadline among the entity's timers for as long as the entity stays in it, unless
//     its Until says that there is none.
//
// Sub-packages hold one lifecycle each; all lists those that ship, registry has those that a program runs, diagram draws them. Behaviour is read in the transcripts under testdata.
package machines
