// Package wire is the NATS client protocol of the simulated server: the operations that a client sends ([Parser]), the messages that it gets
// ([AppendMsg]), and the connection between them in memory ([Conn]).
//
// Nothing in it waits for a clock or starts a goroutine. A [Conn] hands what its client writes to a function, in the client's goroutine, and its
// Read blocks on a condition, which is durably blocked in a bubble of testing/synctest.
package wire
