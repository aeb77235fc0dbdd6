// Package consumertest is a NATS server with streams and buckets, small machines, and what a test sends and reads there. It starts no
// consumer of its own: whoever tests one hands it over ([World.Run], [World.Also]), so the tests inside each package can use it.
package consumertest
