package orchestrator

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world has an engine, workers whose performer a test decides, and as many orchestrators as it starts.
type world struct {
	*consumertest.World
	last    *Orchestrator // that was started
	mu      sync.Mutex
	perform func(context.Context, machines.Task, task.Run) machines.Result
	erase   func(context.Context)   // before anything starts; nil erases at once
	reading func(*machines.Machine) // before an index of an orchestrator takes a value; nil does nothing
}

func setup(t *testing.T, profile embedded.Profile) *world {
	t.Helper()
	w := &world{World: consumertest.New(t, profile, task.Machine, repository.Machine, queue.Machine)}
	w.Run((&engine.Engine{Deps: w.Deps}).Run)
	w.Also((&effects.Workers{Deps: w.Deps, Concurrency: 64, AckWait: 3 * time.Second, Performer: func(string) effects.Performer { return w }}).Run)
	return w
}

// Perform is what all workers do.
func (w *world) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect == task.EffectErase {
		if w.erase != nil {
			w.erase(ctx)
		}
		return machines.Result{Data: task.Erased{}}
	}
	var r task.Run
	if err := json.Unmarshal(t.Data, &r); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: err.Error()}}
	}
	w.mu.Lock()
	perform := w.perform
	w.mu.Unlock()
	if perform == nil {
		return machines.Result{Data: task.Result{}}
	}
	return perform(ctx, t, r)
}

func (w *world) does(perform func(context.Context, machines.Task, task.Run) machines.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.perform = perform
}

// orchestrate starts an orchestrator with indexes of its own, as in another process; stop ends it at once.
func (w *world) orchestrate(d consumers.Deps) (stop func()) {
	return w.follows(d, func(ctx context.Context, o *Orchestrator) { _ = o.Run(ctx) })
}

// loads runs one loop that has loaded everything, as far as a test says, and waits for that.
func (w *world) loads(d consumers.Deps, run func(context.Context, *loop)) {
	w.T.Helper()
	done := make(chan struct{})
	w.follows(d, func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		for _, ix := range []*index.Index{o.Tasks, o.Repositories, o.Queues} {
			<-ix.Ready()
		}
		o.Deps, o.clock = o.WithDefaults(), time.Now
		l := o.begin(ctx)
		require.NoError(w.T, l.load())
		run(ctx, l)
	})
	<-done
}

// follows starts an orchestrator's indexes, and runs it as a test says.
func (w *world) follows(d consumers.Deps, run func(context.Context, *Orchestrator)) (stop func()) {
	ctx, cancel := context.WithCancel(w.Ctx)
	o := &Orchestrator{Deps: d, sweepEvery: 500 * time.Millisecond}
	w.last = o
	var running sync.WaitGroup
	for _, x := range []struct {
		m    *machines.Machine
		to   **index.Index
		read func(string, []byte) (any, error)
	}{{task.Machine, &o.Tasks, TaskValue}, {repository.Machine, &o.Repositories, RepositoryValue}, {queue.Machine, &o.Queues, QueueValue}} {
		*x.to = index.New(d.JS, d.Names.Bucket(x.m.Plural), func(key string, value []byte) (index.Meta, error) {
			if w.reading != nil {
				w.reading(x.m)
			}
			meta, err := index.DescribeJSON(value)
			if err == nil {
				meta.Value, err = x.read(key, value)
			}
			return meta, err
		}, index.Options{Log: d.Log})
		running.Go(func() { _ = (*x.to).Run(ctx) })
	}
	running.Go(func() { run(ctx, o) })
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); running.Wait() }) }
	w.T.Cleanup(stop)
	return stop
}

func (w *world) send(m *machines.Machine, key, name string, body any) machines.Answer {
	w.T.Helper()
	raw, err := json.Marshal(body)
	require.NoError(w.T, err)
	if body == nil {
		raw = nil
	}
	return w.Ask(publish.Command{Machine: m.Name, Key: key, Name: name, Body: raw})
}

func (w *world) applied(m *machines.Machine, key, name string, body any) machines.Answer {
	w.T.Helper()
	a := w.send(m, key, name, body)
	require.Nil(w.T, a.Refusal, "%s %s: %+v", name, key, a.Refusal)
	return a
}

