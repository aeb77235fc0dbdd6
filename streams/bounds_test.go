package streams

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

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
			p := Plan{}
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
