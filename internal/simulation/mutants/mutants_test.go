package mutants_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/mutants"
	"github.com/bcc94042/instar/internal/simulation/overlay"
)

// The text that each mutant takes out is there: whoever changes it changes the mutant with it.
func TestTheMutantsApply(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	root, err := overlay.GoRoot()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range mutants.All {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Out, m.Name)
		require.Equal(t, m.Test == "", m.Why == "", m.Name)
		require.Equal(t, m.Test == "", m.By != "", "%s is found by the simulation or by a test", m.Name)
		_, err := overlay.Write(t.TempDir(), module, root, m.Patches...)
		require.NoError(t, err, m.Name)
	}
	require.GreaterOrEqual(t, len(mutants.All), 40)
}
