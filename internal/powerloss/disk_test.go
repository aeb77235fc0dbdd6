package powerloss

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsSyncedIsThere(t *testing.T) {
	t.Parallel()
	d, err := New(t.TempDir(), Ext4, 16<<20)
	if errors.Is(err, ErrCannot) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	for name, sync := range map[string]bool{"synced": true, "not synced": false} {
		f, err := os.Create(filepath.Join(d.Path, name))
		require.NoError(t, err)
		_, err = f.WriteString(name)
		require.NoError(t, err)
		if sync {
			require.NoError(t, f.Sync())
			dir, err := os.Open(d.Path)
			require.NoError(t, err)
			require.NoError(t, errors.Join(dir.Sync(), dir.Close()))
		}
		require.NoError(t, f.Close())
	}
	// The one that is not synced may have been made durable with the other one, but not its content.
	require.NoError(t, d.Cut())
	require.Error(t, os.WriteFile(filepath.Join(d.Path, "later"), []byte("later"), 0o600))
	require.NoError(t, d.Back())
	raw, err := os.ReadFile(filepath.Join(d.Path, "synced"))
	require.NoError(t, err)
	require.Equal(t, "synced", string(raw))
	raw, _ = os.ReadFile(filepath.Join(d.Path, "not synced")) // there or not
	require.Empty(t, raw)
}
