package platform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers"
)

func TestSecretsOfARelease(t *testing.T) {
	t.Parallel()
	address := func(enterprise string, _ *database.Allocated) (string, error) { return "postgres://" + enterprise, nil }
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme"), []byte("[default]\naws_access_key_id = k\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), []byte("\n"), 0o600))
	of := secrets(dir, address)
	all, err := of("acme", &database.Allocated{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"DATABASE_URL": "postgres://acme", "AWS_SHARED_CREDENTIALS": "[default]\naws_access_key_id = k\n"}, all)
	for _, enterprise := range []string{"other", "empty", "../acme", ".", "x/../acme"} {
		_, err = of(enterprise, nil)
		require.True(t, providers.IsInvalid(err), "%s: %v", enterprise, err)
	}
	all, err = secrets("", address)("acme", nil)
	require.NoError(t, err)
	require.Empty(t, all)
}
