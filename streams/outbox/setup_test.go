package outbox

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
)

var pg postgres.Suite

func TestMain(m *testing.M) { goleak.VerifyTestMain(pg.Around(m)) }

// setup is a database with an outbox of that mode, and a connection to it.
func setup(t *testing.T, mode Mode) (dsn string, conn *pgx.Conn) {
	t.Helper()
	dsn = pg.Database(t)
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: mode}))
	return dsn, dial(t, dsn)
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// one is the single value of a query.
func one[T any](t *testing.T, conn *pgx.Conn, query string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), query, args...).Scan(&v), query)
	return v
}

func run(t *testing.T, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), query, args...)
	require.NoError(t, err, query)
}
