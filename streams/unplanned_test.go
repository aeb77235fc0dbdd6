package streams_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// The buckets of machines are told from those of users by what they say of themselves, and those of several installations by their names.
func TestBucketsOfMachines(t *testing.T) {
	t.Parallel()
	for prefix, own := range map[string][]string{"": {"KV_things", "KV_thing_steps"}, "b": {"KV_b_things", "KV_b_thing_steps"}} {
		n := streams.Names{Prefix: prefix}
		g := planned(t)
		_, err := streams.Ensure(g.Ctx, g.JS, thingPlan(streams.Names{Prefix: "b"}))
		require.NoError(t, err)
		_, err = g.JS.CreateKeyValue(g.Ctx, jetstream.KeyValueConfig{Bucket: "prices", Description: "Entities, by key"})
		require.NoError(t, err)
		_, err = g.JS.CreateStream(g.Ctx, jetstream.StreamConfig{Name: "KV_copied", Description: configs(t, g)["KV_things"].Description, Mirror: &jetstream.StreamSource{Name: "KV_things"}})
		require.NoError(t, err)
		all := configs(t, g)
		var names, found []string
		for name := range all {
			names = append(names, name)
		}
		for name, c := range all {
			if n.OwnBucket(name, names) && streams.IsMachines(c) {
				found = append(found, name)
			}
		}
		require.ElementsMatch(t, own, found)
	}
	require.True(t, streams.Names{}.OwnBucket("KV_b_things", []string{"COMMANDS"}), "there is no installation of this prefix")
	require.False(t, streams.Names{}.OwnBucket("EVENTS", nil))
}
