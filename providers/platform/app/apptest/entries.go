package apptest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Entries are what is below a directory, by patterns as of [filepath.Glob].
func Entries(t *testing.T, dir string, patterns ...string) (all []string) {
	t.Helper()
	for _, p := range patterns {
		list, err := filepath.Glob(filepath.Join(dir, p))
		require.NoError(t, err)
		all = append(all, list...)
	}
	return all
}
