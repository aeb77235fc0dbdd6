// Package store has the messages of a stream in memory: a [Log] of them by sequence and by subject, their headers as bytes, and how NATS matches and
// maps subjects. It knows no limits, no consumers and no clock.
package store
