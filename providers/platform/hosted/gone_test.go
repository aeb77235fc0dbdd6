package hosted_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// willing is an engine whose units run nothing, and can be removed.
type willing struct{ idle }

func (*willing) Remove(context.Context, *hosted.Unit) error { return nil }

// A tenant may be upgraded for years: its releases that are gone are looked at by who asks for them alone, and nothing of them stays when it is closed.
func TestWhatIsGoneIsNotReadAgainAndIsForgottenWithItsTenant(t *testing.T) {
	t.Parallel()
	c := config(t, &willing{})
	var said bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	path := func(n int) string {
		return filepath.Join(c.Dir, "releases", fmt.Sprintf("default.tenant-acme-r%d", n), "release.json")
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path(1)), 0o700)) // as an earlier server has left it
	require.NoError(t, os.WriteFile(path(1), []byte(`{"key":"default.tenant-acme-r1","fence":20,"gone":true}`), 0o600))
	a, err := hosted.Open(c)
	require.NoError(t, err)
	deploy := func(n int) error {
		_, err := a.Deploy(t.Context(), apptest.Release(n, "1.0"))
		return err
	}
	require.True(t, providers.IsFenced(deploy(1)))
	for n := 2; n < 5; n++ {
		require.ErrorContains(t, deploy(n), "was removed while it started") // it is known
		require.NoError(t, a.Remove(t.Context(), apptest.Release(n, "")))
		late := apptest.Release(n, "1.0")
		late.Fence--
		_, err := a.Deploy(t.Context(), late)
		require.True(t, providers.IsFenced(err))
	}
	require.NoError(t, os.WriteFile(path(2), []byte("nobody reads it"), 0o600))
	require.ErrorContains(t, deploy(5), "was removed while it started")
	require.NoError(t, a.Close(false))
	require.Empty(t, said.String())

	require.NoError(t, os.Remove(path(2)))
	a, err = hosted.Open(c)
	require.NoError(t, err)
	acme := apptest.Release(0, "")
	require.NoError(t, a.Forget(t.Context(), app.Tenant{Namespace: "default", Name: "tenant-other", Owner: "default.other.own"}))
	require.FileExists(t, path(3))
	require.NoError(t, a.Forget(t.Context(), acme.Of()))
	require.NoFileExists(t, path(3))
	require.NoFileExists(t, path(4))
	require.FileExists(t, path(5), "it is not gone")
	require.True(t, providers.IsFenced(deploy(1)), "of the earlier server it is not known whose it was")
	require.NoError(t, a.Close(false))
}
