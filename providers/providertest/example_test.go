package providertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/providertest"
	"github.com/bcc94042/instar/providers/simulated"
)

// A gateway of your own is held against the whole contract with three specifications that it knows.
func ExampleRun() {
	_ = func(t *testing.T) { // TestContract
		providertest.Run(t, providertest.Suite{
			New:     func(*testing.T) providers.Gateway { return &simulated.Gateway{} },
			OK:      service.Spec{Image: "sim:ok"},
			Fails:   service.Spec{Image: "sim:fail"},
			Pending: service.Spec{Image: "sim:never-ready"},
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
