package snapshot_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/docs/examples/snapshot"
	"github.com/bcc94042/instar/docs/examples/snapshot/tarball"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// The whole loop, as the server wires it: a command, the engine, the worker, the provider, the result.
func TestASnapshotIsTaken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Profile: embedded.OS})
	require.NoError(t, err)
	nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "example"})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	_, err = streams.Ensure(ctx, js, streams.Plan{States: []string{snapshot.Machine.Plural}})
	require.NoError(t, err)
	appender, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	commands, err := publish.NewCommands(appender)
	require.NoError(t, err)

	ms, err := registry.New(snapshot.Machine)
	require.NoError(t, err)
	deps := consumers.Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: ms}
	vault := t.TempDir()
	workers := &effects.Workers{Deps: deps, Performer: effects.ByMachine{"snapshot": tarball.Provider{Dir: vault}}.Of}
	var running sync.WaitGroup
	running.Go(func() { _ = (&engine.Engine{Deps: deps}).Run(ctx) })
	running.Go(func() { _ = workers.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		commands.Close()
		appender.Close()
		nc.Close()
		require.NoError(t, server.Shutdown(context.Background()))
	})

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600))
	body, err := json.Marshal(snapshot.TakeBody{Directory: dir})
	require.NoError(t, err)
	_, err = commands.Ask(ctx, publish.Command{Machine: "snapshot", Key: machines.Key("default", "", "web"), Name: "take", Body: body})
	require.NoError(t, err)

	bucket, err := kv.Open(ctx, js, snapshot.Machine.Plural, kv.JSON[machines.Entity]())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, err := bucket.Get(ctx, "default.web")
		return err == nil && e.Value.State == snapshot.Kept
	}, 20*time.Second, 10*time.Millisecond)
	require.FileExists(t, filepath.Join(vault, "default.web.tar.gz"))
}
