package kv

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Whoever may publish to the inbox of a watch, and asks for flow control, does not say where the reader writes to.
func TestFlowControlIsAnsweredToTheServerOnly(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	rev := n.put(t, "things", "ns.a", "kept")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, header := range []string{"", "Nats-Consumer-Stalled"} {
		f, err := openFeed(ctx, n.js, "things", "", position{})
		require.NoError(t, err)
		m := &nats.Msg{Subject: f.sub.Subject, Header: nats.Header{"Status": {"100"}}}
		if header == "" {
			m.Reply = "$KV.things.ns.a"
		} else {
			m.Header[header] = []string{"$KV.things.ns.a"}
		}
		require.NoError(t, n.nc.PublishMsg(m))
		for err == nil {
			_, err = f.next(ctx, nil)
		}
		require.ErrorIs(t, err, errGap)
		f.close()
	}
	require.NoError(t, n.nc.Flush())
	s, err := n.js.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	last, err := s.GetLastMsgForSubject(t.Context(), "$KV.things.ns.a")
	require.NoError(t, err)
	require.Equal(t, rev, last.Sequence)
}
