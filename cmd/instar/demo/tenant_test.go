package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
)

func TestDemoTenant(t *testing.T) {
	t.Parallel()
	out := &lockedbuffer.Buffer{}
	d := &tenantDemo{out: out, began: time.Now(), orders: 200, pace: 100 * time.Millisecond}
	require.NoError(t, d.run(t.Context()), out)
	for _, line := range []string{
		`its plan: allocating_db, running_migrations, migrating_data, verifying, switching; \d+ rows`,
		`1\. a dry run of a move of tenant-3, which makes nothing, in mode online`,
		`\d+ rows \(\d+ of lines, \d+ of orders\)`,
		`A migration of this demo has a trigger made`,
		`it was taken back, as it was requested so: VERIFICATION_FAILED: 1 tables are not the same: \d+ rows of orders`,
		`database +tenant_tenant_3 \(server own\)`,
		`it is held: VERIFICATION_FAILED`,
		`what has happened in this move`,
		`tenant-3 is in the database own/tenant_tenant_3 at epoch 1`,
		`provisioning\.db\.ready`,
		`it is back in the shared database, with the \d+ orders or so`,
		`the longest wait of tenant-3 was [0-9.ms]+, in act \d`,
		`\d+ orders were acknowledged, and every one is there, once and with its lines`,
	} {
		require.Regexp(t, line, out.String())
	}
	require.NotContains(t, out.String(), "map[")
	require.NotContains(t, out.String(), "0 a second")
	t.Log(out)
}
