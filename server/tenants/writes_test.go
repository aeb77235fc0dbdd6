package tenants_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
)

// writing has the tenant, and another one, write to the shared database until it ends, which returns what was acknowledged of the tenant. The fence refuses the rest of its writes, and none of the other one's.
func (m *mortal) writing() (ends func() []string) {
	m.T.Helper()
	ctx, stop := context.WithCancel(m.T.Context())
	var all sync.WaitGroup
	var keys, others []string
	var failed error
	conn := databasetest.Open(m.T, m.source)
	all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
			key := fmt.Sprint("w", n)
			const write = `insert into public.settings values ($1, $2, 'x')`
			if _, failed = conn.Exec(context.WithoutCancel(ctx), write, "other", key); failed != nil {
				return
			}
			others = append(others, key)
			_, err := conn.Exec(context.WithoutCancel(ctx), write, m.tenant, key)
			if err == nil {
				keys = append(keys, key)
			} else if state := pg.State(err); state != pg.ReadOnly && state != pg.Serialization {
				failed = err
				return
			}
		}
	})
	m.T.Cleanup(func() { stop(); all.Wait() })
	return func() []string {
		stop()
		all.Wait()
		require.NoError(m.T, failed)
		m.others = others
		return keys
	}
}

// unharmed requires that the shared database has what it had, and what was written since.
func (m *mortal) unharmed(written ...string) {
	m.T.Helper()
	now := databasetest.Everything(m.T, m.source)
	since := map[string][]string{}
	now["settings"] = slices.DeleteFunc(now["settings"], func(row string) bool {
		var r struct {
			Key    string
			Tenant string `json:"enterprise_id"`
		}
		require.NoError(m.T, json.Unmarshal([]byte(row), &r))
		if strings.HasPrefix(r.Key, "w") {
			since[r.Tenant] = append(since[r.Tenant], r.Key)
			return true
		}
		return false
	})
	require.Equal(m.T, m.before, now)
	require.ElementsMatch(m.T, written, since[m.tenant], "what was acknowledged")
	require.ElementsMatch(m.T, m.others, since["other"], "what was acknowledged of the other tenant")
}

// write writes as the tenant does in the shared database, and changes nothing.
func (m *mortal) write() error {
	_, err := databasetest.Open(m.T, m.source).Exec(m.T.Context(), `update public.settings set value = value where enterprise_id = $1`, pgx.QueryExecModeSimpleProtocol, m.tenant)
	return err
}
