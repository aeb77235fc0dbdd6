package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Without a leader any member answers, and does not know what it lacks.
func TestNobodyIsCurrentWithoutALeader(t *testing.T) {
	t.Parallel()
	g := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	sub, err := g.NC.Subscribe("ALONE.>", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"config":{"name":"any"},"state":{},"cluster":{"name":"c","replicas":[{"name":"b"}]}}`))
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	js, err := jetstream.NewWithAPIPrefix(g.NC, "ALONE")
	require.NoError(t, err)
	plan := thingPlan(g.Names)
	behind := plan.Behind(g.Ctx, js, "node-2", g.Server.Held)
	require.Len(t, behind, len(plan.Configs()))
	require.Contains(t, behind, "COMMANDS: no leader answers")
}
