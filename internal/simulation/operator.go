package simulation

// The operator works on the installation while it runs, with what the product and the nats CLI give him: he cordons and drains nodes, pauses consumers, puts dead letters back, has the
// values of ended entities dropped, and purges. What he is to do is among the faults (faults.go); he does one thing after the other, until each is done.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// acts are what the operator may be asked for, with weights as those of kinds.
var acts = []kind{
	{"cordon", 2, nil, keepNode(cluster.NodeCordoned)},
	{"drain", 2, nil, keepNode(cluster.NodeDraining)},
	{"pause", 3, nil, pauseConsumer},
	{"redrive", 2, nil, redrive},
	{"drop", 2, func(o Options) bool { return o.Drops }, dropEnded},
	{"purge", 1, nil, purge},
}

// operator is somebody with access to everything.
type operator struct {
	w     *World
	tasks chan task
	left  int // tasks that are not done
	done  bool
	paths closer

	nc       *nats.Conn
	js       jetstream.JetStream
	appender *publish.Appender
	commands *publish.Commands
}

// task is one thing to do. It is tried again until it succeeds, or nothing goes wrong any more.
type task struct {
	name string
	do   func(ctx context.Context, o *operator) error
}

func (w *World) startOperator() *operator {
	o := &operator{w: w, tasks: make(chan task, 64)}
	go func() {
		pinned.Use(nil)
		defer func() { o.done = true }()
		defer o.paths.close()
		if err := o.run(); err != nil {
			w.fail("operator", "%v", err)
		}
	}()
	return o
}

func (o *operator) run() (err error) {
	if o.nc, err = streams.Connect(o.w.dialing(nil, "operator", nil)); err != nil {
		return err
	}
	o.paths.add(o.nc.Close)
	if o.js, err = streams.JetStream(o.nc); err != nil {
		return err
	}
	if o.appender, err = publish.NewAppender(o.nc, publish.AppenderOptions{Timeout: 3 * time.Second, Sync: o.w.disk.Syncer()}); err != nil {
		return err
	}
	o.paths.add(o.appender.Close)
	if o.commands, err = publish.NewCommands(o.appender); err != nil {
		return err
	}
	o.paths.add(o.commands.Close)
	for t := range o.tasks {
		for try := 0; !o.w.over && try < 100; try++ {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := t.do(ctx, o)
			cancel()
			if err == nil {
				o.w.trace.Note("operator", "has done: %s", t.name)
				break
			}
			o.w.trace.Note("operator", "cannot yet: %s: %v", t.name, err)
			time.Sleep(500 * time.Millisecond)
		}
		o.left--
	}
	return nil
}

// asks gives the operator something to do.
func (w *World) asks(name string, do func(ctx context.Context, o *operator) error) {
	w.operator.left++
	w.operator.tasks <- task{name, do}
}

// later does something when a time is over, or when nothing goes wrong any more.
func (w *World) later(d time.Duration, do func()) {
	w.laters = append(w.laters, later{time.Now().Add(d), do})
}

type later struct {
	at time.Time
	do func()
}

// want makes a node be what the operator wants, by way of any that runs.
func (w *World) want(name string, state cluster.NodeState) {
	w.asks(fmt.Sprintf("%s is to be %s", name, state), func(ctx context.Context, _ *operator) error {
		for _, p := range w.places {
			if n := p.now; n != nil && n.self != nil {
				err := n.self.SetDesired(ctx, name, state)
				if errors.Is(err, cluster.ErrNoNode) && w.calmAt.IsZero() {
					return nil // it is gone, and nothing was wanted of it
				}
				return err
			}
		}
		return errors.New("no node runs")
	})
}

func keepNode(state cluster.NodeState) func(w *World, f Fault) {
	return func(w *World, f Fault) {
		name := w.places[f.Who%len(w.places)].name
		w.want(name, state)
		w.later(f.For, func() { w.want(name, cluster.NodeLive) })
	}
}

