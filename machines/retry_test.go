package machines_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

var down = machines.Failure{Code: "unavailable", Message: "connection refused", Retryable: true}

func TestARetryableFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out, err := b.fail("heat", down)
	require.NoError(t, err)
	require.Equal(t, []string{"event effect.retrying", "timer retry-heat"}, names(out))
	require.Nil(t, out.Edge)
	require.Equal(t, "warming", b.e.State)
	require.Equal(t, uint64(2), b.e.Version)
	a := b.e.Effects["heat"]
	require.Equal(t, "heat-1-1", a.ID)
	require.Equal(t, b.e.Timers["retry-heat"].At, *a.NextTry)
	require.Equal(t, "unavailable", a.Error.Code)
	require.Equal(t, start, b.e.LastError.At)
	require.Contains(t, b.e.Timers, "deadline")

	out, err = b.fire("retry-heat")
	require.NoError(t, err)
	require.Equal(t, []string{"event effect.retried", "effect heat"}, names(out))
	require.Equal(t, machines.Attempt{ID: "heat-3-2", Try: 2, Fence: 3, Since: b.now}, b.e.Effects["heat"])
	require.NotContains(t, b.e.Timers, "retry-heat")
}

func TestTheLastTryTakesTheFailureEdge(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	for range 2 {
		_, err := b.fail("heat", down)
		require.NoError(t, err)
		_, err = b.fire("retry-heat")
		require.NoError(t, err)
	}
	out, err := b.fail("heat", down)
	require.NoError(t, err)
	require.Equal(t, "broken", out.To)
	require.Equal(t, "cold", out.Edge.On)
	require.Empty(t, b.e.Timers)
	require.Empty(t, b.e.Effects)
	require.Equal(t, "unavailable", b.e.LastError.Code)
}

func TestAFailureThatIsNotRetryableTakesTheFailureEdgeAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out, err := b.fail("heat", machines.Failure{Code: "invalid", Message: "no such socket"})
	require.NoError(t, err)
	require.Equal(t, "broken", out.To)
}

// A provider that has seen a higher fence knows of a life that the entity does not know of any more: it goes on above it.
func TestTheNextTryComesWithAHigherFence(t *testing.T) {
	t.Parallel()
	for seen, want := range map[uint64]uint64{1: 3, 2: 4, 17: 19, 1<<52 + 1: 3, math.MaxUint64: 3} {
		b := setup(t, "buy")
		_, err := b.fail("heat", machines.Failure{Code: "fenced", Message: "older", Retryable: true, Fence: seen})
		require.NoError(t, err)
		out, err := b.fire("retry-heat")
		require.NoError(t, err)
		var task machines.Task
		require.NoError(t, json.Unmarshal(out.Messages[1].Body, &task))
		require.Equal(t, want, task.Fence)
		require.Equal(t, want, b.e.Version)
	}
}

// So does one whose last try it was: what comes next has tasks, too.
func TestWhatFollowsTheLastTryHasAHigherFence(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out, err := b.fail("heat", machines.Failure{Code: "fenced", Message: "older", Fence: 17})
	require.NoError(t, err)
	require.Equal(t, "broken", out.To)
	require.EqualValues(t, 18, b.e.Version)
}

// Nothing is written that nobody could read.
func TestAVersionEndsBeforeItCannotBeRead(t *testing.T) {
	t.Parallel()
	const last = 1<<53 - 1
	b := setup(t, "buy")
	b.e.Version = last - 1
	_, err := b.fail("heat", down)
	require.NoError(t, err)
	require.EqualValues(t, last, b.e.Version)
	before := b.e
	_, err = b.fire("retry-heat")
	require.Equal(t, machines.CodeEvaluation, refusal(t, err).Code)
	require.Equal(t, before, b.e)

	b = setup(t, "buy", "throw")
	b.e.Generation = last
	before = b.e
	_, err = b.try("buy", `{"watts":60}`)
	require.Equal(t, machines.CodeEvaluation, refusal(t, err).Code)
	require.Equal(t, before, b.e)
}

