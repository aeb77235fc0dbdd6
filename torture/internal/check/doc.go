// Package check judges what was left behind after a torture: the log of the clients against the events, the stored
// values and the streams. It is pure, reads nothing by itself and shares no code with the program that it judges: the
// forms of values and events and the table of legal edges are written anew from the specification.
package check
