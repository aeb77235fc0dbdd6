package tenants

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Under an epoch that was told nothing else is told: a source that has failed over gives it out again.
func TestAnEpochLeadsToOneDatabase(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	routes, err := e.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "routes"})
	require.NoError(t, err)
	m := &mirror{routes: routes}
	route := func(epoch int64, name, status string) database.Route {
		return database.Route{Enterprise: "acme", Runtime: cutover.Runtime{DatabaseName: name, Status: status, Epoch: epoch}}
	}
	require.NoError(t, m.put(t.Context(), route(5, "tenant_acme", "active")))
	require.NoError(t, m.put(t.Context(), route(5, "tenant_acme", "active")), "told again")
	for _, r := range []database.Route{route(5, "shared", "active"), route(4, "shared", "active")} {
		var behind *database.BehindError
		require.ErrorAs(t, m.put(t.Context(), r), &behind)
		require.EqualValues(t, 5, behind.Epoch)
	}
	require.NoError(t, m.put(t.Context(), route(6, "shared", "active")))
}
