package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// world is a running NATS with an engine over the machines of discovery, and the indexes that a prober follows.
type world struct {
	consumers.Deps
	t             *testing.T
	ctx           context.Context
	log           *testLog
	instances     *index.Index
	preservations *index.Index
	running       sync.WaitGroup
}

func setup(t *testing.T) *world {
	t.Helper()
	said := &testLog{t: t}
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Profile: embedded.OS, Log: log})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "test", Log: log})
	require.NoError(t, err)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	appender, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	commands, err := publish.NewCommands(appender)
	require.NoError(t, err)
	ms := []*machines.Machine{instance.Machine, preservation.Machine}
	registry, err := registry.New(ms...)
	require.NoError(t, err)
	w := &world{t: t, ctx: ctx, log: said, Deps: consumers.Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: registry, Log: log}}
	plan := streams.Plan{}
	for _, m := range ms {
		plan.States = append(plan.States, m.Plural)
	}
	_, err = streams.Ensure(ctx, js, plan)
	require.NoError(t, err)
	w.instances = index.New(js, instance.Machine.Plural, describe, index.Options{Log: log})
	w.preservations = index.New(js, preservation.Machine.Plural, describeZone, index.Options{Log: log})
	engine := &engine.Engine{Deps: w.Deps}
	for _, run := range []func(context.Context) error{w.instances.Run, w.preservations.Run, engine.Run} {
		w.running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		w.running.Wait()
		commands.Close()
		appender.Close()
		nc.Close()
		require.NoError(t, server.Shutdown(context.Background()))
	})
	return w
}

func describe(_ string, value []byte) (index.Meta, error) {
	m, err := index.DescribeJSON(value)
	if err != nil {
		return m, err
	}
	m.Value, err = instance.Decode(value)
	return m, err
}

func describeZone(_ string, value []byte) (index.Meta, error) {
	m, err := index.DescribeJSON(value)
	if err != nil {
		return m, err
	}
	e, err := preservation.Machine.Decode(value)
	m.Value = e.Data
	return m, err
}

// prober is one that is not started yet.
func (w *world) prober(checker Checker) *Prober {
	return &Prober{Deps: w.Deps, Shares: cluster.Everything{}, Instances: w.instances, Preservations: w.preservations, Checker: checker, Node: "node-a"}
}

// start runs a prober until the test ends or stop is called.
func (w *world) start(p *Prober) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	w.running.Go(func() { defer close(done); _ = p.Run(ctx) })
	return func() { cancel(); <-done }
}

func (w *world) tell(t *testing.T, machine, key, name string, body any) machines.Answer {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	answer, err := w.Commands.Ask(ctx, publish.Command{Machine: machine, Key: key, Name: name, Actor: "test", Body: raw})
	require.NoError(t, err)
	var a machines.Answer
	require.NoError(t, json.Unmarshal(answer, &a))
	require.Nil(t, a.Refusal)
	return a
}

func (w *world) register(t *testing.T, key string, b instance.RegisterBody) {
	t.Helper()
	if b.NodeAddress == "" {
		b.NodeAddress = "127.0.0.1:9"
	}
	w.tell(t, "instance", key, instance.CommandRegister, b)
}

// becomes waits for a state and returns how long that took.
func (w *world) becomes(t *testing.T, key, state string, within time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool { return w.state(key) == state }, within, 5*time.Millisecond, "%s should become %s, is %s", key, state, lazy(func() string { return w.state(key) }))
	return time.Since(start)
}

type lazy func() string

func (l lazy) String() string { return l() }

func (w *world) state(key string) string {
	item, _ := w.instances.Get(key)
	return item.State
}

// routable reports whether all of them are found.
func (w *world) routable(keys ...string) bool {
	for _, key := range keys {
		if s := w.state(key); s != instance.Healthy && s != instance.Suspect {
			return false
		}
	}
	return true
}

