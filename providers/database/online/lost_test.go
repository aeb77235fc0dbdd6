package online_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// bounded is a server that keeps little of its log.
var bounded = postgres.Suite{Config: with("max_slot_wal_keep_size", "16MB")}

// A slot that was lost, or has gone, while its session was held, and a subscription that somebody has disabled, bring nothing any more: whoever waits for what was written is told.
func TestNobodyWaitsForASlotThatIsNotThere(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l := link(t, &bounded, "s9")
	source, target := l.Source, l.Target
	for _, do := range []func() error{func() error { return l.Publish(ctx) }, func() error { return l.Slot(ctx) }, func() error { return l.Subscribe(ctx) }, func() error { return l.AwaitCopy(ctx) }, func() error { return l.CatchUp(ctx) }} {
		require.NoError(t, do())
	}
	alter := func(what string) {
		t.Helper()
		databasetest.Exec(t, target, fmt.Sprintf(`alter subscription %s %s`, pg.Ident(l.Name()), what))
	}
	alter("disable")
	require.ErrorContains(t, l.CatchUp(ctx), "was disabled")
	of := func(what string) bool {
		return databasetest.Ask(t, source, fmt.Sprintf(`select coalesce(bool_or(%s), false)::text from pg_replication_slots where slot_name = $1`, what), l.Name()) == "true"
	}
	require.Eventually(t, func() bool { return !of(`active`) }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		databasetest.Exec(t, source, `select pg_logical_emit_message(true, 'much', 'x'), pg_switch_wal()`)
		databasetest.Exec(t, source, `checkpoint`)
		return of(`wal_status = 'lost'`)
	}, time.Minute, 10*time.Millisecond)
	alter("enable")
	refused := func(why string, err error) {
		t.Helper()
		var e *pg.RefusedError
		require.True(t, errors.As(err, &e), "%v", err)
		require.ErrorContains(t, err, why)
	}
	refused("was lost", l.CatchUp(ctx))
	_, err := l.Status(ctx)
	refused("was lost", err)
	refused("was lost", l.Slot(ctx))

	alter("disable")
	require.Eventually(t, func() bool { return !of(`active`) }, time.Minute, 10*time.Millisecond)
	databasetest.Exec(t, source, `select pg_drop_replication_slot($1)`, l.Name())
	alter("enable")
	refused("has gone", l.CatchUp(ctx))
	require.NoError(t, l.Remove(ctx))
}
