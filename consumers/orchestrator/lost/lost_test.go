package lost_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/orchestrator/lost"
)

func TestRepositoriesTakeTurns(t *testing.T) {
	t.Parallel()
	l, now := lost.New(), time.Now()
	next := func() (string, []string) {
		r := l.Next()
		return r.Name, slices.Sorted(r.Due(now, time.Minute))
	}
	is := func(name string, due ...string) {
		t.Helper()
		got, tasks := next()
		require.Equal(t, name, got)
		require.Equal(t, due, tasks)
	}
	l.Note("a", "a.1", false, now)
	l.Note("b", "b.1", true, now)
	l.Note("a", "a.2", false, now.Add(time.Second))
	is("a")
	is("b")
	now = now.Add(time.Minute)
	l.Note("a", "a.1", true, now)
	require.Equal(t, 2, l.Len())
	is("a", "a.1")
	is("b", "b.1")
	now = now.Add(time.Second)
	is("a", "a.1", "a.2")

	b := l.Next()
	b.Is(true, now)
	l.Note("b", "b.2", false, now.Add(-time.Hour))
	is("a", "a.1", "a.2")
	is("b", "b.1")
	l.Note("b", "b.1", false, now)
	is("a", "a.1", "a.2")
	is("b")
	l.Changed("b")
	b.Is(true, now.Add(-lost.For))
	b.Is(false, now)
	is("a", "a.1", "a.2")
	is("b", "b.1", "b.2")

	l.Drop("a", "a.1")
	l.Drop("a", "a.2")
	l.Drop("c", "c.1")
	is("a")
	require.Equal(t, 1, l.Len())
	l.Note("a", "a.1", false, now.Add(-time.Hour))
	is("b", "b.1", "b.2")
	is("a", "a.1")
}
