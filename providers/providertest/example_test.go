package providertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/providertest"
)

// A gateway of your own is held against the whole contract with three specifications that it knows.
func ExampleRun() {
	var newGateway func(*testing.T) providers.Gateway // of your own
	_ = func(t *testing.T) {                          // TestContract
		providertest.Run(t, providertest.Suite{
			New:     newGateway,
			OK:      service.Spec{Image: "hello"},
			Fails:   service.Spec{Image: "crashes"},
			Pending: service.Spec{Image: "hangs"},
			Pass:    func() { time.Sleep(10 * time.Millisecond) },
		})
	}
}

// Ready means nothing while the generation that was seen is older than the one that is wanted.
func ExampleSituation() {
	seen := &service.Observation{Snapshot: service.Snapshot{Exists: true, Generation: 2, ObservedGeneration: 1, SpecHash: "h2", Ready: machines.True}}
	fmt.Println(providertest.Situation(seen, "h2"))
	seen.ObservedGeneration = 2
	fmt.Println(providertest.Situation(seen, "h2"))
	fmt.Println(providertest.Situation(&service.Observation{}, "h2"))
	// Output:
	// outdated
	// ready
	// gone
}
