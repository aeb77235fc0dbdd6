package console

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files are what is embedded, by name.
func Files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(web, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web, name)
		all[name] = string(text)
		return err
	}))
	return all
}
