package outbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tables of another version are refused, with what to do; what the document says removes them.
func TestTablesOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	s := open(t, dsn)
	require.NoError(t, s.CheckSchema(t.Context()))

	run(t, conn, `update outbox_settings set version = version + 1`)
	for _, err := range []error{Init(t.Context(), dsn, "", Settings{}), s.CheckSchema(t.Context())} {
		require.ErrorIs(t, err, ErrSchema)
		require.ErrorContains(t, err, "use a newer one")
	}
	run(t, conn, `alter table outbox_settings drop column version`)
	for _, err := range []error{Init(t.Context(), dsn, "", Settings{}), s.CheckSchema(t.Context())} {
		require.ErrorIs(t, err, ErrSchema)
		require.ErrorContains(t, err, "make it again with instar outbox init")
	}
	require.Zero(t, one[int](t, conn, `select count(*)::int from information_schema.columns where table_name = 'outbox_settings' and column_name = 'version'`), "nothing was changed")

	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "outbox.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "set search_path = public;")
	require.True(t, found)
	statement, _, found := strings.Cut(after, "```")
	require.True(t, found)
	run(t, conn, strings.TrimPrefix(statement, " -- or the schema of the outbox"))
	require.ErrorIs(t, s.CheckSchema(t.Context()), errNone)
	require.NoError(t, Init(t.Context(), dsn, "", Settings{}))
	run(t, conn, `select outbox_append('order', '1', 'order.paid', '{}')`)
}

// Who migrates with a tool of their own gets the same, and settings by Init all the same.
func TestTablesThatAnotherToolMade(t *testing.T) {
	t.Parallel()
	dsn := pg.Database(t)
	conn := dial(t, dsn)
	names, err := fs.Glob(Migrations(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(Migrations(), name)
		require.NoError(t, err)
		run(t, conn, string(text))
	}
	require.ErrorContains(t, Init(t.Context(), dsn, "", Settings{Mode: "wal"}), "neither log nor claim", "an older program's settings")
	require.NoError(t, Init(t.Context(), dsn, "", Settings{Mode: Claim}))
	run(t, conn, `select outbox_append('order', '1', 'order.paid', '{}')`)
	require.Equal(t, 1, one[int](t, conn, `select count(*)::int from outbox_event`))
}

// An id that is appended again, by an application that tries again, is refused where there is a table that knows it.
func TestAnIDIsAppendedOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Log, Claim} {
		_, conn := setup(t, mode)
		const again = `select outbox_append('order', '1', 'order.paid', '{}', event_id => '0190a0a0-0000-7000-8000-000000000000')`
		run(t, conn, again)
		_, err := conn.Exec(t.Context(), again)
		require.ErrorContains(t, err, "duplicate key", mode)
	}
}
