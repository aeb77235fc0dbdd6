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
		`the plan: allocating_db, running_migrations, migrating_data, verifying, switching; \d+ rows`,
		`it was taken back: VERIFICATION_FAILED: 1 tables are not the same: \d+ rows of orders`,
		`it makes: .*{database tenant_tenant_3 server own}`,
		`it was moved again, and is held: VERIFICATION_FAILED`,
		`tenant-3 is in the database own/tenant_tenant_3 at epoch 1`,
		`provisioning\.db\.ready`,
		`it is back in the shared database, with what it has written since`,
		`\d+ orders were acknowledged, and every one is there, once and with its lines`,
	} {
		require.Regexp(t, line, out.String())
	}
	t.Log(out)
}
