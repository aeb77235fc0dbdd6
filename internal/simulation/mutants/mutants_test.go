package mutants_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/mutants"
	"github.com/bcc94042/instar/internal/simulation/overlay"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/shop"
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
		if pkg, test, ok := strings.Cut(m.Test, " "); ok {
			require.True(t, defined(t, filepath.Join(module, pkg), test), "%s: there is no test %s in %s", m.Name, test, pkg)
		}
		if m.Of == "" {
			require.NoError(t, schedule.Aims(m.Aim), m.Name)
		} else {
			require.NoError(t, shop.Aims(m.Aim), m.Name)
		}
		_, err := overlay.Write(t.TempDir(), module, root, m.Patches...)
		require.NoError(t, err, m.Name)
	}
	require.GreaterOrEqual(t, len(mutants.All), 40)
}

// defined reports whether a test is in one of the files of a directory.
func defined(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	name, _, _ := strings.Cut(test, "/")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if bytes.Contains(text, []byte("\nfunc "+name+"(")) {
			return true
		}
	}
	return false
}
