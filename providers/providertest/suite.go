package providertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// Suite is a gateway with what the contract needs to be asked of it.
type Suite struct {
	New     func(t *testing.T) providers.Gateway // a fresh one, ended with the test
	OK      service.Spec                         // becomes healthy
	Fails   service.Spec                         // never becomes healthy, and the gateway gives it up soon
	Pending service.Spec                         // is neither healthy nor given up for as long as a test lasts
	Pass    func()                               // lets a little time pass between two looks, which are repeated for up to 30 s
}

// Run asks for the whole contract, each point in a test of its own, in parallel.
func Run(t *testing.T, s Suite) {
	tests := map[string]func(t *testing.T, b *bench){
		"ApplyIsIdempotent":                 applyIsIdempotent,
		"TheSameAttemptReplacesOnce":        theSameAttemptReplacesOnce,
		"ObserveBeforeAndAfter":             observeBeforeAndAfter,
		"TheObservedGenerationFollows":      theObservedGenerationFollows,
		"AnUpdateKeepsTheOldServing":        anUpdateKeepsTheOldServing,
		"AFailedUpdateKeepsTheOldServing":   aFailedUpdateKeepsTheOldServing,
		"ReadinessHasThreeValues":           readinessHasThreeValues,
		"DeletedIsNotFound":                 deletedIsNotFound,
		"DeletingNothingIsFine":             deletingNothingIsFine,
		"AnEarlierLifeEndsWithALaterOne":    anEarlierLifeEndsWithALaterOne,
		"ALaterLifeIsLeftAlone":             aLaterLifeIsLeftAlone,
		"OlderFencesAreRefused":             olderFencesAreRefused,
		"ANewLifeHasAnotherUID":             aNewLifeHasAnotherUID,
		"AnEndedContextEndsTheCall":         anEndedContextEndsTheCall,
		"AnUnknownImageIsInvalid":           anUnknownImageIsInvalid,
		"ConcurrentCallsAgree":              concurrentCallsAgree,
		"ChangesAreNotified":                changesAreNotified,
		"TheSituationsAreToldApart":         theSituationsAreToldApart,
		"ALifeGoesThroughKnownSituations":   aLifeGoesThroughKnownSituations,
		"CapabilitiesNameTheGateway":        capabilitiesNameTheGateway,
		"AnUpdateWhileStartingIsSuperseded": anUpdateWhileStartingIsSuperseded,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{Suite: s, t: t, gateway: s.New(t)})
		})
	}
}

// bench is one gateway under test.
type bench struct {
	Suite
	t       *testing.T
	gateway providers.Gateway
}

// request for the one service of the test, at a version of its entity.
func request(version uint64) providers.Request {
	return providers.Request{
		Namespace: "default", Name: "web", UID: "life-1", Fence: version,
		Hash: fmt.Sprintf("hash-%d", version), Attempt: fmt.Sprintf("apply-%d-1", version),
	}
}

func applying(version uint64, spec service.Spec) providers.ApplyRequest {
	return providers.ApplyRequest{Request: request(version), Generation: version, Spec: spec}
}

func (b *bench) apply(req providers.ApplyRequest) service.Applied {
	b.t.Helper()
	applied, err := b.gateway.Apply(b.t.Context(), req)
	require.NoError(b.t, err)
	require.Equal(b.t, req.Hash, applied.Hash)
	require.NotEmpty(b.t, applied.UID)
	require.NotEmpty(b.t, applied.ResourceVersion)
	return applied
}

func (b *bench) observe() (service.Observation, error) {
	return b.gateway.Observe(b.t.Context(), providers.ObserveRequest{Request: request(1)})
}

// until observes until the service is in that situation, and returns all observations on the way.
func (b *bench) until(hash, situation string) []service.Observation {
	b.t.Helper()
	var seen []service.Observation
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); b.Pass() {
		o, err := b.observe()
		if providers.IsNotFound(err) {
			o, err = service.Observation{}, nil
		}
		require.NoError(b.t, err)
		seen = append(seen, o)
		if Situation(&o, hash) == situation {
			return seen
		}
	}
	last := seen[len(seen)-1]
	require.FailNow(b.t, "never seen", "wanted %s, last is %s: %+v", situation, Situation(&last, hash), last)
	return nil
}

func last(seen []service.Observation) service.Observation { return seen[len(seen)-1] }

func (b *bench) gone() {
	b.t.Helper()
	b.until("", Gone)
	_, err := b.observe()
	require.True(b.t, providers.IsNotFound(err), "%v", err)
}

func applyIsIdempotent(t *testing.T, b *bench) {
	req := applying(1, b.OK)
	first := b.apply(req)
	again := req
	again.Attempt, again.Fence = "apply-2-2", 2
	second := b.apply(again)
	require.Equal(t, first.UID, second.UID)
	require.Equal(t, first.Generation, second.Generation)
	o := last(b.until(req.Hash, Ready))
	b.apply(again)
	after := last(b.until(req.Hash, Ready))
	require.Equal(t, o.LatestCreated, after.LatestCreated)
	require.Equal(t, first.Generation, after.Generation)
}

