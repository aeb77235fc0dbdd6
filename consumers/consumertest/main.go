package consumertest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and requires that they leave no goroutine behind.
//
// A server that stops while it commits an atomic batch leaves the goroutines of the batch behind (nats-server 2.15.2).
// A [Worker] that hangs is left behind, as one test has it.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/bcc94042/instar/consumers/consumertest.(*Worker).Perform"))
}
