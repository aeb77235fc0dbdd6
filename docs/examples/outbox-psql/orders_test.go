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

func client(t *testing.T) string {
	t.Helper()
	psql := filepath.Join(pg.Cluster(t).Bin(), "psql")
	if _, err := exec.LookPath(psql); err != nil {
		psql, err = exec.LookPath("psql")
		require.NoError(t, err, "install the package postgresql-client")
	}
	return psql
}

// Rows as Debezium's router takes them arrive as they are, whatever their ids are.
func TestDebezium(t *testing.T) {
	t.Parallel()
	psql := client(t)
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		dsn := pg.Database(t)
		require.NoError(t, outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: mode}))
		out, err := exec.CommandContext(t.Context(), psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", dsn, "-f", "debezium.sql", "-c", `
			insert into debezium_outbox values
				('018f0000-0000-7000-8000-000000000001', 'order', 'urn:order:42', 'OrderPlaced', '{"b":1,"a":2.0,"b":3}'),
				('018f0000-0000-7000-8000-000000000002', 'order', null, 'OrderPlaced', '{}'),
				('018f0000-0000-7000-8000-000000000003', 'order', '42', 'OrderPlaced', null)`, "-c",
			`select event_id, aggregate_type, aggregate_id, event_type, convert_from(payload, 'UTF8'), headers from outbox_event_status order by event_id`).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, `018f0000-0000-7000-8000-000000000001|order|urn_order_42|OrderPlaced|{"b":1,"a":2.0,"b":3}|{"aggregateid": "urn:order:42"}`+"\n", string(out))
		out, err = exec.CommandContext(t.Context(), psql, "-X", "-q", "-A", "-t", dsn, "-c", `select outbox_append('order', null, 'placed', '{}')`).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), `null value in column "aggregate_id"`)
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	psql := client(t)
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
