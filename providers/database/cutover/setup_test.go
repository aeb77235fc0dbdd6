package cutover_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
)

// Applications read where a tenant is before each transaction: whoever reads for long, such as pg_dump, keeps no session from its setup, and the setup keeps no reader waiting.
func TestSettingUpKeepsNoReaderWaiting(t *testing.T) {
	t.Parallel()
	for what, before := range map[string]string{"again": ``, "for the first time, beside a table of the application": `alter table public.tenant_runtime drop column epoch`} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, _ := setup(t)
			databasetest.Exec(t, s.Address, before)
			long, err := databasetest.Open(t, s.Address).Begin(t.Context())
			require.NoError(t, err)
			_, err = long.Exec(t.Context(), `select from public.tenant_runtime where enterprise_id = 'acme'`)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Setup(ctx) }()
			if before == "" {
				require.NoError(t, <-ended)
			} else {
				watcher := databasetest.Open(t, s.Address)
				require.Eventually(t, func() bool {
					var waits bool
					require.NoError(t, watcher.QueryRow(t.Context(), `select exists (select from pg_locks where relation = 'public.tenant_runtime'::regclass and not granted)`).Scan(&waits))
					return waits
				}, 20*time.Second, 2*time.Millisecond)
			}
			_, err = databasetest.Open(t, s.Address).Exec(ctx, `select from public.tenant_runtime where enterprise_id = 'acme'`)
			require.NoError(t, err, "another one reads")
			require.NoError(t, long.Commit(t.Context()))
			if before != "" {
				require.NoError(t, <-ended)
			}
			_, err = s.Read(t.Context())
			require.NoError(t, err)
		})
	}
}
