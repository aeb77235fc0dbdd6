package simulation

// A node is one process of the program, put together from its own parts as package server does it: connections, streams, the indexes, the cluster node, the engine, and what
// one node at a time does for all (effects, observers, views, the orchestrator of tasks). Several live in this process, on connections of their own.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/consumers/orchestrator"
	"github.com/bcc94042/instar/consumers/views"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// node is one process, from its start to its end.
type node struct {
	w     *World
	place *place
	nonce string
	held  time.Time // it is stopped until then
	log   *slog.Logger

	all  *index.Map        // its indexes, once they are made
	read []uint64          // the revision of each when it was looked at
	saw  map[string]uint64 // revisions of entities in them

	self   *cluster.Node // nil until there is one
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it runs any more

	mu   sync.Mutex
	dead bool // it cannot reach anybody any more
}

// place is where processes of one name run one after the other: a machine with a data directory.
type place struct {
	name    string
	clock   *pinned.Clock
	before  []string // nonces of the processes before, the last one first
	now     *node    // nil while none runs
	started int
	again   time.Time // when the next process is started
}

// errCut is what a process finds that was cut off.
var errCut = errors.New("this process was cut off")

// boot starts a process in a place.
func (w *World) boot(p *place) *node {
	ctx, cancel := context.WithCancel(context.Background())
	p.started++
	n := &node{w: w, place: p, nonce: fmt.Sprintf("%s-%d", p.name, p.started), cancel: cancel, done: make(chan struct{})}
	n.log = slog.New(w.trace.Handler(n.nonce))
	before := p.before
	p.before = append([]string{n.nonce}, before...)
	p.now = n
	w.processes = append(w.processes, n)
	go func() {
		defer close(n.done)
		pinned.Use(p.clock)
		defer cancel()
		if err := n.run(ctx, before); err != nil && ctx.Err() == nil {
			w.trace.Note(n.nonce, "ended: %v", err)
		}
	}()
	return n
}

// InProcessConn connects to the simulated server; it is the only way out of a process.
func (n *node) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return nil, errCut
	}
	return n.w.connect(n.nonce, n)
}

// LoopbackURL says that there is no socket.
func (n *node) LoopbackURL() string { return "" }

// Credentials says that everybody may connect.
func (n *node) Credentials() (user, password string) { return "", "" }

// closer undoes things in reverse.
type closer []func()

func (c *closer) add(f func()) { *c = append(*c, f) }

func (c *closer) close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
}

