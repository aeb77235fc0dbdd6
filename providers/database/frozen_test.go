package database_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// A node that stands still while it removes what a session has left keeps no tenant from being moved for longer than a few seconds.
func TestANodeThatIsFrozenWhileItSweeps(t *testing.T) {
	t.Parallel()
	s := setup(t, "swept")
	again := &cutover.Source{Address: s.p.Source, Enterprise: "begins", Session: "default.begins.db", Attempt: 1}
	require.NoError(t, again.Setup(t.Context()))
	require.NoError(t, s.p.Server.Setup(t.Context()))
	databasetest.Exec(t, s.p.Source, `create publication instar_0123456789abcdef`)
	direct := s.p.Source
	var at <-chan struct{}
	var goesOn func()
	s.p.Source, at, goesOn = databasetest.Freeze(t, direct, "lock table instar.attempt")
	ended := make(chan error, 1)
	go func() {
		_, err := s.p.Sweep(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	<-at
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, again.Take(ctx))
	goesOn()
	require.Error(t, <-ended, "its transaction has ended")
	_, err := s.p.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, "0", databasetest.Ask(t, direct, `select count(*)::text from pg_publication`))
}
