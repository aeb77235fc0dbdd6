package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
)

// world is a running NATS with everything that the consumers need, and an engine that can be stopped and started.
type world struct {
	Deps
	t      *testing.T
	server *streams.Server
	dir    string // of the server
	ctx    context.Context

	indexes    map[string]*kv.Index // of the engine
	stopEngine context.CancelFunc
	engine     *Engine
	engines    sync.WaitGroup
	running    sync.WaitGroup // everything else
}

func setup(t *testing.T, profile streams.Profile, ms ...*machines.Machine) *world {
	t.Helper()
	if len(ms) == 0 {
		ms = []*machines.Machine{service.Machine}
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	dir := t.TempDir()
	server, err := streams.StartServer(streams.ServerOptions{Dir: dir, Profile: profile, Log: log})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, server: server, dir: dir, ctx: ctx}
	nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "test", Log: log})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	appender, err := streams.NewAppender(nc, streams.AppenderOptions{Group: profile == streams.Fsync})
	require.NoError(t, err)
	commands, err := streams.NewCommands(appender)
	require.NoError(t, err)
	w.Deps = Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: ms, Log: log, Acking: server.Acking()}
	plan := streams.Plan{}
	for _, m := range ms {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
	}
	diffs, err := streams.Ensure(ctx, js, plan)
	require.NoError(t, err)
	require.Empty(t, diffs)
	t.Cleanup(func() {
		w.stop()
		cancel()
		w.running.Wait()
		commands.Close()
		appender.Close()
		nc.Close()
		require.NoError(t, server.Shutdown(context.Background()))
	})
	return w
}

func (w *world) start() *world {
	ctx, cancel := context.WithCancel(w.ctx)
	w.engine, w.stopEngine = &Engine{Deps: w.Deps, Indexes: w.indexes}, cancel
	e := w.engine
	w.engines.Go(func() { _ = e.Run(ctx) })
	return w
}

func (w *world) stop() {
	if w.stopEngine != nil {
		w.stopEngine()
		w.engines.Wait()
		w.stopEngine = nil
	}
}

// also runs something beside the engine until the test ends.
func (w *world) also(run func(context.Context) error) {
	w.running.Go(func() { _ = run(w.ctx) })
}

func (w *world) ask(cmd streams.Command) machines.Answer {
	w.t.Helper()
	a, err := w.tryAsk(cmd)
	require.NoError(w.t, err)
	return a
}

func (w *world) tryAsk(cmd streams.Command) (machines.Answer, error) {
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	m, err := w.Commands.AskMsg(ctx, cmd, nil)
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
		a.Replayed = streams.Replayed(m)
	}
	return a, err
}

func (w *world) entity(m *machines.Machine, key string) (machines.Entity, uint64) {
	w.t.Helper()
	var stored *streams.Message
	w.eventually("a read of "+key, func() (ok bool) { // the connection may be on its way back
		var err error
		stored, err = streams.Last(w.ctx, w.NC, "KV_"+m.Plural, "$KV."+m.Plural+"."+key)
		return err == nil
	})
	if stored == nil {
		return machines.Entity{}, 0
	}
	e, err := m.Decode(stored.Data)
	require.NoError(w.t, err)
	return e, stored.Sequence
}

// events are all events of an entity, as "version type".
func (w *world) events(machine, key string) []string {
	w.t.Helper()
	var list []string
	for _, m := range w.stream(streams.EventStream, w.Names.EventsOf(machine, key)) {
		var ev machines.Event
		require.NoError(w.t, json.Unmarshal(m.Data, &ev))
		list = append(list, fmt.Sprintf("%d %s", ev.Version, m.Header.Get("ce-type")))
	}
	return list
}

// stream reads what a stream holds under a filter.
func (w *world) stream(stream, filter string) []*jetstream.RawStreamMsg {
	w.t.Helper()
	w.eventually("a connection", w.NC.IsConnected)
	st, err := w.JS.Stream(w.ctx, stream)
	require.NoError(w.t, err)
	var list []*jetstream.RawStreamMsg
	for seq := uint64(1); ; seq++ {
		m, err := st.GetMsg(w.ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return list
		}
		require.NoError(w.t, err)
		list = append(list, m)
		seq = m.Sequence
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, 45*time.Second, 10*time.Millisecond, what)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	if testing.Verbose() {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

var _ io.Writer = testLog{}

func createCommand(id string) streams.Command {
	return streams.Command{Machine: "service", Key: "default." + id, Name: "create", Actor: "test", Body: []byte(`{"spec":{"image":"hello"}}`)}
}
