package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/simulated"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func setup() (providers.Serving, *simulated.Gateway) {
	now := func() time.Time { return noon }
	g := &simulated.Gateway{Now: now}
	return providers.Serving{Gateway: g, Now: now, ReadyStale: 15 * time.Minute}, g
}

// task is an effect on the one service of these tests.
func task(effect string, body any) machines.Task {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return machines.Task{
		Machine: "service", Namespace: "default", ID: "web", Effect: effect, Attempt: effect + "-1-1", Try: 1, Fence: 1, Data: raw,
	}
}

func applyTask(image string) machines.Task {
	return task("apply", service.ApplyTask{UID: "life", Generation: 1, Hash: "h", Spec: &service.Spec{Image: image}})
}

func TestEffectsArePerformed(t *testing.T) {
	t.Parallel()
	s, _ := setup()
	require.Equal(t, machines.Result{Data: service.Applied{UID: "sim-1", Generation: 1, ResourceVersion: "1", Hash: "h"}},
		s.Perform(t.Context(), applyTask("sim:ok")))
	r := s.Perform(t.Context(), task("observe", service.ObserveTask{UID: "life", Hash: "h"}))
	require.Nil(t, r.Failure)
	require.Equal(t, machines.True, r.Data.(service.Observation).Ready)
	for range 2 {
		r = s.Perform(t.Context(), task("delete", service.DeleteTask{UID: "life"}))
		require.Equal(t, machines.Result{Data: struct{}{}}, r)
	}
	r = s.Perform(t.Context(), task("observe", service.ObserveTask{UID: "life", Hash: "h"}))
	require.Equal(t, machines.Result{Data: service.Observation{At: noon}}, r)
	require.Nil(t, s.Perform(t.Context(), task("purge", service.DeleteTask{UID: "life"})).Failure)
}

func TestFailuresSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	s, g := setup()
	require.Equal(t, "invalid", s.Perform(t.Context(), applyTask("nginx")).Failure.Code)
	require.False(t, s.Perform(t.Context(), applyTask("nginx")).Failure.Retryable)
	require.Equal(t, "invalid", s.Perform(t.Context(), task("explode", nil)).Failure.Code)
	require.Equal(t, "invalid", s.Perform(t.Context(), task("apply", service.ApplyTask{})).Failure.Code)
	require.Equal(t, "invalid", s.Perform(t.Context(), task("apply", "not an object")).Failure.Code)
	g.Script("", simulated.Fault{Kind: simulated.Down, For: time.Second})
	require.Equal(t, &machines.Failure{Code: "unavailable", Message: "the simulated API is down", Retryable: true, RetryAfter: time.Second},
		s.Perform(t.Context(), applyTask("sim:ok")).Failure)
	g.Script("", simulated.Fault{Kind: simulated.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := s.Perform(ctx, applyTask("sim:ok")).Failure
	require.Equal(t, "timeout", f.Code)
	require.True(t, f.Retryable)
}

// broken panics, or fails with what it is given.
type broken struct {
	providers.Gateway
	err error
}

func (b broken) Observe(context.Context, providers.ObserveRequest) (service.Observation, error) {
	if b.err == nil {
		panic("out of luck")
	}
	return service.Observation{}, b.err
}

func (b broken) Delete(context.Context, providers.DeleteRequest) error { return b.err }

func TestPanicsAreFailures(t *testing.T) {
	t.Parallel()
	s := providers.Serving{Gateway: broken{}}
	f := s.Perform(t.Context(), task("observe", service.ObserveTask{})).Failure
	require.Equal(t, &machines.Failure{Code: "panic", Message: "out of luck", Retryable: true}, f)
	_, err := s.Look(t.Context(), entity(service.Creating, nil), true)
	require.ErrorContains(t, err, "out of luck")
}

func TestNothingToDeleteIsSuccess(t *testing.T) {
	t.Parallel()
	s := providers.Serving{Gateway: broken{err: fmt.Errorf("gateway: %w", providers.Errorf(providers.NotFound, "gone"))}}
	require.Nil(t, s.Perform(t.Context(), task("delete", service.DeleteTask{})).Failure)
}

func TestForeignTextIsMadeHarmless(t *testing.T) {
	t.Parallel()
	s := providers.Serving{Gateway: broken{err: errors.New("a\x1b[31m\r\nb\xff" + strings.Repeat("ä", 2000))}}
	f := s.Perform(t.Context(), task("delete", service.DeleteTask{})).Failure
	require.Equal(t, "internal", f.Code)
	require.True(t, f.Retryable)
	require.True(t, strings.HasPrefix(f.Message, "a [31m  b\uFFFDä"), f.Message)
	require.LessOrEqual(t, len(f.Message), 1024+len("…"))
}

func entity(state string, applied *service.Applied) *machines.Entity {
	return &machines.Entity{
		Machine: "service", Namespace: "default", ID: "web", State: state, Version: 1, Generation: 1,
		Data: &service.Data{Spec: &service.Spec{Image: "sim:ok"}, SpecHash: "h", UID: "life", Applied: applied},
	}
}

func TestLookReportsWhatIsNews(t *testing.T) {
	t.Parallel()
	s, g := setup()
	applied := s.Perform(t.Context(), applyTask("sim:ok")).Data.(service.Applied)
	found, err := s.Look(t.Context(), entity(service.Creating, &applied), true)
	require.NoError(t, err)
	require.Equal(t, "observed", found.Input)
	o := found.Data.(service.Observation)
	require.Equal(t, machines.True, o.Ready)

	known := entity(service.Ready, &applied)
	known.Data.(*service.Data).Snapshot, known.Data.(*service.Data).ObservedAt = &o.Snapshot, noon
	g.Script("", simulated.Fault{Kind: simulated.Down}) // not even asked
	found, err = s.Look(t.Context(), known, true)
	require.NoError(t, err)
	require.Equal(t, machines.Finding{Until: noon.Add(15 * time.Minute)}, found)

	s.ReadyStale = 0
	_, err = s.Look(t.Context(), known, true)
	require.True(t, providers.IsUnavailable(err))
	g.Script("")
	found, err = s.Look(t.Context(), known, true)
	require.NoError(t, err)
	require.Equal(t, machines.Finding{}, found, "nothing has changed")

	_, err = s.Look(t.Context(), &machines.Entity{State: service.Ready, Data: 1}, true)
	require.True(t, providers.IsInvalid(err))
}

func TestOnlyPollsCountTheSameTrouble(t *testing.T) {
	t.Parallel()
	s, g := setup()
	applied := s.Perform(t.Context(), applyTask("sim:ok")).Data.(service.Applied)
	g.Script("default.web", simulated.Fault{Kind: simulated.NeverReady})
	e := entity(service.Updating, &applied)
	found, err := s.Look(t.Context(), e, false)
	require.NoError(t, err)
	require.Equal(t, "observed", found.Input, "the first sight is news")
	o := found.Data.(service.Observation)
	e.Data.(*service.Data).Snapshot, e.Data.(*service.Data).ObservedAt = &o.Snapshot, noon
	found, err = s.Look(t.Context(), e, false)
	require.NoError(t, err)
	require.Equal(t, machines.Finding{}, found)
}

func TestLookTellsThatADeletedServiceIsGone(t *testing.T) {
	t.Parallel()
	s, _ := setup()
	applied := s.Perform(t.Context(), applyTask("sim:ok")).Data.(service.Applied)
	found, err := s.Look(t.Context(), entity(service.Deleting, &applied), true)
	require.NoError(t, err)
	require.NotEqual(t, "deleted-observed", found.Input)
	other := applied
	other.UID = "sim-0"
	found, err = s.Look(t.Context(), entity(service.Deleting, &other), true)
	require.NoError(t, err)
	require.Equal(t, "deleted-observed", found.Input, "what is there now was made by others")
	require.Nil(t, s.Perform(t.Context(), task("delete", service.DeleteTask{UID: "life"})).Failure)
	found, err = s.Look(t.Context(), entity(service.Deleting, &applied), true)
	require.NoError(t, err)
	require.Equal(t, machines.Finding{Input: "deleted-observed"}, found)
}

func TestWatchPassesOn(t *testing.T) {
	t.Parallel()
	for _, gateway := range []providers.Gateway{broken{}, &simulated.Gateway{}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, providers.Serving{Gateway: gateway}.Watch(ctx, func(string) {}), context.Canceled)
	}
}

func TestErrorsHaveCodes(t *testing.T) {
	t.Parallel()
	for code, err := range map[providers.Code]error{
		"":                    nil,
		providers.NotFound:    fmt.Errorf("x: %w", providers.Errorf(providers.NotFound, "y")),
		providers.Unavailable: providers.Later(time.Second, "y"),
		providers.Timeout:     fmt.Errorf("x: %w", context.DeadlineExceeded),
		providers.Internal:    errors.New("x"),
	} {
		require.Equal(t, code, providers.CodeOf(err))
	}
}
