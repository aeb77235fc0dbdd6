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
	require.Equal(t, `refused, and no event of it: order free costs nothing
payment was new: true
payment was new: false
NEW order.placed
NEW order.released
`, out.String())
}
