package streams

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Every value of a live bucket is told with its revision, however it was written.
func TestLiveBucketsTellTheirValues(t *testing.T) {
	t.Parallel()
	g := bare(t, ServerOptions{Profile: OS})
	plan := Plan{Names: g.names, States: []string{"quiet", "things"}, Live: []string{"things"}}
	_, err := Ensure(g.ctx, g.js, plan)
	require.NoError(t, err)
	sub, err := g.nc.SubscribeSync(g.names.Live("things", ">"))
	require.NoError(t, err)
	require.NoError(t, g.nc.Flush())
	next := func() string {
		m, err := sub.NextMsg(5 * time.Second)
		require.NoError(t, err)
		return fmt.Sprintf("%s %s %s", m.Subject, m.Header.Get("Nats-Sequence"), m.Data)
	}
	_, err = g.js.Publish(g.ctx, "$KV.quiet.default.a", []byte("x"))
	require.NoError(t, err)
	m := &nats.Msg{Subject: "$KV.things.default.a", Data: []byte("1"), Header: nats.Header{}}
	Expect(m, 0)
	_, err = g.js.PublishMsg(g.ctx, m)
	require.NoError(t, err)
	require.Equal(t, "instar.live.things.default.a 1 1", next())
	for n := 1; n <= 3; n++ {
		m := &nats.Msg{Subject: fmt.Sprintf("$KV.things.default.b%d", n), Data: []byte{byte('0' + n)}, Header: nats.Header{headerBatchID: {"x"}, headerBatchSeq: {utoa(uint64(n))}}}
		if n == 3 {
			m.Header[headerBatchCommit] = []string{"1"}
			_, err = g.nc.RequestMsg(m, 5*time.Second)
		} else {
			err = g.nc.PublishMsg(m)
		}
		require.NoError(t, err)
	}
	for n := 1; n <= 3; n++ {
		require.Equal(t, fmt.Sprintf("instar.live.things.default.b%d %d %d", n, n+1, n), next())
	}
	_, err = sub.NextMsg(20 * time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout, "the other bucket is not live")

	plan.Live = []string{"quiet"}
	diffs, err := Ensure(g.ctx, g.js, plan)
	require.NoError(t, err)
	require.Equal(t, []Difference{
		{Stream: "KV_quiet", Setting: "republishing", Want: "$KV.quiet.> to instar.live.quiet.>", Have: "none"},
		{Stream: "KV_things", Setting: "republishing", Want: "none", Have: "$KV.things.> to instar.live.things.>"},
	}, diffs)
}
