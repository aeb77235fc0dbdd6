package shard

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the nodes have, what they should have is all shards, and differs by one at most; who has its share moves nothing.
func TestShares(t *testing.T) {
	t.Parallel()
	for count := 1; count <= 9; count++ {
		for a := range count + 1 {
			for b := range count + 1 - a {
				for nodes := 1; nodes <= 5; nodes++ {
					have := map[string]int{"a": a}
					for i := 1; i < nodes; i++ {
						have[string(rune('a'+i))] = 0
					}
					if nodes > 1 {
						have["b"] = b
					}
					next := map[string]int{}
					total := 0
					for name := range have {
						next[name] = share(count, have, name)
						total += next[name]
					}
					require.Equal(t, count, total, "%d of %v", count, have)
					all := slices.Sorted(maps.Values(next))
					require.LessOrEqual(t, all[len(all)-1]-all[0], 1, "%d of %v", count, have)
					for name := range next {
						require.Equal(t, next[name], share(count, next, name), "%d of %v moves on", count, next)
					}
				}
			}
		}
	}
	require.Equal(t, 1, share(1, map[string]int{"b": 1, "a": 0}, "b"), "the only shard stays where it is")
}
