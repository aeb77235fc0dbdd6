// Package views folds events into the read models of the machines: one durable consumer per view, each with its own memory of what it
// has folded, so that no view waits for another. An event has one effect on each view, however often it is delivered.
package views
