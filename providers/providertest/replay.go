package providertest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// seen are the observations that Knative's own controller gave, each with what it has to be told apart as.
func seen() []struct {
	observation service.Observation
	hash, is    string
} {
	type line = struct {
		observation service.Observation
		hash, is    string
	}
	o := func(generation, observed int64, hash string, ready machines.Status, reason string) service.Observation {
		return service.Observation{Snapshot: service.Snapshot{
			Exists: true, Generation: generation, ObservedGeneration: observed, SpecHash: hash, Ready: ready, Reason: reason,
		}}
	}
	with := func(o service.Observation, condition, created, ready string) service.Observation {
		if condition != "" {
			o.Conditions = []service.ObservedCondition{{Type: condition, Status: machines.True}}
		}
		o.LatestCreated, o.LatestReady = created, ready
		return o
	}
	return []line{
		{o(1, 0, "1", "", ""), "1", Unseen},
		{with(o(1, 1, "1", machines.Unknown, "RevisionMissing"), "", "real-00001", ""), "1", Creating},
		{with(o(1, 1, "1", machines.Unknown, "IngressNotConfigured"), "ConfigurationsReady", "real-00001", ""), "1", Routing},
		{with(o(1, 1, "1", machines.True, ""), "", "real-00001", "real-00001"), "1", Ready},
		{with(o(2, 1, "2", machines.True, ""), "", "real-00001", "real-00001"), "2", Outdated},
		{with(o(2, 2, "2", machines.Unknown, ""), "RoutesReady", "real-00002", "real-00001"), "2", Updating},
		{with(o(2, 2, "2", machines.False, "RevisionFailed"), "RoutesReady", "real-00002", "real-00001"), "2", FailedKept},
		{with(o(3, 2, "3", machines.False, "RevisionFailed"), "RoutesReady", "real-00002", "real-00001"), "3", Outdated},
		{with(o(3, 3, "3", machines.True, ""), "", "real-00003", "real-00003"), "3", Ready},
		{service.Observation{}, "3", Gone},
	}
}

func theSituationsAreToldApart(t *testing.T, _ *bench) {
	apart := map[string]bool{}
	for _, line := range seen() {
		require.Equal(t, line.is, Situation(&line.observation, line.hash), "%+v", line.observation)
		apart[line.is] = true
	}
	require.Len(t, apart, 8)
}

// aLifeGoesThroughKnownSituations does what was done to the real controller, and compares the order in which the
// situations come. A gateway may be too quick for some to be seen, but none may come out of order.
func aLifeGoesThroughKnownSituations(t *testing.T, b *bench) {
	steps := []struct {
		spec service.Spec
		way  []string // the last one must be seen
	}{
		{b.OK, []string{Unseen, Creating, Routing, Ready}},
		{b.Fails, []string{Outdated, Updating, FailedKept}},
		{b.OK, []string{Outdated, Updating, Routing, Ready}},
	}
	for i, step := range steps {
		req := applying(uint64(i+1), step.spec)
		b.apply(req)
		at := 0
		for _, o := range b.until(req.Hash, step.way[len(step.way)-1]) {
			next := slices.Index(step.way, Situation(&o, req.Hash))
			require.GreaterOrEqual(t, next, at, "%s after %s: %+v", Situation(&o, req.Hash), step.way[at], o)
			at = next
		}
	}
}
