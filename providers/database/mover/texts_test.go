package mover_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// texts has a table with a key of text in both databases, of which the source has rows.
func texts(t *testing.T, rows int, inSource, inTarget string) *world {
	t.Helper()
	w := setup(t, 1)
	for collation, a := range map[string]pg.Address{inSource: w.source, inTarget + " ": w.target} {
		databasetest.Exec(t, a, `create table public.codes (code text `+collation+` primary key, enterprise_id text not null, n int not null)`)
	}
	databasetest.Exec(t, w.source, fmt.Sprintf(`insert into public.codes select case n %% 2 when 0 then md5(n::text) else upper(md5(n::text)) end, 'acme', n from generate_series(1, %d) n`, rows))
	databasetest.Exec(t, w.source, `analyze public.codes`)
	conn, err := pg.Connect(t.Context(), w.source)
	require.NoError(t, err)
	defer pg.Close(conn)
	report, err := catalog.Inspect(t.Context(), conn, databasetest.Catalogue)
	require.NoError(t, err)
	require.Empty(t, report.Refused(false))
	w.tables = report.Tables
	return w
}

// read is how many rows of a table were read in a database, when nobody of the mover is connected any more.
func read(t *testing.T, a pg.Address, table string) (rows int) {
	t.Helper()
	require.Eventually(t, func() bool { // a connection tells its figures before it goes
		return databasetest.Ask(t, a, `select count(*)::text from pg_stat_activity where datname = current_database() and application_name like 'instar %'`) == "0"
	}, time.Minute, 20*time.Millisecond)
	rows, err := strconv.Atoi(databasetest.Ask(t, a, `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::text from pg_stat_user_tables where relname = $1`, table))
	require.NoError(t, err)
	return rows
}

// A range of a key of text is read by the index of the key: not each of fifty reads all rows.
func TestRangesOfTextsAreReadByTheirIndex(t *testing.T) {
	t.Parallel()
	const rows, ranges = 50_000, 50
	w := texts(t, rows, "", "")
	before := read(t, w.source, "codes")
	m := w.attempt(1)
	m.RangeRows, m.Fenced = rows/ranges, true
	require.NoError(t, m.Take(t.Context()))
	require.NoError(t, m.Prepare(t.Context()))
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	v, err := m.Verify(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	require.Equal(t, strconv.Itoa(ranges), databasetest.Ask(t, w.target, `select count(*)::text from instar.range where table_name = 'codes'`))
	n := read(t, w.source, "codes") - before
	require.GreaterOrEqual(t, n, 3*rows, "they are cut, copied and compared")
	require.Less(t, n, 6*rows)
}

// Two databases that order texts in different ways: every row arrives, and a difference is found.
func TestDatabasesThatOrderTextsDifferently(t *testing.T) {
	t.Parallel()
	for name, collations := range map[string][2]string{"source": {`collate "en-US-x-icu"`, `collate "C"`}, "target": {`collate "C"`, `collate "en-US-x-icu"`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := texts(t, 300, collations[0], collations[1])
			m := w.begin(t, 1)
			_, err := m.Copy(t.Context())
			require.NoError(t, err)
			v, err := m.Verify(t.Context(), false)
			require.NoError(t, err)
			require.Empty(t, v.Discrepancies)
			require.Equal(t, databasetest.Ask(t, w.source, sums), databasetest.Ask(t, w.target, sums))
			databasetest.Exec(t, w.target, `update public.codes set n = -1 where n = 77`)
			v, err = m.Verify(t.Context(), true)
			require.NoError(t, err)
			require.Len(t, v.Discrepancies, 1)
			require.Len(t, v.Discrepancies[0].Ranges, 1)
			require.True(t, v.Discrepancies[0].Repaired)
			require.Equal(t, databasetest.Ask(t, w.source, sums), databasetest.Ask(t, w.target, sums))
		})
	}
}

// A version of Postgres that does not say how it orders texts, as those before 15, is taken for one that orders them in another way.
func TestADatabaseThatDoesNotSayHowItOrdersTexts(t *testing.T) {
	t.Parallel()
	w := texts(t, 300, "", "")
	databasetest.Exec(t, w.target, `alter function pg_catalog.pg_database_collation_actual_version(oid) rename to pg_not_known_yet`)
	m := w.begin(t, 1)
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	v, err := m.Verify(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	require.Equal(t, "true", databasetest.Ask(t, w.target, `select by_bytes::text from instar.moved where table_name = 'codes'`))
}

// An index that was built by another version of the order of texts may not find rows: ranges are not read by it, and what was copied by it is compared whole.
func TestAnIndexOfAnOlderOrderOfTextsIsNotTrusted(t *testing.T) {
	t.Parallel()
	w := texts(t, 300, "", "")
	m := w.begin(t, 1)
	_, err := m.Copy(t.Context())
	require.NoError(t, err)
	require.Equal(t, "false", databasetest.Ask(t, w.target, `select by_bytes::text from instar.moved where table_name = 'codes'`))
	databasetest.Exec(t, w.source, `update pg_database set datcollversion = 'older' where datname = current_database()`)
	v, err := m.Verify(t.Context(), true)
	require.NoError(t, err)
	require.Empty(t, v.Discrepancies)
	databasetest.Exec(t, w.target, `update public.codes set n = -1 where n = 77`)
	_, err = m.Verify(t.Context(), true)
	require.ErrorContains(t, err, "REINDEX")
}

const sums = `select count(*) || ' ' || md5(string_agg(code || n, ',' order by code collate "C")) from public.codes`
