package streams

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A store that is found may be found larger while the server runs. One that is set is followed in both directions, and what that takes away is told.
func TestSharesFollowTheStore(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	g := setup(t, OS)
	require.NoError(t, g.js.DeleteStream(g.ctx, g.names.Stream(ProbeStream))) // others are left alone
	var said bytes.Buffer
	p := testPlan(g.names)
	p.Log = slog.New(slog.NewTextHandler(&said, nil))
	follow := func(set bool, store, events, dead int64) {
		t.Helper()
		p.Store, p.StoreSet = store, set
		diffs, err := Rebound(g.ctx, g.js, p)
		require.NoError(t, err)
		require.Empty(t, diffs)
		require.Equal(t, []int64{events, dead}, []int64{g.info(EventStream).Config.MaxBytes, g.info(DeadStream).Config.MaxBytes})
	}
	for range 12 {
		_, err := g.js.Publish(g.ctx, g.names.Event("thing", "default.a", "made"), make([]byte, mib/2))
		require.NoError(t, err)
	}
	follow(false, 18*mib, 9*mib, 2*mib)
	follow(false, 400*mib, 200*mib, 20*mib)
	follow(false, 18*mib, 200*mib, 20*mib)
	require.Empty(t, said.String())
	follow(true, 8*mib, 4*mib, 2*mib)
	require.Less(t, g.info(EventStream).State.Bytes, uint64(4*mib))
	require.Contains(t, said.String(), "the oldest messages of a stream go")
	follow(true, 9*mib, 9*mib/2, 2*mib)
	by := g.info(EventStream).Config
	by.MaxBytes = 3 * mib
	_, err := g.js.UpdateStream(g.ctx, by)
	require.NoError(t, err)
	follow(true, 40*mib, 3*mib, 2*mib) // it was changed by hand
	by.MaxBytes = -1
	_, err = g.js.UpdateStream(g.ctx, by)
	require.NoError(t, err)
	follow(true, 4*mib, 2*mib, 2*mib)
	follow(false, 400*mib, 200*mib, 20*mib)
}

// stuck is a JetStream whose streams have no leader that takes a change.
type stuck struct{ jetstream.JetStream }

func (stuck) UpdateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return nil, &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}
}

// A bound that could not be changed is none that was: it is an error while the server runs, and a difference with its reason at a start.
func TestABoundThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	p := testPlan(g.names)
	p.Store, p.StoreSet = 40<<20, true
	_, err := Rebound(g.ctx, stuck{g.js}, p)
	require.ErrorContains(t, err, "insufficient resources")
	diffs, err := Ensure(g.ctx, stuck{g.js}, p)
	require.NoError(t, err)
	require.Len(t, diffs, 2)
	require.Contains(t, diffs[0].String(), "bytes is -1, should be 20971520, and cannot be changed: nats: API error")
	diffs, err = Rebound(g.ctx, g.js, p)
	require.NoError(t, err)
	require.Empty(t, diffs)
	require.EqualValues(t, 20<<20, g.info(EventStream).Config.MaxBytes)
}

// Members that have set different stores do not change a bound to and fro: the smallest counts, and only whose it is lets it grow.
func TestMembersAgreeOnABound(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	cluster := &jetstream.ClusterInfo{Name: "c", Leader: "b", Replicas: []*jetstream.PeerInfo{{Name: "a"}, {Name: "c"}}}
	for name, c := range map[string]struct {
		mark   string // of a bound of 10 MiB
		member string
		set    bool
		share  int64 // of the member, in MiB
		want   int64
	}{
		"ASmallerOneIsTaken":             {"share:10485760:a", "b", true, 8, 8},
		"ALargerOneIsNot":                {"share:10485760:a", "b", true, 20, 10},
		"ItsOwnGrows":                    {"share:10485760:a", "a", true, 20, 20},
		"OfOneThatHasGone":               {"share:10485760:gone", "b", true, 20, 20},
		"OfOneThatSetsNoneAnyMore":       {"share:10485760:a", "a", false, 20, 20},
		"WhatIsFoundDoesNotOutgrowIt":    {"share:10485760:a", "b", false, 2000, 10},
		"WhatWasFoundIsNobodys":          {"share:10485760", "b", true, 20, 20},
		"WhatWasFoundIsTooMuch":          {"share:10485760", "b", true, 8, 8},
		"WhoHasNoReplicaHasNoSay":        {"share:10485760:a", "d", true, 8, 10},
		"ByHand":                         {"share:7:a", "a", true, 8, 10},
		"ASingleServerOnDataOfAMember":   {"share:10485760:gone", "", true, 20, 20},
		"ASingleServersIsAnybodys":       {"share:10485760", "c", false, 20, 20},
		"WhatIsFoundDoesNotMakeItLess":   {"share:10485760", "c", false, 5, 10},
		"WhatIsFoundMakesNoSmallChanges": {"share:10485760", "c", false, 11, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testPlan(Names{})
			p.Store, p.StoreSet, p.Node = 2*c.share*mib, c.set, c.member
			want := p.Configs()[1]
			info := &jetstream.StreamInfo{Cluster: cluster}
			info.Config.MaxBytes, info.Config.Metadata = 10*mib, map[string]string{boundIs: c.mark}
			got := info.Config.MaxBytes
			if p.rebound(&want, info) {
				got = want.MaxBytes
			}
			require.Equal(t, c.want*mib, got)
			mark := fmt.Sprint("share:", c.share*mib)
			if c.set && c.member != "" {
				mark += ":" + c.member
			}
			require.Equal(t, mark, p.Configs()[1].Metadata[boundIs])
		})
	}
}
