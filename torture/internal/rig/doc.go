// Package rig holds what is tortured: it builds the program with its failpoints, runs it and NATS servers as real
// processes on loopback ports of its own, ends them in unkind ways, and reads what they left behind.
//
// Every process that is started dies with this one, and only those are ever signalled.
package rig
