package server

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// A store that is full after a restore is told, as a server would refuse all commands.
func TestARestoreTellsThatTheStoreIsFull(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Serve)
	cfg.Data, cfg.NATS.Listen, cfg.Store.Max = t.TempDir(), "", "16MiB"
	a := newApp(cfg, Options{}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		a.stopping.Store(true)
		require.NoError(t, a.stopAll(context.Background(), func(string) {}))
	})
	_, js, err := a.openNATS()
	require.NoError(t, err)
	a.deps.JS = js
	require.Empty(t, a.whyFull())
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}})
	require.NoError(t, err)
	for range 17 {
		_, err := js.Publish(t.Context(), "large", make([]byte, 1<<20-100))
		require.NoError(t, err)
	}
	require.Contains(t, a.whyFull(), "every server refuses all commands: the store of the streams is full")
}