// in counts the instances of a state.
func (w *world) in(state string, keys ...string) (n int) {
	for _, key := range keys {
		if w.state(key) == state {
			n++
		}
	}
	return n
}

// data is all that is stored of an instance; the index has less. It is empty where there is no instance.
func (w *world) data(key string) *instance.Data {
	bucket := w.Names.Bucket(instance.Machine.Plural)
	if s, err := w.JS.Stream(w.ctx, "KV_"+bucket); err == nil {
		if m, err := s.GetLastMsgForSubject(w.ctx, "$KV."+bucket+"."+key); err == nil {
			if e, err := instance.Machine.Decode(m.Data); err == nil {
				return e.Data.(*instance.Data)
			}
		}
	}
	return new(instance.Data)
}

// events are the types of an instance's events, up to the version that is known. Several may be of one version: they are
// all there when none has come for a while.
func (w *world) events(t *testing.T, key string) (list []string) {
	t.Helper()
	st, err := w.JS.Stream(w.ctx, streams.EventStream)
	require.NoError(t, err)
	item, _ := w.instances.Get(key)
	var last machines.Event
	came := time.Now()
	for seq := uint64(1); ; {
		m, err := st.GetMsg(w.ctx, seq, jetstream.WithGetMsgSubject(w.Names.EventsOf("instance", key)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			quiet := time.Since(came)
			if quiet > 100*time.Millisecond && last.Version >= item.Version {
				return list
			}
			require.Less(t, quiet, patience, "the events of version %d", item.Version)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(m.Data, &last))
		list = append(list, strings.TrimPrefix(m.Header.Get("ce-type"), "instance."))
		seq, came = m.Sequence+1, time.Now()
	}
}

func (w *world) beat(t *testing.T, key, body string) {
	t.Helper()
	require.NoError(t, w.NC.Publish("instar.hb."+key, []byte(body)))
}

// beating sends heartbeats of instances until stop is called, or the test ends.
func (w *world) beating(t *testing.T, every time.Duration, body string, keys ...string) (stop func()) {
	t.Helper()
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			for _, k := range keys {
				_ = w.NC.Publish("instar.hb."+k, []byte(body))
			}
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(end); <-done }) }
	t.Cleanup(stop)
	return stop
}

func ttl(d, grace string) instance.Check {
	return instance.Check{Type: instance.CheckTTL, TTL: d, Grace: grace}
}

func keys(service string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("default.%s.i-%d", service, i)
	}
	return list
}

// script is a checker whose results are set by the key of the instance; it passes where none is.
type script struct {
	mu      sync.Mutex
	results map[string]instance.Result
	probes  map[string]int
	lossy   int            // each so manieth probe of an instance gives no answer; 0 is none
	now     map[string]int // probes under way
}

func (s *script) set(key string, r instance.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results == nil {
		s.results = map[string]instance.Result{}
	}
	s.results[key] = r
}

func (s *script) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes[key]
}

func (s *script) Check(_ context.Context, target instance.Target) instance.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probes == nil {
		s.probes, s.now = map[string]int{}, map[string]int{}
	}
	s.probes[target.Key]++
	if r, ok := s.results[target.Key]; ok {
		return r
	}
	if s.lossy > 0 && s.probes[target.Key]%s.lossy == 0 {
		return timedOut
	}
	return instance.Result{OK: true}
}

func (s *script) Admit(c instance.Check, _ string) error {
	if c.Type == instance.CheckScript {
		return errors.New("scripts are not enabled")
	}
	return nil
}

var (
	refused  = instance.Result{Class: instance.FailedRefused, Output: "connection refused"}
	timedOut = instance.Result{Class: instance.FailedTimeout, Output: "no answer within 1s"}
)

// testLog keeps what is logged.
type testLog struct {
	t  *testing.T
	mu sync.Mutex
	b  strings.Builder
}

// times is how often something was logged.
func (l *testLog) times(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(b)
	if testing.Verbose() {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}
