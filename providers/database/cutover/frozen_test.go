package cutover_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// A node that stands still while it raises or lifts a fence keeps nobody from the table for longer than a few seconds, and the next attempt does not wait for it.
func TestANodeThatIsFrozenWhileItFences(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]string{"raising": "create or replace trigger", "lifting": "drop trigger instar"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, tables := setup(t)
			if what == "lifting" {
				require.NoError(t, s.Fence(t.Context(), tables))
			}
			direct := s.Address
			var at <-chan struct{}
			var goesOn func()
			s.Address, at, goesOn = databasetest.Freeze(t, direct, do)
			ended := make(chan error, 1)
			go func() {
				if what == "raising" {
					ended <- s.Fence(context.WithoutCancel(t.Context()), tables)
				} else {
					ended <- s.Lift(context.WithoutCancel(t.Context()))
				}
			}()
			<-at
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := databasetest.Open(t, direct).Exec(ctx, `
				update public.orders set note = 'x' where enterprise_id = 'other'; update public.names set nick = nick where enterprise_id = 'other'; update public.settings set value = 'x' where enterprise_id = 'other';
				update public.events set body = 'x' where enterprise_id = 'other'; update public.lines set article = 'x' where order_id = (select min(id) from public.orders where enterprise_id = 'other');
				update public.remarks set text = 'x' where order_id = (select min(id) from public.orders where enterprise_id = 'other')`)
			require.NoError(t, err, "another tenant writes")
			goesOn()
			err = <-ended
			if what == "lifting" {
				require.NoError(t, err, "what is left lets everybody through")
				return
			}
			again, _ := pg.Transient(err)
			require.True(t, again, "%v", err)
		})
	}
}

// A node that stands still while it has the row of the tenant, or makes what all tenants need, keeps nobody waiting for longer than a few seconds: neither another run of the same attempt, which ends nothing of it.
func TestANodeThatIsFrozenWithTheTenant(t *testing.T) {
	t.Parallel()
	const row = "from instar.attempt where enterprise_id = $1 for update"
	for what, c := range map[string]struct {
		after string
		do    func(context.Context, *cutover.Source) error
	}{
		"taking":  {row, func(ctx context.Context, s *cutover.Source) error { return s.Take(ctx) }},
		"holding": {"delete from instar.shut", func(ctx context.Context, s *cutover.Source) error { return s.KeepsOut(ctx, true) }},
		"switching": {row, func(ctx context.Context, s *cutover.Source) error {
			_, err := s.Switch(ctx, cutover.Runtime{Status: "active"}, "")
			return err
		}},
		"ending":     {row, func(ctx context.Context, s *cutover.Source) error { return s.End(ctx) }},
		"setting up": {"pg_advisory_xact_lock", func(ctx context.Context, s *cutover.Source) error { return s.Setup(ctx) }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			require.NoError(t, s.Take(t.Context()))
			again := *s
			var at <-chan struct{}
			var goesOn func()
			s.Address, at, goesOn = databasetest.Freeze(t, again.Address, c.after)
			ended := make(chan error, 1)
			go func() { ended <- c.do(context.WithoutCancel(t.Context()), s) }()
			<-at
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			require.NoError(t, again.Setup(ctx))
			require.NoError(t, again.Take(ctx))
			goesOn()
			err := <-ended
			transient, _ := pg.Transient(err)
			require.True(t, transient, "%v", err)
		})
	}
}

// What an earlier attempt holds ends with the next one, and nothing of others does: neither that of another session, whatever they are called, nor a later one.
func TestAnAttemptOvertakesAnEarlierOne(t *testing.T) {
	t.Parallel()
	long := "default." + strings.Repeat("x", 60)
	for name, session := range map[string]string{"short": "default.acme.move", "long": long + ".move"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			s.Session = session
			require.NoError(t, s.Take(t.Context()))
			earlier, err := s.Connect(t.Context())
			require.NoError(t, err)
			defer pg.Close(earlier)
			held, err := earlier.Begin(t.Context())
			require.NoError(t, err)
			_, err = held.Exec(t.Context(), `select from instar.attempt where enterprise_id = 'acme' for update`)
			require.NoError(t, err)
			next := *s
			next.Attempt = 3
			for _, of := range []cutover.Source{{Session: long + ".other", Attempt: 2}, {Session: session + "2", Attempt: 1}, {Session: session, Attempt: 3}, {Session: session, Attempt: 4}} {
				of.Address = s.Address
				conn, err := of.Connect(t.Context())
				require.NoError(t, err)
				defer pg.Close(conn)
				defer func() { require.NoError(t, conn.Ping(t.Context()), of.Session) }()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, next.Take(ctx))
			require.Error(t, earlier.Ping(t.Context()))
		})
	}
}

// A node that is not reached any more loses what it holds within half a minute.
func TestAServerAsksWhetherANodeIsThere(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	conn, err := s.Connect(t.Context())
	require.NoError(t, err)
	defer pg.Close(conn)
	var set string
	require.NoError(t, conn.QueryRow(t.Context(), `select concat_ws(' ', current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout'))`).Scan(&set))
	require.Equal(t, "15 5 3 30000", set)
}
