package streams

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Expected{"*": {Any: true}, "0": {Revisions: []uint64{0}}, "7,12": {Revisions: []uint64{7, 12}}} {
		e, ok := ParseExpected(text)
		require.True(t, ok, text)
		require.Equal(t, want, e)
	}
	for _, text := range []string{"", ",", "7,", "-1", "7 ,8", "*,7", "soon"} {
		_, ok := ParseExpected(text)
		require.False(t, ok, text)
	}
	require.True(t, Expected{Any: true}.Holds(7))
	require.False(t, Expected{Any: true}.Holds(0))
	require.True(t, Expected{Revisions: []uint64{7, 12}}.Holds(12))
	require.False(t, Expected{Revisions: []uint64{7, 12}}.Holds(8))
}
