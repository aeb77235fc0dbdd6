package consumertest

// The World in which tests of the consumers run. New starts an embedded server with the streams and buckets of some machines; a test starts its engine with Run and other
// consumers with Also, sends commands with Ask or Persist, and reads what was stored with Entity, Events and Stream. All of it is stopped when the test ends.

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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// World is a running NATS with everything that the consumers need, and what is started on it, such as an engine that can be stopped and started.
type World struct {
	consumers.Deps
	T      *testing.T
	Server *embedded.Server
	Dir    string // of the server
	Ctx    context.Context

	Indexes    *index.Map // of the engine
	StopEngine context.CancelFunc
	writes     publish.AppenderOptions
	engines    sync.WaitGroup
	Running    sync.WaitGroup // everything else
	closing    []func()       // when nothing runs any more
}

// EachWrite is [embedded.Fsync] with a server that syncs each write by itself, as one does that is not embedded.
const EachWrite embedded.Profile = "fsync of each write"

func New(t *testing.T, profile embedded.Profile, ms ...*machines.Machine) *World {
	t.Helper()
	each := profile == EachWrite
	if each {
		profile = embedded.Fsync
	}
	if len(ms) == 0 {
		ms = []*machines.Machine{service.Machine}
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	dir := t.TempDir()
	server, err := embedded.Start(embedded.Options{Dir: dir, Profile: profile, Log: log})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &World{T: t, Server: server, Dir: dir, Ctx: ctx, writes: publish.AppenderOptions{Group: each}}
	if !each {
		w.writes.Sync = server.Syncer()
	}
	nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "test", Log: log})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	appender, err := publish.NewAppender(nc, w.writes)
	require.NoError(t, err)
	commands, err := publish.NewCommands(appender)
	require.NoError(t, err)
	w.Deps = consumers.Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: Registry(t, ms...), Log: log, Acking: server.Acking(), EndAtStart: server.EndAtStart, Lacks: server.Lacks}
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
		w.Stop()
		cancel()
		w.Running.Wait()
		for _, shut := range append(w.closing, commands.Close, appender.Close, nc.Close) {
			shut()
		}
		require.NoError(t, server.Shutdown(context.Background()))
	})
	return w
}

// Registry is one of these machines.
func Registry(t *testing.T, ms ...*machines.Machine) *registry.Registry {
	t.Helper()
	r, err := registry.New(ms...)
	require.NoError(t, err)
	return r
}

// Run starts an engine, which runs until stop.
func (w *World) Run(engine func(context.Context) error) {
	ctx, cancel := context.WithCancel(w.Ctx)
	w.StopEngine = cancel
	w.engines.Go(func() { _ = engine(ctx) })
}

func (w *World) Stop() {
	if w.StopEngine != nil {
		w.StopEngine()
		w.engines.Wait()
		w.StopEngine = nil
	}
}

// Also runs something beside the engine until the test ends.
func (w *World) Also(run func(context.Context) error) {
	w.Running.Go(func() { _ = run(w.Ctx) })
}

func (w *World) Ask(cmd publish.Command) machines.Answer {
	w.T.Helper()
	a, err := w.TryAsk(cmd)
	require.NoError(w.T, err)
	return a
}

func (w *World) TryAsk(cmd publish.Command) (machines.Answer, error) {
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
	defer cancel()
	m, err := w.Commands.AskMsg(ctx, cmd, nil)
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
		a.Replayed = streams.Replayed(m)
	}
	return a, err
}

func (w *World) Entity(m *machines.Machine, key string) (machines.Entity, uint64) {
	w.T.Helper()
	var stored *streams.Message
	w.Eventually("a read of "+key, func() (ok bool) { // the connection may be on its way back
		var err error
		stored, err = streams.Last(w.Ctx, w.NC, streams.BucketStream(m.Plural), streams.BucketSubject(m.Plural, key))
		return err == nil
	})
	if stored == nil {
		return machines.Entity{}, 0
	}
	e, err := m.Decode(stored.Data)
	require.NoError(w.T, err)
	return e, stored.Sequence
}

// Events are all events of an entity, as "version type".
func (w *World) Events(machine, key string) []string {
	w.T.Helper()
	var list []string
	for _, m := range w.Stream(streams.EventStream, w.Names.EventsOf(machine, key)) {
		var ev machines.Event
		require.NoError(w.T, json.Unmarshal(m.Data, &ev))
		list = append(list, fmt.Sprintf("%d %s", ev.Version, m.Header.Get("ce-type")))
	}
	return list
}

// Told waits for as many events of an entity as are wanted, and compares them: they are stored in a stream of their own, which may be after the answer.
func (w *World) Told(machine, key string, want ...string) {
	w.T.Helper()
	w.Eventually("the events of "+key, func() bool { return len(w.Events(machine, key)) >= len(want) })
	require.Equal(w.T, want, w.Events(machine, key))
}

// Stream reads what a stream holds under a filter.
func (w *World) Stream(stream, filter string) []*jetstream.RawStreamMsg {
	w.T.Helper()
	w.Eventually("a connection", w.NC.IsConnected)
	st, err := w.JS.Stream(w.Ctx, stream)
	require.NoError(w.T, err)
	var list []*jetstream.RawStreamMsg
	for seq := uint64(1); ; seq++ {
		m, err := st.GetMsg(w.Ctx, seq, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return list
		}
		require.NoError(w.T, err)
		list = append(list, m)
		seq = m.Sequence
	}
}

