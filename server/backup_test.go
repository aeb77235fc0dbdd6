package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// A store that is full after a restore is told, as a server would refuse all commands.
func TestARestoreTellsThatTheStoreIsFull(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Serve)
	cfg.Data, cfg.NATS.Listen, cfg.Store.Max = t.TempDir(), "", "16MiB"
	a := newApp(cfg, Options{}, &registry.Registry{}, slog.New(slog.DiscardHandler))
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

// Where an account may be shared, what tenants keep beside the plan is named; elsewhere a backup has all streams.
func TestABackupOfASharedAccountHasWhatTenantsKeep(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Serve)
	cfg.Data, cfg.NATS.URL, cfg.Tenants.Keys = t.TempDir(), "nats://127.0.0.1:4222", "keys.json"
	a := newApp(cfg, Options{}, &registry.Registry{}, slog.New(slog.DiscardHandler))
	s := a.store(nil, nil)
	require.True(t, s.Shared)
	require.Equal(t, []string{"AUDIT_STATE", "AUDIT_RESOURCE", "AUDIT_ERROR", "AUDIT_PROGRESS", "KV_tenant_runtime", "KV_tenant_resolvers", "KV_tenant_catalogue"}, s.Others)
}

// What a restore has left, or found, is told as what has to be removed from where.
func TestWhereARestoreHasLeftSomething(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Serve)
	cfg.Data, cfg.NATS.URL = t.TempDir(), "nats://127.0.0.1:4222"
	for url, text := range map[string][2]string{
		"":                      {"remove " + filepath.Join(cfg.Data, "nats") + " before", "it is in " + filepath.Join(cfg.Data, "nats")},
		"nats://127.0.0.1:4222": {"remove its streams and those of its outboxes from the account at nats://127.0.0.1:4222 before", "it is in the account at nats://127.0.0.1:4222"},
	} {
		cfg.NATS.URL = url
		a := newApp(cfg, Options{}, &registry.Registry{}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, a.notRestored(backup.Restored{Begun: true}, context.Canceled), text[0])
		require.ErrorContains(t, a.notRestored(backup.Restored{}, streams.ErrOccupied), text[1])
		require.Equal(t, context.Canceled, a.notRestored(backup.Restored{}, context.Canceled))
	}
}
