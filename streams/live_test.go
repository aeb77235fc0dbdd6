package streams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Every value of a live bucket is told with its revision, however it was written.
func TestLiveBucketsTellTheirValues(t *testing.T) {
	t.Parallel()
	g := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	plan := streams.Plan{Names: g.Names, States: []string{"quiet", "things"}, Live: []string{"things"}}
	_, err := streams.Ensure(g.Ctx, g.JS, plan)
	require.NoError(t, err)
	sub, err := g.NC.SubscribeSync(g.Names.Live("things", ">"))
	require.NoError(t, err)
	require.NoError(t, g.NC.Flush())
	next := func() string {
		m, err := sub.NextMsg(5 * time.Second)
		require.NoError(t, err)
		return fmt.Sprintf("%s %s %s", m.Subject, m.Header.Get("Nats-Sequence"), m.Data)
	}
	_, err = g.JS.Publish(g.Ctx, "$KV.quiet.default.a", []byte("x"))
	require.NoError(t, err)
	m := &nats.Msg{Subject: "$KV.things.default.a", Data: []byte("1"), Header: nats.Header{}}
	streams.Expect(m, 0)
	_, err = g.JS.PublishMsg(g.Ctx, m)
	require.NoError(t, err)
	require.Equal(t, "instar.live.things.default.a 1 1", next())
	for n := 1; n <= 3; n++ {
		m := &nats.Msg{Subject: fmt.Sprintf("$KV.things.default.b%d", n), Data: []byte{byte('0' + n)}, Header: nats.Header{"Nats-Batch-Id": {"x"}, "Nats-Batch-Sequence": {fmt.Sprint(n)}}}
		if n == 3 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
			_, err = g.NC.RequestMsg(m, 5*time.Second)
		} else {
			err = g.NC.PublishMsg(m)
		}
		require.NoError(t, err)
	}
	for n := 1; n <= 3; n++ {
		require.Equal(t, fmt.Sprintf("instar.live.things.default.b%d %d %d", n, n+1, n), next())
	}
	_, err = sub.NextMsg(20 * time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout, "the other bucket is not live")

	plan.Live = []string{"quiet"}
	diffs, err := streams.Ensure(g.Ctx, g.JS, plan)
	require.NoError(t, err)
	require.Equal(t, []streams.Difference{
		{Stream: "KV_quiet", Setting: "republishing", Want: "$KV.quiet.> to instar.live.quiet.>", Have: "none"},
		{Stream: "KV_things", Setting: "republishing", Want: "none", Have: "$KV.things.> to instar.live.things.>"},
	}, diffs)
}