func (w *World) Eventually(what string, ok func() bool) {
	w.T.Helper()
	require.Eventually(w.T, ok, 2*time.Minute, 10*time.Millisecond, what) // what a lost pull took comes again after AckWait, 30 s, and on a busy machine that may happen twice
}

// Noted records metrics and traces of the consumers from now on.
func (w *World) Noted() *Notes {
	n := NewNotes()
	w.Meter, w.Trace = n, n.Trace
	return n
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	if testing.Verbose() {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

var _ io.Writer = testLog{}

func (w *World) Sum(id string) int {
	e, _ := w.Entity(Things, "default."+id)
	if e.Data == nil {
		return -1
	}
	return e.Data.(*Thing).Sum
}

// CheckStory requires that the events of a thing are one run of versions without gap or repetition.
func (w *World) CheckStory(id string) {
	w.T.Helper()
	e, _ := w.Entity(Things, "default."+id)
	var evs []string
	w.Eventually("all events of "+id, func() bool {
		evs = w.Events("thing", "default."+id)
		return len(evs) > 0 && strings.HasPrefix(evs[len(evs)-1], fmt.Sprint(e.Version)+" ")
	})
	version := uint64(0)
	for _, ev := range evs {
		var v uint64
		var name string
		_, err := fmt.Sscan(ev, &v, &name)
		require.NoError(w.T, err)
		if strings.HasPrefix(name, "command.") {
			continue
		}
		require.Equal(w.T, version+1, v, "events of %s: %v", id, evs)
		version = v
	}
}

func (w *World) SumSafely(id string) int {
	m, err := streams.Last(w.Ctx, w.NC, streams.BucketStream("things"), streams.BucketSubject("things", "default."+id))
	if err != nil || m == nil {
		return -1
	}
	e, err := Things.Decode(m.Data)
	if err != nil {
		return -1
	}
	return e.Data.(*Thing).Sum
}

// Persist asks again under the same id until there is an answer, as a client should.
func (w *World) Persist(cmd publish.Command, id string) {
	cmd.ID = id
	for {
		ctx, cancel := context.WithTimeout(w.Ctx, 2*time.Second)
		raw, err := w.Commands.Ask(ctx, cmd)
		cancel()
		if err == nil {
			var a machines.Answer
			if err := json.Unmarshal(raw, &a); err != nil || a.Outcome != machines.Applied {
				w.T.Errorf("%s %s %s: %s", cmd.Key, cmd.Name, id, raw)
			}
			return
		}
		if !wait.Backoff(w.Ctx, 0) {
			return
		}
	}
}

func (w *World) Publish(m *nats.Msg) uint64 {
	w.T.Helper()
	ack, err := w.JS.PublishMsg(w.Ctx, m)
	require.NoError(w.T, err)
	return ack.Sequence
}

func (w *World) Reaches(id, state string) machines.Entity {
	w.T.Helper()
	var e machines.Entity
	w.Eventually(id+" is "+state, func() bool { e, _ = w.Entity(Things, "default."+id); return e.State == state })
	return e
}

// Empty deletes streams and creates them again, as if they had lost everything.
func (w *World) Empty(names ...string) {
	w.T.Helper()
	for _, name := range names {
		s, err := w.JS.Stream(w.Ctx, name)
		require.NoError(w.T, err)
		config := s.CachedInfo().Config
		require.NoError(w.T, w.JS.DeleteStream(w.Ctx, name))
		_, err = w.JS.CreateStream(w.Ctx, config)
		require.NoError(w.T, err)
	}
}

func (w *World) Bucket(name string) jetstream.KeyValue {
	w.T.Helper()
	bucket, err := w.JS.KeyValue(w.Ctx, name)
	require.NoError(w.T, err)
	return bucket
}

func (w *World) Errand(id string) string {
	w.T.Helper()
	e, _ := w.Entity(Errands, "default."+id)
	return e.State
}

// Apart are the dependencies of another process: on a connection of its own, which is closed when the test has ended.
func (w *World) Apart(name string) consumers.Deps {
	w.T.Helper()
	return w.ApartBy(name, w.Server)
}

// ApartBy is [World.Apart] with a way to the server of a test's own.
func (w *World) ApartBy(name string, way streams.Embedded) consumers.Deps {
	w.T.Helper()
	d := w.Deps
	var err error
	d.NC, err = streams.Connect(streams.ConnectOptions{Server: way, Name: name, Log: w.Log})
	require.NoError(w.T, err)
	d.JS, err = streams.JetStream(d.NC)
	require.NoError(w.T, err)
	writes := w.writes
	writes.Timeout = 2 * time.Second
	d.Appender, err = publish.NewAppender(d.NC, writes)
	require.NoError(w.T, err)
	d.Commands, err = publish.NewCommands(d.Appender)
	require.NoError(w.T, err)
	d.Turn = make(chan struct{}, 1)
	w.closing = append(w.closing, d.Commands.Close, d.Appender.Close, d.NC.Close)
	return d
}

// Suspects are the keys of the notes about messages that may have ended a process that have not been taken back.
func (w *World) Suspects(of string) (keys []string) {
	for _, m := range w.Stream(streams.BucketStream("owners"), streams.BucketSubject("owners", "suspect."+of)) {
		if len(m.Data) > 0 {
			keys = append(keys, m.Subject)
		}
	}
	return keys
}
