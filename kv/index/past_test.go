package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A bucket with more ended keys than are remembered holds nothing that it cannot read.
func TestForgottenKeysAreNotUnread(t *testing.T) {
	t.Parallel()
	table := newTable()
	table.mark("a")
	require.Zero(t, table.unread(1))
	require.Equal(t, 2, table.unread(3))
	table.past = make(map[uint64]struct{}, maxPast)
	for i := range uint64(maxPast) {
		table.past[i] = struct{}{}
	}
	require.Zero(t, table.unread(maxPast+5))
	require.True(t, table.left("any"), "no key is called new")
}