func theSameAttemptReplacesOnce(t *testing.T, b *bench) {
	first := b.apply(applying(1, b.OK))
	forced := applying(2, b.OK)
	forced.Hash, forced.Spec.ForceReplace = "hash-1", true
	second := b.apply(forced)
	require.Greater(t, second.Generation, first.Generation)
	require.Equal(t, second.Generation, b.apply(forced).Generation)
	retry := forced
	retry.Attempt, retry.Fence = "apply-2-2", 3
	require.Equal(t, second.Generation, b.apply(retry).Generation)
}

func observeBeforeAndAfter(t *testing.T, b *bench) {
	_, err := b.observe()
	require.True(t, providers.IsNotFound(err), "%v", err)
	applied := b.apply(applying(1, b.OK))
	o, err := b.observe()
	require.NoError(t, err)
	require.True(t, o.Exists)
	require.Equal(t, applied.UID, o.UID)
	require.Equal(t, "hash-1", o.SpecHash)
	require.False(t, o.At.IsZero())
	o = last(b.until("hash-1", Ready))
	require.False(t, service.HasMissing(&o.Snapshot), "%+v", o)
	require.Equal(t, o.LatestCreated, o.Serving)
}

func theObservedGenerationFollows(t *testing.T, b *bench) {
	for version := uint64(1); version <= 2; version++ {
		req := applying(version, b.OK)
		applied := b.apply(req)
		require.Equal(t, int64(version), applied.Generation)
		for _, o := range b.until(req.Hash, Ready) {
			require.LessOrEqual(t, o.ObservedGeneration, o.Generation)
			require.Equal(t, applied.Generation, o.Generation)
			require.Equal(t, req.Hash, o.SpecHash)
		}
	}
}

func anUpdateKeepsTheOldServing(t *testing.T, b *bench) {
	b.apply(applying(1, b.OK))
	old := last(b.until("hash-1", Ready)).Serving
	b.apply(applying(2, b.OK))
	for _, o := range b.until("hash-2", Ready) {
		require.Contains(t, []string{old, o.LatestCreated}, o.Serving)
		if Situation(&o, "hash-2") == Updating {
			require.Equal(t, old, o.Serving)
			require.Equal(t, machines.True, status(&o, "RoutesReady"))
		}
	}
	o, err := b.observe()
	require.NoError(t, err)
	require.NotEqual(t, old, o.Serving)
}

func aFailedUpdateKeepsTheOldServing(t *testing.T, b *bench) {
	b.apply(applying(1, b.OK))
	old := last(b.until("hash-1", Ready)).Serving
	b.apply(applying(2, b.Fails))
	o := last(b.until("hash-2", FailedKept))
	require.Equal(t, machines.False, o.Ready)
	require.Equal(t, service.ReasonRevisionFailed, o.Reason)
	require.Equal(t, old, o.Serving)
	require.Equal(t, old, o.LatestReady)
	require.NotEqual(t, old, o.LatestCreated)
	b.apply(applying(3, b.OK))
	b.until("hash-3", Ready)
}

func readinessHasThreeValues(t *testing.T, b *bench) {
	b.apply(applying(1, b.Pending))
	o := last(b.until("hash-1", Creating))
	require.Equal(t, machines.Unknown, o.Ready)
	b.apply(applying(2, b.Fails))
	o = last(b.until("hash-2", Failed))
	require.Equal(t, machines.False, o.Ready)
	b.apply(applying(3, b.OK))
	o = last(b.until("hash-3", Ready))
	require.Equal(t, machines.True, o.Ready)
}

func deletedIsNotFound(t *testing.T, b *bench) {
	b.apply(applying(1, b.OK))
	b.until("hash-1", Ready)
	req := providers.DeleteRequest{Request: request(2)}
	require.NoError(t, b.gateway.Delete(t.Context(), req))
	require.NoError(t, b.gateway.Delete(t.Context(), req))
	b.gone()
	require.NoError(t, b.gateway.Delete(t.Context(), req))
}

func deletingNothingIsFine(t *testing.T, b *bench) {
	require.NoError(t, b.gateway.Delete(t.Context(), providers.DeleteRequest{Request: request(2)}))
	b.gone()
	_, err := b.gateway.Apply(t.Context(), applying(1, b.OK))
	require.True(t, providers.IsFenced(err), "an apply that comes after its deletion: %v", err)
	b.gone()
}

// A life may be deleted before anything of it was applied, where something of an earlier one is left: of a gateway that was
// away when that ended, or that came back from a backup.
func anEarlierLifeEndsWithALaterOne(t *testing.T, b *bench) {
	b.apply(applying(1, b.OK))
	later := providers.DeleteRequest{Request: request(2)}
	later.UID = "life-2"
	require.NoError(t, b.gateway.Delete(t.Context(), later))
	b.gone()
}

