package streams

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestWhenAReplicaIsBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replica jetstream.PeerInfo
		last    uint64 // that it has itself, of 10,000
		want    string
	}{
		"Current":       {jetstream.PeerInfo{Current: true}, 10000, ""},
		"UnderLoad":     {jetstream.PeerInfo{Lag: 3}, 9997, ""},
		"FarBehind":     {jetstream.PeerInfo{Lag: 8049}, 10000, "8049 writes behind"},
		"NotYetSeen":    {jetstream.PeerInfo{}, 10000, "0 writes behind"},
		"Away":          {jetstream.PeerInfo{Offline: true, Lag: 3}, 10000, "its leader does not hear from it"},
		"FetchesMore":   {jetstream.PeerInfo{Current: true}, 599, "9401 writes behind"},
		"FetchesTheEnd": {jetstream.PeerInfo{Current: true}, 9990, ""},
	} {
		c.replica.Name = "a"
		of := func(leader string) *jetstream.StreamInfo {
			return &jetstream.StreamInfo{
				State:   jetstream.StreamState{LastSeq: 10000},
				Cluster: &jetstream.ClusterInfo{Leader: leader, Replicas: []*jetstream.PeerInfo{{Name: "b", Offline: true}, &c.replica}},
			}
		}
		require.Equal(t, c.want, replicaBehind(of("c"), "a", c.last), name)
		require.Empty(t, replicaBehind(of("a"), "a", 0))
		require.Empty(t, replicaBehind(of("c"), "elsewhere", 0))
	}
	require.Empty(t, replicaBehind(&jetstream.StreamInfo{}, "a", 0), "a single server")
}

// Without a leader any member answers, and does not know what it lacks.
func TestNobodyIsCurrentWithoutALeader(t *testing.T) {
	t.Parallel()
	g := bare(t, ServerOptions{Profile: OS})
	sub, err := g.nc.Subscribe("ALONE.>", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"config":{"name":"any"},"state":{},"cluster":{"name":"c","replicas":[{"name":"b"}]}}`))
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	js, err := jetstream.NewWithAPIPrefix(g.nc, "ALONE")
	require.NoError(t, err)
	plan := testPlan(g.names)
	behind := plan.Behind(g.ctx, js, "node-2", g.server.Held)
	require.Len(t, behind, len(plan.Configs()))
	require.Contains(t, behind, "COMMANDS: no leader answers")
}

// A member that was away is behind until it has what was written meanwhile.
func TestAMemberIsBehindUntilItHasCaughtUp(t *testing.T) {
	t.Parallel()
	members := threeMembers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	plan := Plan{Replicas: 3, States: []string{"things"}}
	nc, err := Connect(ConnectOptions{Server: members[0], Name: "test"})
	require.NoError(t, err)
	defer nc.Close()
	js, err := JetStream(nc)
	require.NoError(t, err)
	_, err = AwaitCluster(ctx, nc, js, plan, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	held := members[2].Held
	behind := func() []string {
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return plan.Behind(ask, js, "node-2", held)
	}
	require.Eventually(t, func() bool { return len(behind()) == 0 }, 30*time.Second, 100*time.Millisecond)

	away := members[2]
	held = func() (map[string]uint64, error) { return nil, nil }
	require.NoError(t, away.Shutdown(ctx))
	require.Eventually(t, func() bool { return len(behind()) == len(plan.Configs()) }, 40*time.Second, 100*time.Millisecond)
	body := []byte(strings.Repeat("x", 1024))
	for i := range 1000 {
		require.Eventually(t, func() bool {
			_, err := js.Publish(ctx, fmt.Sprintf("$KV.things.default.k%d", i), body)
			return err == nil
		}, 20*time.Second, 50*time.Millisecond)
	}
	back, err := StartServer(away.o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = back.Shutdown(context.Background()) })
	held = back.Held
	require.Eventually(t, func() bool { return len(behind()) == 0 }, 60*time.Second, 20*time.Millisecond)
	l, err := provenStores()
	require.NoError(t, err)
	for _, s := range l.of(back.running()) {
		if s.name == "KV_things" {
			require.GreaterOrEqual(t, s.State().Msgs, uint64(1000-fewBehind), "what it holds itself")
			return
		}
	}
	t.Fatal("it holds no replica")
}
