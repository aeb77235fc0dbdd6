package feed

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"
)

// Whoever may publish to the inbox of a watch, and asks for flow control, does not say where the reader writes to.
func TestFlowControlIsAnsweredToTheServerOnly(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	rev := n.Put(t, "things", "ns.a", "kept")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, header := range []string{"", "Nats-Consumer-Stalled"} {
		f, err := Open(ctx, n.JS, "things", "", Position{})
		require.NoError(t, err)
		m := &nats.Msg{Subject: f.sub.Subject, Header: nats.Header{"Status": {"100"}}}
		if header == "" {
			m.Reply = "$KV.things.ns.a"
		} else {
			m.Header[header] = []string{"$KV.things.ns.a"}
		}
		require.NoError(t, n.NC.PublishMsg(m))
		for err == nil {
			_, err = f.Next(ctx, nil)
		}
		require.ErrorIs(t, err, errGap)
		f.Close()
	}
	require.NoError(t, n.NC.Flush())
	s, err := n.JS.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	last, err := s.GetLastMsgForSubject(t.Context(), "$KV.things.ns.a")
	require.NoError(t, err)
	require.Equal(t, rev, last.Sequence)
}

func TestParseReply(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string][4]uint64{
		"$JS.ACK.KV_b.cons.1.22.33.44.55":             {22, 33, 44, 55},
		"$JS.ACK.hub.acc.KV_b.cons.1.22.33.44.55":     {22, 33, 44, 55},
		"$JS.ACK.hub.acc.KV_b.cons.1.22.33.44.55.rnd": {22, 33, 44, 55},
	} {
		sseq, dseq, at, pending, ok := parseReply(reply)
		require.True(t, ok, reply)
		require.Equal(t, want, [4]uint64{sseq, dseq, uint64(at), pending}, reply)
	}
	for _, reply := range []string{"", "$JS.ACK.KV_b.cons.1.22.33.44", "$JS.ACK.KV_b.cons.1.x.33.44.55"} {
		_, _, _, _, ok := parseReply(reply)
		require.False(t, ok, reply)
	}
}
