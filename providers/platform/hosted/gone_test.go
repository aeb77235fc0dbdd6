package hosted_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// willing is an engine whose units run nothing, and can be removed.
type willing struct{ idle }

func (*willing) Remove(context.Context, *hosted.Unit) error { return nil }

// A tenant may be upgraded for years: its releases that are gone are looked at by who asks for them alone, and not kept for longer than an attempt from before may come, however soon its tenant is closed.
func TestWhatIsGoneIsNotReadAgainAndIsForgotten(t *testing.T) {
	t.Parallel()
	c := config(t, &willing{})
	var said bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	path := func(n int) string {
		return filepath.Join(c.Dir, "releases", fmt.Sprintf("default.tenant-acme-r%d", n), "release.json")
	}
	old := func(n int) {
		at := time.Now().Add(-8 * 24 * time.Hour)
		require.NoError(t, os.Chtimes(path(n), at, at))
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path(1)), 0o700)) // as an earlier server has left it
	require.NoError(t, os.WriteFile(path(1), []byte(`{"key":"default.tenant-acme-r1","fence":20,"gone":true,"owner":"default.acme.own"}`), 0o600))
	a, err := hosted.Open(c)
	require.NoError(t, err)
	deploy := func(n int) error {
		_, err := a.Deploy(t.Context(), apptest.Release(n, "1.0"))
		return err
	}
	late := func(n int) bool {
		r := apptest.Release(n, "1.0")
		r.Fence--
		_, err := a.Deploy(t.Context(), r)
		return providers.IsFenced(err)
	}
	require.True(t, providers.IsFenced(deploy(1)))
	for n := 2; n < 5; n++ {
		require.ErrorContains(t, deploy(n), "was removed while it started") // it is known
		require.NoError(t, a.Remove(t.Context(), apptest.Release(n, "")))
		require.True(t, late(n))
	}
	require.NoError(t, os.WriteFile(path(2), []byte("nobody reads it"), 0o600))
	require.ErrorContains(t, deploy(5), "was removed while it started")
	acme := apptest.Release(0, "")
	require.NoError(t, a.Forget(t.Context(), acme.Of()))
	require.True(t, late(3), "its attempt may have been under way")
	require.NoError(t, a.Close(false))
	require.Empty(t, said.String())

	require.NoError(t, os.Remove(path(2)))
	for _, n := range []int{1, 3, 5} {
		old(n)
	}
	a, err = hosted.Open(c)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(path(3))
		return errors.Is(err, os.ErrNotExist)
	}, 10*time.Second, time.Millisecond)
	require.NoFileExists(t, path(1))
	require.True(t, late(4))
	require.FileExists(t, path(5), "it is not gone")
	require.NoError(t, a.Close(false))
	require.Empty(t, said.String())
}
