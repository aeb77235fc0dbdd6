package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// A member that was away is behind until it has what was written meanwhile.
func TestAMemberIsBehindUntilItHasCaughtUp(t *testing.T) {
	t.Parallel()
	members := threeMembers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	plan := streams.Plan{Replicas: 3, States: []string{"things"}}
	nc, err := streams.Connect(streams.ConnectOptions{Server: members[0], Name: "test"})
	require.NoError(t, err)
	defer nc.Close()
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	_, err = streams.AwaitCluster(ctx, nc, js, plan, slog.New(slog.DiscardHandler))
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
	back, err := Start(away.o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = back.Shutdown(context.Background()) })
	held = back.Held
	require.Eventually(t, func() bool { return len(behind()) == 0 }, 60*time.Second, 20*time.Millisecond)
	l, err := provenStores()
	require.NoError(t, err)
	for _, s := range l.of(back.running()) {
		if s.name == "KV_things" {
			require.GreaterOrEqual(t, s.State().Msgs, uint64(1000-64), "what it holds itself")
			return
		}
	}
	t.Fatal("it holds no replica")
}
