package pg_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/pg"
)

func TestWhichErrorsPass(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{"53100": true, "53300": true, "57P01": true, "08006": true, "40001": true, "55006": true, "28P01": false, "42P01": false, "23505": false, "25006": false} {
		again, _ := pg.Transient(fmt.Errorf("x: %w", &pgconn.PgError{Code: state}))
		require.Equal(t, want, again, state)
	}
	for _, err := range []error{context.DeadlineExceeded, io.ErrUnexpectedEOF, driver.ErrBadConn, sql.ErrConnDone, pg.Later(time.Second, "x"), &pg.ObsoleteError{}} {
		again, _ := pg.Transient(fmt.Errorf("x: %w", err))
		require.True(t, again, "%v", err)
	}
	again, _ := pg.Transient(pg.Refuse("no"))
	require.False(t, again)
	_, after := pg.Transient(&pgconn.PgError{Code: pg.DiskFull})
	require.Equal(t, 30*time.Second, after)
	_, err := pg.Connect(t.Context(), pg.Address{DSN: "postgres://u:canary@127.0.0.1:1/d"})
	again, _ = pg.Transient(err)
	require.True(t, again, "nobody listens there now")
	require.NotContains(t, pg.Discreet(err.Error()), "canary")
}

func TestNamesOfDatabases(t *testing.T) {
	t.Parallel()
	name, err := pg.DatabaseName("a-b-1")
	require.NoError(t, err)
	require.Equal(t, "tenant_a_b_1", name)
	name, err = pg.DatabaseName(strings.Repeat("x", 56))
	require.NoError(t, err)
	require.Len(t, name, 63)
	for _, bad := range []string{"", strings.Repeat("x", 57), "a_b", `a"; drop`, "ä", "a b"} {
		_, err = pg.DatabaseName(bad)
		require.Error(t, err, bad)
	}
}

func TestNothingSecretIsTold(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"failed to connect to `user=u database=d password=canary`: refused", "dial postgres://u:canary@h/d failed", "alter role x password 'canary'",
		"create subscription s connection 'host=h password=canary' publication p", "password SCRAM-SHA-256$4096:canary$canary:canary",
		"user=u password = canary", `user=u password='it\'s canary'`, "alter role x PASSWORD 'it''s canary'", `alter role x password  E'it\'s canary'`, `alter role x password 'canary`, "PGPASSWORD=canary", `{"password": "canary"}`,
	} {
		require.NotContains(t, pg.Discreet(text), "canary", text)
	}
	for _, text := range []string{ // names of tables and columns, and what Postgres says
		"password authentication failed", "password is required", "password_resets: it has no column enterprise_id", "password: it has no primary key", "settings: its column password_hash is text, and bytea in the shared database",
		"1 rows of user_passwords; keepWrites copies that back", "users: it has no column password (text)", "column password of users, table passwords",
	} {
		require.Equal(t, text, pg.Discreet(text))
	}
}

func TestLiterals(t *testing.T) {
	t.Parallel()
	require.Equal(t, `'it''s'`, pg.Literal("it's"))
	require.Equal(t, ` E'a\\''b'`, pg.Literal(`a\'b`))
}

// Of a session of another namespace nobody learns the name.
func TestHowAnotherSessionIsTold(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]string{
		"default.acme.move": "session default.acme.move has the tenant acme", "instance_provisioning/default.acme.move": "session instance_provisioning/default.acme.move has the tenant acme",
		"other.acme.move": "another session has the tenant acme", "instance_provisioning/other.acme.move": "another session has the tenant acme",
	} {
		require.EqualError(t, &pg.HeldError{Enterprise: "acme", Session: other, Asks: "default.acme.again"}, want)
	}
}
