// Package sink stores rows in the stream: row.go is a row on its way, message.go and structured.go make a CloudEvent of it, batch.go
// makes batches, publish.go stores one of them, each message guarded by the marker of its [Session], and stream.go says what stream
// can carry an outbox.
package sink
