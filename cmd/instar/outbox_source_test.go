package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/outbox"
)

// What a source leaves open its database says; what it says otherwise is refused; what the database keeps is written there.
func TestASourceAndItsDatabaseAgree(t *testing.T) {
	cluster, err := postgres.Start(t.Context(), postgres.Options{Dir: passable(t), Config: map[string]string{"fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	dsn := cluster.DSN("postgres")
	require.NoError(t, initOutbox(t.Context(), dsn, "", "log"))
	read := func(s OutboxSource) (outbox.Mode, error) {
		s.Name, s.DSN = "orders", dsn
		c, err := s.config()
		require.NoError(t, err)
		err = settingsOf(t.Context(), &c, s)
		return c.Mode, err
	}
	mode, err := read(OutboxSource{})
	require.NoError(t, err)
	require.Equal(t, outbox.Log, mode)
	_, err = read(OutboxSource{Retention: 36 * time.Hour, MaxLag: 500})
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	var kept string
	require.NoError(t, conn.QueryRow(t.Context(), `select retention || ' ' || max_lag from outbox_settings`).Scan(&kept))
	require.Equal(t, "36:00:00 500", kept)
	_, err = read(OutboxSource{Mode: "wal"})
	require.ErrorContains(t, err, "database has mode log")
}