// run is the process: what package server's app does between its start and its stop.
func (n *node) run(ctx context.Context, before []string) error {
	var stop closer
	defer stop.close()
	nc, js, err := n.connect("engine", &stop)
	if err != nil {
		return err
	}
	appender, commands, err := n.writers(nc, &stop)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := streams.Ensure(ready, js, n.w.plan); err != nil {
		return err
	}
	ms, err := registry.New(n.w.opts.Machines...)
	if err != nil {
		return err
	}
	deps := consumers.Deps{NC: nc, JS: js, Appender: appender, Commands: commands, Machines: ms, Log: n.log, Acking: n.w.disk.Acking(), Turn: make(chan struct{}, 1)}
	if deps.Replicated, err = streams.Replicated(ctx, js, deps.Names); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	goes := func(what string, f func(context.Context) error) {
		all.Go(func() {
			if err := f(ctx); ctx.Err() == nil {
				end(fmt.Errorf("%s ended: %w", what, err))
			}
		})
	}
	indexes, err := n.indexes(goes, &stop)
	if err != nil {
		return err
	}
	member, err := n.member(before, &stop)
	if err != nil {
		return err
	}
	n.self = member
	eng := &engine.Engine{Deps: deps, Node: member, Indexes: indexes, DropAfter: n.w.dropAfter}
	goes("the engine", eng.Run)
	role := func(name string, parts ...func(context.Context) error) {
		goes(name, func(ctx context.Context) error {
			r := &cluster.Role{JS: js, Names: deps.Names, Name: name, Node: n.place.name, Log: n.log, Eligible: member.Eligible}
			return r.Run(ctx, func(ctx context.Context) error { return together(ctx, parts) })
		})
	}
	role("gateway", func(ctx context.Context) error {
		return deps.EachMachine(ctx, func(ctx context.Context, m *machines.Machine) error {
			return (&observer.Observer{Deps: deps, Machine: m, Looker: n.w.outside.Looker(m), Index: indexes.Get(m.Name)}).Run(ctx)
		})
	}, (&effects.Workers{Deps: deps, Performer: func(machine string) effects.Performer { return n.w.outside.Provider(n.nonce, machine) }, Concurrency: 4}).Run)
	role("views", (&views.Views{Deps: deps}).Run)
	if n.w.opts.Tasks {
		role("orchestrator", (&orchestrator.Orchestrator{
			Deps: deps, Tasks: indexes.Get(task.Machine.Name), Repositories: indexes.Get(repository.Machine.Name), Queues: indexes.Get(queue.Machine.Name), Replicas: n.w.opts.Replicas,
		}).Run)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// together runs all parts until ctx ends; the first error ends the others.
func together(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() {
			if err := p(ctx); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (n *node) connect(name string, stop *closer) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := streams.Connect(n.w.dialing(n, name, n.log))
	if err != nil {
		return nil, nil, err
	}
	stop.add(nc.Close)
	js, err := streams.JetStream(nc)
	return nc, js, err
}

func (n *node) writers(nc *nats.Conn, stop *closer) (*publish.Appender, *publish.Commands, error) {
	appender, err := publish.NewAppender(nc, n.w.writes())
	if err != nil {
		return nil, nil, err
	}
	stop.add(appender.Close)
	commands, err := publish.NewCommands(appender)
	if err != nil {
		return nil, nil, err
	}
	if n.w.opts.Attached {
		commands.Again = 1500 * time.Millisecond
	}
	stop.add(commands.Close)
	return appender, commands, nil
}

// indexes are those of all machines, on a connection of their own.
func (n *node) indexes(goes func(string, func(context.Context) error), stop *closer) (*index.Map, error) {
	_, js, err := n.connect("index", stop)
	if err != nil {
		return nil, err
	}
	all := &index.Map{}
	n.read, n.saw = make([]uint64, len(n.w.opts.Machines)), map[string]uint64{}
	for _, m := range n.w.opts.Machines {
		ix := index.New(js, m.Plural, describes(m), index.Options{
			Log: n.log, EndedFor: time.Hour, Ended: func(state string) bool { s, ok := m.State(state); return ok && s.Terminal },
		})
		all.Set(m.Name, ix)
		goes("index of "+m.Plural, ix.Run)
	}
	n.all = all
	return all, nil
}

// describes reads the values of a machine for its index, those that the orchestrator follows with their data.
func describes(m *machines.Machine) func(key string, value []byte) (index.Meta, error) {
	read := map[string]func(string, []byte) (any, error){task.Machine.Name: orchestrator.TaskValue, repository.Machine.Name: orchestrator.RepositoryValue, queue.Machine.Name: orchestrator.QueueValue}[m.Name]
	return func(key string, value []byte) (index.Meta, error) {
		meta, err := index.DescribeJSON(value)
		if err == nil && read != nil {
			meta.Value, err = read(key, value)
		}
		return meta, err
	}
}

// member is the node among those that share the work, on a connection of its own.
func (n *node) member(before []string, stop *closer) (*cluster.Node, error) {
	nc, js, err := n.connect("node", stop)
	if err != nil {
		return nil, err
	}
	appender, _, err := n.writers(nc, stop)
	if err != nil {
		return nil, err
	}
	m := &cluster.Node{JS: js, Appender: appender, Name: n.place.name, Nonce: n.nonce, Before: before, Log: n.log}
	if !n.w.opts.Attached {
		m.Life = 15 * time.Second
	}
	return m, nil
}
