package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// planned is a server with the streams of the plan of things.
func planned(t *testing.T) *streamstest.Env {
	t.Helper()
	return streamstest.Start(t, embedded.Options{Profile: embedded.OS}).Ensure(thingPlan(streams.Names{}))
}

func thingPlan(n streams.Names) streams.Plan {
	return streams.Plan{Names: n, States: []string{"things"}, Views: []string{"thing_steps"}}
}

func configs(t *testing.T, g *streamstest.Env) map[string]jetstream.StreamConfig {
	t.Helper()
	all := map[string]jetstream.StreamConfig{}
	streams := g.JS.ListStreams(g.Ctx)
	for s := range streams.Info() {
		all[s.Config.Name] = s.Config
	}
	require.NoError(t, streams.Err())
	return all
}

func info(t *testing.T, g *streamstest.Env, stream string) *jetstream.StreamInfo {
	t.Helper()
	s, err := g.JS.Stream(g.Ctx, stream)
	require.NoError(t, err)
	return s.CachedInfo()
}
