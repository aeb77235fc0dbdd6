// Package pdeathsig lets a process that is started end with the one that starts it. Only Linux can do that: elsewhere it
// outlives a parent that was killed, and has to be ended by hand.
package pdeathsig
