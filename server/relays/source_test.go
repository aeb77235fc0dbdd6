package relays

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// What a source leaves open its database says; what it says otherwise is refused; what the database keeps is written there.
func TestASourceAndItsDatabaseAgree(t *testing.T) {
	dir, err := os.MkdirTemp("", "instar-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711)) // the user of Postgres gets through; what is below is closed
	cluster, err := postgres.Start(t.Context(), postgres.Options{Dir: filepath.Join(dir, "data"), Config: map[string]string{"fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	dsn := cluster.DSN("postgres")
	require.NoError(t, outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: outbox.Log}))
	read := func(s config.OutboxSource) (outbox.Mode, error) {
		s.Name, s.DSN = "orders", dsn
		c, err := s.Relayed()
		require.NoError(t, err)
		err = settingsOf(t.Context(), &c, s)
		return c.Mode, err
	}
	mode, err := read(config.OutboxSource{})
	require.NoError(t, err)
	require.Equal(t, outbox.Log, mode)
	_, err = read(config.OutboxSource{Retention: 36 * time.Hour, MaxLag: 500})
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	var kept string
	require.NoError(t, conn.QueryRow(t.Context(), `select retention || ' ' || max_lag from outbox_settings`).Scan(&kept))
	require.Equal(t, "36:00:00 500", kept)
	_, err = read(config.OutboxSource{Mode: "claim"})
	require.ErrorContains(t, err, "database has mode log")

	// Tables of another version are refused for good, whatever the source says, and with what to do.
	_, err = conn.Exec(t.Context(), `update outbox_settings set version = version - 1`)
	require.NoError(t, err)
	for _, s := range []config.OutboxSource{{}, {Mode: "claim"}, {MaxLag: 7}} {
		_, err = read(s)
		require.NoError(t, err, "so that its relay can be deleted; one that runs is refused")
	}
	require.NoError(t, conn.QueryRow(t.Context(), `select retention || ' ' || max_lag from outbox_settings`).Scan(&kept))
	require.Equal(t, "36:00:00 500", kept, "nothing is written there")
	old := relayEngine{r: &relay.Relay{Config: outbox.Config{Name: "orders", DSN: dsn, Mode: outbox.Log}}}
	old.store, err = outbox.Open(t.Context(), dsn, "")
	require.NoError(t, err)
	defer old.Close()
	_, err = old.Status(t.Context())
	fatal := (*relay.PermanentError)(nil)
	require.ErrorAs(t, err, &fatal)
	require.ErrorIs(t, err, outbox.ErrSchema)
	require.ErrorContains(t, err, "let a relay of the program that made it drain it")
	_, err = (&outboxes{sources: map[string]config.OutboxSource{"orders": {Name: "orders", DSN: dsn}}}).Redrive(t.Context(), "orders", admin.OutboxFilter{All: true}, "somebody")
	require.ErrorContains(t, err, "let a relay of the program that made it drain it")
	require.NoError(t, old.Remove(t.Context()))
	_, err = conn.Exec(t.Context(), `update outbox_settings set version = version + 1`)
	require.NoError(t, err)

	// What a relay that is deleted has said of the lag refuses nothing any more.
	e := relayEngine{r: &relay.Relay{Config: outbox.Config{Name: "orders", DSN: dsn, Mode: outbox.Log}}}
	e.store, err = outbox.Open(t.Context(), dsn, "")
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, e.store.Publish(t.Context(), "orders", "a", 501))
	_, err = conn.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.ErrorContains(t, err, "OB001")
	require.NoError(t, e.Remove(t.Context()))
	_, err = conn.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.NoError(t, err)
}
