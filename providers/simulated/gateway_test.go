package simulated_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/providertest"
	"github.com/bcc94042/instar/providers/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func TestContract(t *testing.T) {
	t.Parallel()
	c := newClock()
	providertest.Run(t, providertest.Suite{
		New: func(*testing.T) providers.Gateway {
			return &simulated.Gateway{Now: c.Now, Observed: 100 * time.Millisecond, Ready: 3 * time.Second, Route: 200 * time.Millisecond}
		},
		OK:      service.Spec{Image: "sim:ok"},
		Fails:   service.Spec{Image: "sim:fail"},
		Pending: service.Spec{Image: "sim:never-ready"},
		Pass:    func() { c.pass(50 * time.Millisecond) },
	})
}

// bench is one gateway, and the one service that it has.
type bench struct {
	*simulated.Gateway
	clock *clock
	req   providers.ApplyRequest
}

func setup(image string) *bench {
	c := newClock()
	return &bench{
		Gateway: &simulated.Gateway{Now: c.Now, Observed: time.Second, Ready: time.Second, Route: time.Second},
		clock:   c,
		req: providers.ApplyRequest{
			Request:    providers.Request{Namespace: "default", Name: "web", UID: "life", Hash: "h", Fence: 1},
			Generation: 1, Spec: service.Spec{Image: image},
		},
	}
}

func (b *bench) apply(t *testing.T) {
	t.Helper()
	_, err := b.Apply(t.Context(), b.req)
	require.NoError(t, err)
}

// situation is what is seen, after the time given.
func (b *bench) situation(t *testing.T, after time.Duration) string {
	t.Helper()
	b.clock.pass(after)
	o, err := b.Observe(t.Context(), providers.ObserveRequest{Request: b.req.Request})
	if providers.IsNotFound(err) {
		err = nil
	}
	require.NoError(t, err)
	return providertest.Situation(&o, b.req.Hash)
}

func TestALifeIsDeterministic(t *testing.T) {
	t.Parallel()
	b := setup("sim:ok")
	b.apply(t)
	var way []string
	for range 4 {
		way = append(way, b.situation(t, 0))
		b.clock.pass(time.Second)
	}
	require.Equal(t, []string{providertest.Unseen, providertest.Creating, providertest.Routing, providertest.Ready}, way)
}

func TestImages(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"sim:ok":                    providertest.Ready,
		"sim:slow?ready=1h":         providertest.Creating,
		"sim:never-ready":           providertest.Creating,
		"sim:fail?ready=2s":         providertest.Failed,
		"sim:flap?period=1m":        providertest.Ready,
		"sim:ok?observe=2h&ready=0": providertest.Unseen,
	} {
		b := setup(image)
		b.apply(t)
		require.Equal(t, want, b.situation(t, 30*time.Second), image)
	}
	b := setup("sim:flap?period=10s")
	b.apply(t)
	require.Equal(t, providertest.Ready, b.situation(t, 12*time.Second))
	require.Equal(t, providertest.Unhealthy, b.situation(t, 10*time.Second))
	require.Equal(t, providertest.Ready, b.situation(t, 10*time.Second))
	for _, image := range []string{"ok", "sim:", "sim:nope", "sim:ok?ready=soon", "sim:ok?reddy=1s", "sim:ok?ready=-1s", "sim:ok?%"} {
		b := setup(image)
		_, err := b.Apply(t.Context(), b.req)
		require.True(t, providers.IsInvalid(err), image)
	}
}

func TestFaultsOfTheService(t *testing.T) {
	t.Parallel()
	for kind, want := range map[simulated.Kind][2]string{
		simulated.NeverReady: {providertest.Creating, providertest.Creating},
		simulated.Flapping:   {providertest.Unhealthy, providertest.Ready},
		simulated.Stale:      {providertest.Unseen, providertest.Unseen},
		simulated.Lost:       {providertest.Gone, providertest.Gone},
	} {
		b := setup("sim:ok")
		b.apply(t)
		require.Equal(t, providertest.Ready, b.situation(t, time.Minute))
		b.Script("default.web", simulated.Fault{Kind: kind})
		got := [2]string{b.situation(t, 0), b.situation(t, 0)}
		if kind == simulated.NeverReady { // the revision is healthy, only Ready is not known
			want = [2]string{providertest.Routing, providertest.Routing}
		}
		require.Equal(t, want, got, kind)
		b.Script("default.web")
		if kind != simulated.Lost {
			require.Equal(t, providertest.Ready, b.situation(t, 0), kind)
		}
	}
}

func TestTheAPIIsDownForSomeCalls(t *testing.T) {
	t.Parallel()
	b := setup("sim:ok")
	b.Script("", simulated.Fault{Kind: simulated.Down, Calls: 2, For: 7 * time.Second})
	for range 2 {
		_, err := b.Apply(t.Context(), b.req)
		require.True(t, providers.IsUnavailable(err))
		require.Equal(t, &machines.Failure{
			Code: "unavailable", Message: "the simulated API is down", Retryable: true, RetryAfter: 7 * time.Second,
		}, providers.Failure(err))
	}
	b.apply(t)
}

func TestALostAnswerIsDoneAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup("sim:ok")
	b.Script("default.web", simulated.Fault{Kind: simulated.LostAnswer, Calls: 1})
	_, err := b.Apply(t.Context(), b.req)
	require.True(t, providers.IsUnavailable(err))
	require.Equal(t, providertest.Ready, b.situation(t, time.Minute))
	applied, err := b.Apply(t.Context(), b.req)
	require.NoError(t, err)
	require.Equal(t, int64(1), applied.Generation)
}

func TestCallsThatHangOrAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup("sim:ok")
		b.Script("default.web", simulated.Fault{Kind: simulated.Hang, Calls: 1}, simulated.Fault{Kind: simulated.Slow, For: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := b.Apply(ctx, b.req)
		require.Equal(t, providers.Timeout, providers.CodeOf(err))
		require.Equal(t, time.Hour, time.Since(began))
		began = time.Now()
		b.Script("default.web", simulated.Fault{Kind: simulated.Slow, For: time.Minute})
		b.apply(t)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// A gateway that hangs does not know whether somebody waits; what it does in the end is fenced.
func TestImagesOfGatewaysThatAreNoGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup("sim:ok?answer=1h")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := b.Apply(ctx, b.req)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(began))

		late := make(chan error)
		go func() { _, err := b.Apply(t.Context(), b.req); late <- err }()
		synctest.Wait()
		require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: providers.Request{Namespace: b.req.Namespace, Name: b.req.Name, UID: b.req.UID, Fence: b.req.Fence + 1}}))
		require.Equal(t, providers.Fenced, providers.CodeOf(<-late))

		down := setup("sim:down")
		for range 3 {
			_, err := down.Apply(t.Context(), down.req)
			require.Equal(t, providers.Unavailable, providers.CodeOf(err))
		}
	})
}
