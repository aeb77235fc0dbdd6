package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A private Postgres that was killed, by the out-of-memory killer for instance, comes back where it was.
func TestAPrivatePostgresComesBack(t *testing.T) {
	dir := passable(t)
	s := newShopfront(t, dir)
	raw, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), s.dsn)
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), `select outbox_append('order', '1', 'order.placed', '{"n": 1}')`)
		return err == nil
	}, 60*time.Second, 50*time.Millisecond)
	s.streamHas(`outbox.order.1.order.placed {"n": 1}`)
}
