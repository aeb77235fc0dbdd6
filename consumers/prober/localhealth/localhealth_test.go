package localhealth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimers(t *testing.T) {
	t.Parallel()
	h := Timers{Every: 100 * time.Millisecond}
	now := time.Hour
	h.Start(now)
	tick := func(after time.Duration, stood bool, score int) {
		t.Helper()
		now += after
		_, stillstand := h.Tick(now)
		require.Equal(t, stood, stillstand)
		require.Equal(t, score, h.Score)
	}
	tick(100*time.Millisecond, false, 0)
	tick(350*time.Millisecond, false, 0)
	tick(351*time.Millisecond, false, 1)
	require.False(t, h.Overdue(now+350*time.Millisecond))
	require.True(t, h.Overdue(now+351*time.Millisecond))
	tick(1100*time.Millisecond, false, 2)
	tick(1101*time.Millisecond, true, 5)
	tick(time.Minute, true, Max)
	for range 10 {
		tick(100*time.Millisecond, false, Max)
	}
	tick(100*time.Millisecond, false, Max-1)
}

func TestScopes(t *testing.T) {
	t.Parallel()
	s := Scopes{Count: 5}
	dark, lit := &Votes{Failed: 5, Answered: 1, Instances: 5}, &Votes{Failed: 1, Answered: 9, Instances: 1}
	require.Equal(t, []string{"a.x.one"}, s.Weigh(map[string]*Votes{"a.x.one": dark, "a.y.one": lit, "b.x.one": lit}, 1))
	require.EqualValues(t, 1, s.Since("a.x.one"))
	require.Zero(t, s.Since("a.y.one"))
	require.Empty(t, s.Weigh(map[string]*Votes{"a.x.one": {Failed: 2, Answered: 1, Instances: 2}}, 2), "it stays dark, however few they are")
	require.EqualValues(t, 1, s.Since("a.x.one"))
	require.ElementsMatch(t, []string{"a", "a.y.one"}, s.Weigh(map[string]*Votes{"a.x.one": dark, "a.y.one": dark, "b.x.one": lit}, 3), "two zones of a namespace")
	require.EqualValues(t, 3, s.Since("a.unknown.one"), "by its namespace")
	require.EqualValues(t, 3, s.Latest())
	require.Zero(t, s.Since("b.x.one"))
	require.Empty(t, s.Weigh(nil, 4))
	require.False(t, s.Any())
}
