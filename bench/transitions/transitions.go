package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// world is a server with its streams in a directory of its own.
type world struct {
	dir       string
	temporary bool
	server    *embedded.Server
	nc        *nats.Conn
	js        jetstream.JetStream
	appender  *publish.Appender
	commands  *publish.Commands
	machines  *registry.Registry
	indexes   *index.Map
	clients   []*nats.Conn // over TCP, as real ones
}

func newWorld(ctx context.Context, profile embedded.Profile) (*world, error) {
	dir, err := os.MkdirTemp("", "instar-bench-")
	if err != nil {
		return nil, err
	}
	w, err := worldIn(ctx, dir, profile)
	if err != nil {
		return nil, err
	}
	w.temporary = true
	return w, nil
}

func worldIn(ctx context.Context, dir string, profile embedded.Profile) (w *world, err error) {
	w = &world{dir: dir}
	if w.machines, err = registry.New(all.Machines()...); err != nil {
		return nil, err
	}
	if w.server, err = embedded.Start(embedded.Options{Dir: w.dir, Listen: "127.0.0.1:0", Open: true, Profile: profile}); err != nil {
		return nil, err
	}
	if w.nc, err = streams.Connect(streams.ConnectOptions{Server: w.server, Name: "bench"}); err != nil {
		return nil, err
	}
	if w.js, err = streams.JetStream(w.nc); err != nil {
		return nil, err
	}
	if w.appender, err = publish.NewAppender(w.nc, publish.AppenderOptions{Group: profile == embedded.Fsync && w.server.Syncer() == nil, Sync: w.server.Syncer(), Timeout: 30 * time.Second}); err != nil {
		return nil, err
	}
	if w.commands, err = publish.NewCommands(w.appender); err != nil {
		return nil, err
	}
	plan := streams.Plan{}
	for _, m := range all.Machines() {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
	}
	if _, err = streams.Ensure(ctx, w.js, plan); err != nil {
		return nil, err
	}
	w.indexes = &index.Map{}
	for _, m := range all.Machines() {
		w.indexes.Set(m.Name, index.New(w.js, m.Plural, func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{}))
	}
	for range 8 {
		c, err := nats.Connect(w.server.ClientURL())
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

func (w *world) close() error {
	for _, c := range w.clients {
		c.Close()
	}
	w.commands.Close()
	w.appender.Close()
	w.nc.Close()
	err := w.server.Shutdown(context.Background())
	if w.temporary {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// all runs every part that is wanted.
func (o *options) all(ctx context.Context) error {
	for _, profile := range o.profiles {
		fmt.Printf("\nprofile %s: survives %s\n", profile, profile.Survives())
		var raw, mine figures
		if o.wants("raw") {
			if err := o.part(ctx, "raw ceiling", profile, &raw, (*options).raw); err != nil {
				return err
			}
		}
		if o.wants("publish") {
			var published figures
			if err := o.part(ctx, "NATS publish", profile, &published, (*options).overNATS); err != nil {
				return err
			}
		}
		if o.wants("micro") {
			if err := o.part(ctx, "NATS request", profile, &mine, (*options).overMicro); err != nil {
				return err
			}
		}
		if o.wants("http") {
			var last figures
			if err := o.part(ctx, "HTTP request", profile, &last, (*options).overHTTP); err != nil {
				return err
			}
		}
		if raw.done > 0 && mine.done > 0 {
			fmt.Printf("  ratio: %.0f %% of the raw ceiling at %d clients\n", 100*mine.rate()/raw.rate(), mine.clients)
		}
	}
	if o.million > 0 && o.wants("million") {
		return o.millionEntities(ctx)
	}
	return nil
}

// part runs one way of asking with each number of clients and keeps the figures of the last.
func (o *options) part(ctx context.Context, name string, profile embedded.Profile, last *figures, run func(*options, context.Context, *world, int) (figures, error)) error {
	for _, clients := range o.clients {
		w, err := newWorld(ctx, profile)
		if err != nil {
			return err
		}
		f, err := run(o, ctx, w, clients)
		if err == nil && o.heap != "" {
			err = inUse(o.heap)
		}
		if err := errors.Join(err, w.close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("  %-14s %s\n", name, f)
		*last = f
	}
	return nil
}

// inUse writes what the process has in use after a collection; its servers still run.
func inUse(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

func key(n int) string { return fmt.Sprintf("default.svc-%d", n) }

var createBody = []byte(`{"spec":{"image":"hello","env":{"GREETING":"hello"},"port":8080},"labels":{"team":"a"}}`)

// labelBodies are made beforehand: what the load generator costs is measured, too.
var labelBodies = func() (bodies [10][]byte) {
	for n := range bodies {
		b, err := json.Marshal(service.LabelBody{Labels: map[string]string{"team": fmt.Sprint(n)}})
		if err != nil {
			panic(err)
		}
		bodies[n] = b
	}
	return bodies
}()

func labelBody(n int) []byte { return labelBodies[n%len(labelBodies)] }

// engine runs one, as the program does, with the indexes of all machines, until the returned function is called.
func (w *world) engine(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, m := range all.Machines() {
		running.Go(func() { _ = w.indexes.Get(m.Name).Run(ctx) })
	}
	e := &engine.Engine{Indexes: w.indexes, Deps: consumers.Deps{
		NC: w.nc, JS: w.js, Appender: w.appender, Commands: w.commands, Machines: w.machines,
		Acking: w.server.Acking(), EndAtStart: w.server.EndAtStart, Lacks: w.server.Lacks,
	}}
	running.Go(func() { _ = e.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// overNATS measures acknowledged durable transitions, asked for by NATS clients over TCP that publish commands and
// name a subject for the answer.
func (o *options) overNATS(ctx context.Context, w *world, clients int) (figures, error) {
	defer w.engine(ctx)()
	if err := o.create(ctx, w); err != nil {
		return figures{}, err
	}
	askers, err := newAskers(w, clients)
	if err != nil {
		return figures{}, err
	}
	subjects := make([]string, o.entities)
	for i := range subjects {
		subjects[i] = streams.Names{}.Command("service", key(i), "label")
	}
	return closed(ctx, clients, o.duration, func(ctx context.Context, c, n int) error {
		e := (c + n*clients) % o.entities
		raw, err := askers[c].ask(subjects[e], labelBody(n), streams.CommandID("service", key(e), fmt.Sprintf("b-%d-%d", c, n)))
		if err != nil {
			return err
		}
		return applied(raw)
	})
}

// create brings the entities into the world, 256 at a time.
func (o *options) create(ctx context.Context, w *world) error {
	gate := make(chan struct{}, 256)
	errs := make(chan error, 1)
	var all sync.WaitGroup
	for i := range o.entities {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := w.commands.Ask(ctx, publish.Command{Machine: "service", Key: key(i), Name: "create", Body: createBody}); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return fmt.Errorf("cannot create the entities: %w", err)
	default:
		return nil
	}
}

// asker is one NATS client of the closed loop: its answers come over one subscription for its whole life, as with
// nats.go's own requests.
type asker struct {
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription
	reply chan []byte
}

func newAsker(nc *nats.Conn) (*asker, error) {
	a := &asker{nc: nc, inbox: nc.NewInbox(), reply: make(chan []byte, 1)}
	var err error
	a.sub, err = nc.Subscribe(a.inbox, func(m *nats.Msg) { a.reply <- m.Data })
	return a, err
}

func (a *asker) ask(subject string, body []byte, id string) ([]byte, error) {
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{streams.HeaderReply: {a.inbox}, streams.HeaderID: {id}}}
	if err := a.nc.PublishMsg(m); err != nil {
		return nil, err
	}
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	select {
	case b := <-a.reply:
		return b, nil
	case <-late.C:
		return nil, errors.New("no answer within 30 s")
	}
}

func newAskers(w *world, n int) ([]*asker, error) {
	askers := make([]*asker, n)
	for i := range askers {
		a, err := newAsker(w.clients[i%len(w.clients)])
		if err != nil {
			return nil, err
		}
		askers[i] = a
	}
	return askers, nil
}