// A worker elsewhere sends what it likes.
func TestWhatAProviderSaysIsBounded(t *testing.T) {
	t.Parallel()
	for _, retryable := range []bool{true, false} {
		b := setup(t, "buy")
		_, err := b.fail("heat", machines.Failure{Code: strings.Repeat("\x1b[2J", 999), Message: strings.Repeat("é\r\nlevel=ERROR \u009b", 9999), Retryable: retryable, RetryAfter: math.MaxInt64})
		require.NoError(t, err)
		if a, waits := b.e.Effects["heat"]; retryable {
			require.True(t, waits)
			require.WithinDuration(t, b.e.UpdatedAt, *a.NextTry, machines.MaxRetryAfter)
		}
		require.Less(t, len(b.e.LastError.Code), 300)
		require.Less(t, len(b.e.LastError.Message), 1100)
		require.True(t, strings.HasPrefix(b.e.LastError.Message, "é  level=ERROR"))
		require.False(t, strings.ContainsFunc(b.e.LastError.Code+b.e.LastError.Message, unicode.IsControl))
	}
	for details, kept := range map[string]bool{`{"rows":3}`: true, "": false, `"` + strings.Repeat("x", machines.MaxDetails) + `"`: false} {
		b := setup(t, "buy")
		failure := machines.Failure{Code: "c", Message: "m", Details: []byte(details)}
		_, err := b.fail("heat", failure)
		require.NoError(t, err)
		require.Equal(t, kept, b.e.LastError.Details != nil, details)
	}
}

func TestAFailureIsToldOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.fail("heat", down)
	require.NoError(t, err)
	_, err = b.fail("heat", down)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code, "its next try is planned already")
}

func TestAnAnswerWhileTheNextTryIsPlannedEndsTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "blink")
	_, err := b.fail("look", down)
	require.NoError(t, err)
	require.Contains(t, b.e.Timers, "retry-look")
	_, err = b.report("seen", "look", "")
	require.NoError(t, err)
	require.NotContains(t, b.e.Timers, "retry-look", "a timer of nothing")
	require.Contains(t, b.e.Timers, "deadline")
}

func TestAnEffectThatIsStartedAgainForgetsItsPlannedTry(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "blink")
	_, err := b.fail("look", down)
	require.NoError(t, err)
	b.do("blink", "")
	require.NotContains(t, b.e.Timers, "retry-look")
	require.Equal(t, machines.Attempt{ID: "look-4-1", Try: 1, Fence: 4, Since: start}, b.e.Effects["look"])
}

func TestAPlannedTryOfAStateThatWasLeftIsIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.fail("heat", down)
	require.NoError(t, err)
	planned := b.e.Timers["retry-heat"]
	b.do("swap", "")
	body, err := json.Marshal(machines.Elapsed{Timer: "retry-heat", Armed: planned.Armed})
	require.NoError(t, err)
	out, err := b.try(machines.CommandElapsed, string(body))
	require.NoError(t, err)
	require.Equal(t, machines.Ignored, out.Result)
}

func TestAFailedLookLeavesTheReasonOfTheEntity(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.fail("heat", machines.Failure{Code: "cold", Message: "still", Retryable: true})
	require.NoError(t, err)
	b.do("blink", "")
	for range 2 {
		_, err = b.fail("look", down)
		require.NoError(t, err)
		require.Equal(t, "cold", b.e.LastError.Code)
		if _, planned := b.e.Timers["retry-look"]; planned {
			_, err = b.fire("retry-look")
			require.NoError(t, err)
		}
	}
	require.NotContains(t, b.e.Effects, "look", "the last try of the look has failed")
}

// The wait before try n+1 lies between a tenth of the base and min(cap, base*factor^(n-1)), differs between entities,
// and is the same however often the step is made.
func TestWaits(t *testing.T) {
	t.Parallel()
	wait := func(id string, retry machines.Retry, try int, f machines.Failure) time.Duration {
		d := definition()
		d.Effects[0].Retry = retry
		m := machines.Define(d)
		e := m.New("default", "", id)
		e, _, err := m.Step(e, machines.Input{Command: "buy", Time: start})
		require.NoError(t, err)
		a := e.Effects["heat"]
		a.Try = try
		e.Effects = map[string]machines.Attempt{"heat": a}
		body, err := json.Marshal(machines.EffectFailed{Effect: "heat", Attempt: a.ID, Failure: f})
		require.NoError(t, err)
		e, _, err = m.Step(e, machines.Input{Command: machines.CommandFailed, Body: body, Time: start})
		require.NoError(t, err)
		return e.Timers["retry-heat"].At.Sub(start)
	}
	retry := machines.Retry{Attempts: 100, Base: time.Second, Factor: 2, Cap: 30 * time.Second}
	longest := time.Duration(0)
	seen := map[time.Duration]bool{}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for try, ceiling := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 99: 30 * time.Second} {
			w := wait(id, retry, try, down)
			require.GreaterOrEqual(t, w, 100*time.Millisecond)
			require.LessOrEqual(t, w, ceiling)
			require.Equal(t, w, wait(id, retry, try, down))
			longest, seen[w] = max(longest, w), true
		}
	}
	require.Greater(t, longest, 15*time.Second, "jitter over the whole range")
	require.Greater(t, len(seen), 20, "not all at once")

	asked := down
	asked.RetryAfter = 5 * time.Minute
	require.Equal(t, 5*time.Minute, wait("a", retry, 1, asked), "never less than the provider asks for")
}
