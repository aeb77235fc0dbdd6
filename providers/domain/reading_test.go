package domain

import (
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
)

func TestHandshakesAskStorageOnceAMinute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)
	stored := &certmagic.FileStorage{Path: t.TempDir()}
	require.NoError(t, stored.Store(t.Context(), "k", []byte("v")))
	r := &reading{Storage: stored, now: func() time.Time { return now }, looked: map[string]time.Time{}}
	require.NoError(t, r.Lock(t.Context(), "a"))
	require.NoError(t, r.Unlock(t.Context(), "a"))
	now = now.Add(59 * time.Second)
	require.Error(t, r.Lock(t.Context(), "a"))
	require.NoError(t, r.Lock(t.Context(), "b"))
	now = now.Add(time.Second)
	require.NoError(t, r.Lock(t.Context(), "a"))

	require.ErrorIs(t, r.Store(t.Context(), "k", nil), errReading)
	require.ErrorIs(t, r.Delete(t.Context(), "k"), errReading)
	v, err := r.Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
}
