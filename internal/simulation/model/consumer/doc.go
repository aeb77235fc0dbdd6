// Package consumer is a consumer of a stream of JetStream: what it delivers to pulls or to a subject, what is acked and what comes again, and what is saved
// of that. A [Consumer] is told what happens to its stream, and does what is due when it is told the time.
package consumer
