package streams

import (
	"testing"

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
