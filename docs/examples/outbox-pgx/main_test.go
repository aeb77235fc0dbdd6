package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
)

var pg postgres.Suite

func TestMain(m *testing.M) { goleak.VerifyTestMain(pg.Around(m)) }

func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), pg.Database(t), &out))
	require.Equal(t, `NEW order/4711 order.placed {"total":1200} map[schemaVersion:1 tenant:acme]
NEW order/4711 order.paid {"by":"card"} map[schemaVersion:1 tenant:acme]
`, out.String())
}
