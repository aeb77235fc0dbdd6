package server

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/config"
)

// Whatever looks after the streams of a cluster has one plan of them, with its replicas.
func TestTheStreamsOfAMember(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Serve)
	cfg.Data, cfg.Node, cfg.NATS.Listen = t.TempDir(), "node-1", "127.0.0.1:0"
	cfg.Cluster = config.Cluster{Name: "blue", Listen: testenv.Address(t), Routes: "nats://" + testenv.Address(t), User: "u", Password: "p", Replicas: 3}
	ms, err := registry.New(all.Machines()...)
	require.NoError(t, err)
	a := newApp(cfg, Options{}, ms, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		a.stopping.Store(true)
		require.NoError(t, a.stopAll(context.Background(), func(string) {}))
	})
	_, _, err = a.openNATS()
	require.NoError(t, err)
	for _, c := range a.plan().Configs() {
		require.Equal(t, 3, c.Replicas, c.Name)
	}
}
