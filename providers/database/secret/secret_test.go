package secret_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/secret"
)

func TestSealedForOneTenantAndResource(t *testing.T) {
	t.Parallel()
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	keys, err := secret.Open(set)
	require.NoError(t, err)
	c := secret.New("tenant_acme")
	text, err := keys.Seal(c, "acme", "database")
	require.NoError(t, err)
	require.NotContains(t, text, c.Password)
	got, err := keys.Unseal(text, "acme", "database")
	require.NoError(t, err)
	require.Equal(t, c, got)
	for _, other := range [][2]string{{"other", "database"}, {"acme", "storage"}} {
		_, err = keys.Unseal(text, other[0], other[1])
		require.Error(t, err)
		require.NotContains(t, err.Error(), text)
	}

	rotated, err := secret.Rotate(set)
	require.NoError(t, err)
	newer, err := secret.Open(rotated)
	require.NoError(t, err)
	got, err = newer.Unseal(text, "acme", "database")
	require.NoError(t, err)
	require.Equal(t, c, got)
	again, err := newer.Seal(c, "acme", "database")
	require.NoError(t, err)
	_, err = keys.Unseal(again, "acme", "database")
	require.Error(t, err, "the old keyset does not have the new key")
}

func TestAnyBytesAreSealedForWhatTheyBelongTo(t *testing.T) {
	t.Parallel()
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	keys, err := secret.Open(set)
	require.NoError(t, err)
	sealed, err := keys.Encrypt([]byte("private"), []byte("a.key"))
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "private")
	plain, err := keys.Decrypt(sealed, []byte("a.key"))
	require.NoError(t, err)
	require.Equal(t, "private", string(plain))
	_, err = keys.Decrypt(sealed, []byte("b.key"))
	require.Error(t, err)
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := secret.New("u")
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c), c.Password)
	_, err := json.Marshal(map[string]any{"c": c})
	require.Error(t, err)
	_, err = secret.Open([]byte("{}"))
	require.Error(t, err)
}
