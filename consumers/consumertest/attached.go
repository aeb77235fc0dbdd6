package consumertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Attached is a base on a server of somebody else's, in an account with such settings.
func Attached(t *testing.T, account string, ms ...*machines.Machine) (*World, *Notes) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "nats.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
		listen: "127.0.0.1:-1"
		jetstream { store_dir: %q }
		accounts { A { %s, users: [ { user: a, password: a } ] } }
		no_auth_user: a`, filepath.Join(dir, "js"), account), 0o600))
	options, err := server.ProcessConfigFile(config)
	require.NoError(t, err)
	options.NoSigs, options.NoLog = true, true
	s, err := server.NewServer(options)
	require.NoError(t, err)
	go s.Start()
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := streams.Connect(streams.ConnectOptions{URL: s.ClientURL(), Name: "test"})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	appender, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	commands, err := publish.NewCommands(appender)
	require.NoError(t, err)
	n := NewNotes()
	ctx, cancel := context.WithCancel(context.Background())
	w := &World{T: t, Ctx: ctx, Deps: consumers.Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: Registry(t, ms...), Meter: n}}
	plan := streams.Plan{}
	for _, m := range ms {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
	}
	_, err = streams.Ensure(ctx, js, plan)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.Stop()
		cancel()
		w.Running.Wait()
		commands.Close()
		appender.Close()
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	return w, n
}