func (w *world) repository(name string, s repository.Spec) {
	w.T.Helper()
	w.applied(repository.Machine, "default."+name, "create", repository.CreateBody{Spec: s})
}

func (w *world) task(key string, s task.Spec) {
	w.T.Helper()
	if s.Type == "" {
		s.Type = "noop"
	}
	w.applied(task.Machine, "default."+key, "create", task.CreateBody{Spec: s, Run: true})
}

func (w *world) state(m *machines.Machine, key string) string {
	e, _ := w.Entity(m, "default."+key)
	return e.State
}

func (w *world) comes(m *machines.Machine, key, state string) {
	w.T.Helper()
	defer func() {
		if w.T.Failed() {
			e, _ := w.Entity(m, "default."+key)
			raw, _ := json.Marshal(e)
			w.T.Log(string(raw))
		}
	}()
	w.Eventually(key+" is "+state, func() bool { return w.state(m, key) == state })
}

// event is one event of a task, as the log has it.
type event struct {
	machines.Event
	typ, key string
	data     struct {
		AttemptID string `json:"attemptId"`
		Type      string `json:"type"`
		Outcome   string `json:"outcome"`
	}
}

// log reads all events of tasks in the order in which their commands were stored: those of different tasks are published after that, in any order.
func (w *world) log() (all []event) {
	w.T.Helper()
	for _, m := range w.Stream(streams.EventStream, w.Names.EventsOf("task", "*.*.*")) {
		var e event
		raw := json.RawMessage{}
		e.Data = &raw
		require.NoError(w.T, json.Unmarshal(m.Data, &e.Event))
		addr, err := w.Names.ParseEvent(m.Subject, true)
		require.NoError(w.T, err)
		e.typ, e.key = m.Header.Get("ce-type"), addr.Key
		if len(raw) > 0 {
			require.NoError(w.T, json.Unmarshal(raw, &e.data))
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.Time.Compare(b.Time) })
	return all
}

// ends are the events with which an attempt may end.
var ends = []string{task.EventSucceeded, task.EventFailed, task.EventRetrying, task.EventCanceled, task.EventSnoozed, task.EventReset}

// check holds the event log against the limits, with nothing else believed: how many ran at a time by the times of the stream that the events carry, and that each attempt that
// was started ended once, with one outcome.
func (w *world) check(most int, perRepo map[string]int, perType map[string]int) {
	w.T.Helper()
	running := map[string]event{}
	ended := map[string]string{}
	var log []event
	w.Eventually("each attempt has its end in the log", func() bool { // events follow their value
		log = w.log()
		begun := 0
		for _, e := range log {
			switch {
			case e.typ == task.EventStarted:
				begun++
			case e.data.AttemptID != "" && slices.Contains(ends, e.typ):
				begun--
			}
		}
		return begun == 0
	})
	for _, e := range log {
		switch e.typ {
		case task.EventStarted:
			_, twice := running[e.key]
			require.False(w.T, twice, "%s was started while it ran", e.key)
			running[e.key] = e
			repos, types := map[string]int{}, map[string]int{}
			for key, r := range running {
				_, repo, _ := split(key)
				repos[repo]++
				types[r.data.Type]++
			}
			require.LessOrEqual(w.T, len(running), most, "too many at %s", e.Time)
			for repo, n := range repos {
				require.LessOrEqual(w.T, n, max(perRepo[repo], 1), "too many of %s", repo)
			}
			for typ, n := range types {
				if limit := perType[typ]; limit > 0 {
					require.LessOrEqual(w.T, n, limit, "too many of type %s", typ)
				}
			}
		default:
			id := e.data.AttemptID
			if !slices.Contains(ends, e.typ) {
				continue
			}
			if id == "" {
				continue // it was queued
			}
			require.Empty(w.T, ended[e.key+"/"+id], "attempt %s of %s ended twice", id, e.key) // by what it names, whatever runs now
			ended[e.key+"/"+id] = e.typ
			require.Equal(w.T, id, running[e.key].data.AttemptID, "of %s another attempt runs", e.key)
			delete(running, e.key)
		}
	}
	require.Empty(w.T, running, "attempts that have no end")
	require.NotEmpty(w.T, ended)
}
