package orders

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/outbox"
)

var pg postgres.Suite

func TestMain(m *testing.M) { goleak.VerifyTestMain(pg.Around(m)) }

func TestOrders(t *testing.T) {
	t.Parallel()
	psql := filepath.Join(pg.Cluster(t).Bin(), "psql")
	if _, err := exec.LookPath(psql); err != nil {
		psql, err = exec.LookPath("psql")
		require.NoError(t, err, "install the package postgresql-client")
	}
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		dsn := pg.Database(t)
		require.NoError(t, outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: mode}))
		out, err := exec.CommandContext(t.Context(), psql, "-X", "-q", "-A", "-t", dsn, "-f", "orders.sql").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, `t
t
1
t
order.placed|{"total": 1200}|{"tenant": "acme"}|f|NEW
order.audited|{"total": 1200}|{}|f|NEW
order.reminded|{}|{}|t|NEW
order.repriced|{"to": 1000, "from": 1200}|{}|f|NEW
`, string(out))
	}
}
