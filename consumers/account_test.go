package consumers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// attached is a world on a server of somebody else's, in an account with such settings.
func attached(t *testing.T, account string, ms ...*machines.Machine) (*world, *notes) {
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
	appender, err := streams.NewAppender(nc, streams.AppenderOptions{})
	require.NoError(t, err)
	commands, err := streams.NewCommands(appender)
	require.NoError(t, err)
	n := &notes{ends: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, ctx: ctx, Deps: Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: ms, Meter: n}}
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
		w.stop()
		cancel()
		w.running.Wait()
		commands.Close()
		appender.Close()
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	return w, n
}

// An account that is full takes nothing for a while: commands that were accepted before wait, however often they are tried,
// and are applied when there is room again. None of them is to blame.
func TestAFullAccountCostsNoCommand(t *testing.T) {
	t.Parallel()
	w, n := attached(t, "jetstream: { max_file: 3MB }", thingMachine)
	w.start()
	w.ask(toThing("a", "create", ""))
	w.stop()
	for range 3 {
		w.bare("a", "add", `{"n":1}`)
	}
	var err error
	for size := 100_000; size > 10; size /= 10 {
		for err = nil; err == nil; {
			_, err = w.JS.PublishMsg(w.ctx, &nats.Msg{Subject: "instar.evt.filler.x.y.z", Data: make([]byte, size)})
		}
		require.ErrorContains(t, err, "resource limits exceeded for account")
	}
	w.start()
	partition := fmt.Sprintf("restarted p%02d", streams.Partition("thing", "default.a"))
	w.eventually("more tries than any command has", func() bool { return n.count(partition) > maxFailures+1 })
	events, err := w.JS.Stream(w.ctx, streams.EventStream)
	require.NoError(t, err)
	require.NoError(t, events.Purge(w.ctx))
	w.eventually("all are applied", func() bool { return w.sum("a") == 3 })
	letters, err := w.dead().List(w.ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, letters)
}
