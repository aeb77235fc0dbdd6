package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// told is a tester that says what was done to it.
type told struct {
	ctx  context.Context
	what string
}

func (t *told) Helper()                   {}
func (t *told) Context() context.Context  { return t.ctx }
func (t *told) Fatalf(f string, a ...any) { t.what = "failed: " + fmt.Sprintf(f, a...) }
func (t *told) Skipf(f string, a ...any)  { t.what = "skipped: " + fmt.Sprintf(f, a...) }

// A machine that tests for others has Postgres; one's own may not.
func TestSuiteWithoutPostgres(t *testing.T) {
	s := &Suite{err: ErrNoPostgres}
	s.once.Do(func() {})
	for ci, want := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		got := &told{ctx: t.Context()}
		s.Cluster(got)
		require.Contains(t, got.what, want+": neither PATH")
		require.Contains(t, got.what, "make postgres")
	}
}

type code int

func (c code) Run() int { return int(c) }

func TestSuiteStopsItsCluster(t *testing.T) {
	t.Parallel()
	s := &Suite{}
	dsn := s.Database(t)
	require.Equal(t, "10", ask(t, dsn, "show max_prepared_transactions"))
	pid := s.cluster.PID()
	require.Equal(t, 3, s.Around(code(3)).Run())
	require.False(t, alive(pid))
	require.NoDirExists(t, s.dir)
}