// pauseConsumer pauses a consumer of a stream, and resumes it before its time half of the times.
func pauseConsumer(w *World, f Fault) {
	stream := []string{streams.CommandStream, streams.EffectStream, streams.EventStream}[f.Who%3]
	all := w.server.Consumers(stream)
	if len(all) == 0 {
		return
	}
	name := all[f.Who/3%len(all)]
	until := w.serverNow().Add(f.For)
	gone := func(err error) error {
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	}
	w.asks("pause "+name, func(ctx context.Context, o *operator) error {
		_, err := o.js.PauseConsumer(ctx, stream, name, until)
		return gone(err)
	})
	if f.Lose {
		w.later(f.For/2, func() {
			w.asks("resume "+name, func(ctx context.Context, o *operator) error {
				_, err := o.js.ResumeConsumer(ctx, stream, name)
				return gone(err)
			})
		})
	}
}

// redrive puts all dead letters back.
func redrive(w *World, _ Fault) {
	w.asks("redrive", func(ctx context.Context, o *operator) error {
		letters := publish.DeadLetters{JS: o.js, Appender: o.appender}
		list, err := letters.List(ctx, 0, 100)
		if err != nil {
			return err
		}
		for _, l := range list {
			if err := letters.Redrive(ctx, l.Seq); err != nil && !errors.Is(err, publish.ErrNoLetter) && !errors.Is(err, streams.ErrSubject) {
				return err
			}
			w.trace.Note("operator", "has put back dead letter %d: %s", l.Seq, l.Subject)
		}
		return nil
	})
}

// dropAfter is how long an entity has ended whose value is dropped; 0 keeps it.
func (w *World) dropAfter(string) time.Duration {
	if w.opts.Drops {
		return 3 * time.Second
	}
	return 0
}

// dropEnded has the values dropped of what has ended.
func dropEnded(w *World, f Fault) {
	for _, m := range w.opts.Machines {
		for _, key := range w.keys[m.Name] {
			cmd := publish.Command{Machine: m.Name, Key: key, Name: machines.CommandDrop, Actor: "operator", ID: streams.MadeUpID(fmt.Sprintf("drop-%d", f.Step))}
			w.asks("drop "+m.Name+" "+key, func(ctx context.Context, o *operator) error {
				_, err := o.commands.Send(ctx, cmd)
				if publish.Permanent(err) {
					return nil
				}
				return err
			})
		}
	}
}

// purge takes out what is stored of an entity: its value, its events, its timers or its effects. Nodes are started anew afterwards, since nothing else looks at what they have in
// memory.
func purge(w *World, f Fault) {
	m := w.opts.Machines[f.Who%len(w.opts.Machines)]
	key := w.keys[m.Name][f.Who/4%len(w.keys[m.Name])]
	stream, filter := streams.BucketStream(m.Plural), streams.BucketSubject(m.Plural, key)
	switch f.Step % 4 {
	case 1:
		stream, filter = streams.EventStream, streams.Names{}.EventsOf(m.Name, key)
	case 2:
		stream, filter = streams.EffectStream, streams.Names{}.Effect(m.Name, "*", key)
	case 3:
		stream, filter = streams.CommandStream, streams.Names{}.Timer(m.Name, key, "*")
	}
	w.asks("purge "+filter, func(ctx context.Context, o *operator) error {
		w.lost = true // whatever comes of it
		x := w.entityOf(m, key)
		x.purged = x.purged || stream == streams.EventStream
		err := streams.Purge(ctx, o.nc, stream, filter, 1<<40)
		if err == nil {
			w.purged = true
		}
		return err
	})
}

// tend does for the operator what only the loop may do.
func (w *World) tend() {
	if w.purged {
		w.purged = false
		w.history.cut(w)
		for _, p := range w.places {
			if p.now != nil {
				w.crash(p.now, true)
			}
		}
	}
	for i := 0; i < len(w.laters); i++ {
		if l := w.laters[i]; !time.Now().Before(l.at) || !w.calmAt.IsZero() {
			w.laters = append(w.laters[:i:i], w.laters[i+1:]...)
			i--
			l.do()
		}
	}
}