func aLaterLifeIsLeftAlone(t *testing.T, b *bench) {
	b.apply(applying(3, b.OK))
	late := providers.DeleteRequest{Request: request(2)}
	late.UID = "life-0"
	err := b.gateway.Delete(t.Context(), late)
	require.True(t, providers.IsFenced(err), "%v", err)
	b.until("hash-3", Ready)
}

func olderFencesAreRefused(t *testing.T, b *bench) {
	b.apply(applying(5, b.OK))
	_, err := b.gateway.Apply(t.Context(), applying(4, b.OK))
	require.Equal(t, providers.Older(4, 5), err)
	err = b.gateway.Delete(t.Context(), providers.DeleteRequest{Request: request(4)})
	require.Equal(t, providers.Older(4, 5), err)
	b.until("hash-5", Ready)
	require.NoError(t, b.gateway.Delete(t.Context(), providers.DeleteRequest{Request: request(6), Force: true}))
	b.gone()
	_, err = b.gateway.Apply(t.Context(), applying(5, b.OK))
	require.Equal(t, providers.Older(5, 6), err)
	b.gone()
}

func aNewLifeHasAnotherUID(t *testing.T, b *bench) {
	first := b.apply(applying(1, b.OK))
	require.NoError(t, b.gateway.Delete(t.Context(), providers.DeleteRequest{Request: request(2)}))
	b.gone()
	next := applying(3, b.OK)
	next.UID = "life-2"
	second := b.apply(next)
	require.NotEqual(t, first.UID, second.UID)
	require.Equal(t, int64(1), second.Generation)
	require.Equal(t, second.UID, last(b.until(next.Hash, Ready)).UID)
}

func anEndedContextEndsTheCall(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.gateway.Apply(ctx, applying(1, b.OK))
	require.Equal(t, providers.Timeout, providers.CodeOf(err))
	_, err = b.gateway.Observe(ctx, providers.ObserveRequest{Request: request(1)})
	require.Equal(t, providers.Timeout, providers.CodeOf(err))
	err = b.gateway.Delete(ctx, providers.DeleteRequest{Request: request(1)})
	require.Equal(t, providers.Timeout, providers.CodeOf(err))
}

func anUnknownImageIsInvalid(t *testing.T, b *bench) {
	_, err := b.gateway.Apply(t.Context(), applying(1, service.Spec{Image: "../../bin/sh"}))
	require.True(t, providers.IsInvalid(err), "%v", err)
	b.gone()
	b.apply(applying(2, b.OK))
	_, err = b.gateway.Apply(t.Context(), applying(3, service.Spec{Image: "no-such-image"}))
	require.True(t, providers.IsInvalid(err), "%v", err)
	b.until("hash-2", Ready)
}

func concurrentCallsAgree(t *testing.T, b *bench) {
	req := applying(1, b.OK)
	var calls sync.WaitGroup
	applied := make([]service.Applied, 8)
	errs := make([]error, 2*len(applied))
	for i := range applied {
		calls.Go(func() { applied[i], errs[i] = b.gateway.Apply(t.Context(), req) })
		calls.Go(func() {
			if _, err := b.observe(); !providers.IsNotFound(err) {
				errs[len(applied)+i] = err
			}
		})
	}
	calls.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for _, a := range applied {
		require.Equal(t, applied[0].UID, a.UID)
		require.Equal(t, int64(1), a.Generation)
	}
	b.until(req.Hash, Ready)
}

func changesAreNotified(t *testing.T, b *bench) {
	require.Equal(t, b.gateway.Capabilities().Watch, isNotifier(b.gateway))
	n, ok := b.gateway.(providers.Notifier)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	keys, ended := make(chan string, 1024), make(chan error, 1)
	go func() { ended <- n.Watch(ctx, func(key string) { keys <- key }) }()
	timeout := time.After(30 * time.Second)
	for version, told := uint64(1), false; !told; version++ { // the watch may begin after the first ones
		b.apply(applying(version, b.OK))
		b.Pass()
		select {
		case key := <-keys:
			require.Equal(t, "default.web", key)
			told = true
		case <-timeout:
			require.FailNow(t, "nothing was told")
		default:
		}
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func isNotifier(g providers.Gateway) bool {
	_, ok := g.(providers.Notifier)
	return ok
}

func capabilitiesNameTheGateway(t *testing.T, b *bench) {
	require.NotEmpty(t, b.gateway.Capabilities().Gateway)
}

func anUpdateWhileStartingIsSuperseded(t *testing.T, b *bench) {
	b.apply(applying(1, b.Pending))
	b.apply(applying(2, b.OK))
	o := last(b.until("hash-2", Ready))
	require.Equal(t, int64(2), o.Generation)
	require.Equal(t, o.LatestCreated, o.Serving)
}
