package probe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

// A kind of check that is probed has its probe, and nothing else has one.
func TestEveryKindHasItsProbe(t *testing.T) {
	t.Parallel()
	for _, kind := range instance.Kinds {
		require.Equal(t, instance.SourceOf(kind) == instance.Probes, probes[kind] != nil, kind)
	}
	require.Equal(t, instance.Registration, instance.SourceOf("unheard-of"))
	for kind := range probes {
		require.Contains(t, instance.Kinds, kind)
	}
}
