// Package operator is somebody who works on a simulated installation with what the product and the nats CLI give him. What he is asked for ([Operator.Ask]) he does one after the other,
// each until it succeeds, on a connection of his own.
package operator

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Options are what he works with.
type Options struct {
	Connect streams.ConnectOptions
	Sync    func(stream string, done func(error)) // see [publish.AppenderOptions]
	Note    func(format string, args ...any)      // of what he has done, or could not do
	Over    func() bool                           // he gives up
}

// Operator is he.
type Operator struct {
	Left int  // tasks that are not done
	Done bool // he has gone

	o     Options
	tasks chan task

	nc       *nats.Conn
	js       jetstream.JetStream
	appender *publish.Appender
	commands *publish.Commands
	letters  publish.DeadLetters
}

type task struct {
	name string
	most time.Duration // of one try
	do   func(ctx context.Context) error
}

// New is one who has nothing to do yet.
func New(o Options) *Operator { return &Operator{o: o, tasks: make(chan task, 256)} }

// Ask gives him something to do.
func (o *Operator) Ask(name string, do func(ctx context.Context) error) {
	o.ask(name, 5*time.Second, do)
}

func (o *Operator) ask(name string, most time.Duration, do func(ctx context.Context) error) {
	o.Left++
	o.tasks <- task{name, most, do}
}

// End lets him go when he has done everything.
func (o *Operator) End() { close(o.tasks) }

// Run does what he is asked for, until End.
func (o *Operator) Run() (err error) {
	defer func() { o.Done = true }()
	if o.nc, err = streams.Connect(o.o.Connect); err != nil {
		return err
	}
	defer o.nc.Close()
	if o.js, err = streams.JetStream(o.nc); err != nil {
		return err
	}
	if o.appender, err = publish.NewAppender(o.nc, publish.AppenderOptions{Timeout: 3 * time.Second, Sync: o.o.Sync}); err != nil {
		return err
	}
	defer o.appender.Close()
	if o.commands, err = publish.NewCommands(o.appender); err != nil {
		return err
	}
	defer o.commands.Close()
	o.letters = publish.DeadLetters{JS: o.js, Appender: o.appender}
	for t := range o.tasks {
		o.attempt(t)
		o.Left--
	}
	return nil
}

func (o *Operator) attempt(t task) {
	for !o.o.Over() {
		ctx, cancel := context.WithTimeout(context.Background(), t.most)
		err := t.do(ctx)
		cancel()
		if err == nil {
			o.o.Note("has done: %s", t.name)
			return
		}
		o.o.Note("cannot yet: %s: %v", t.name, err)
		time.Sleep(500 * time.Millisecond)
	}
}

// Pause pauses a consumer until a time, if it is there.
func (o *Operator) Pause(stream, name string, until time.Time) {
	o.Ask("pause "+name, func(ctx context.Context) error {
		_, err := o.js.PauseConsumer(ctx, stream, name, until)
		return unless(err, jetstream.ErrConsumerNotFound)
	})
}

// Resume resumes one.
func (o *Operator) Resume(stream, name string) {
	o.Ask("resume "+name, func(ctx context.Context) error {
		_, err := o.js.ResumeConsumer(ctx, stream, name)
		return unless(err, jetstream.ErrConsumerNotFound)
	})
}

// Redrive puts all dead letters back.
func (o *Operator) Redrive() {
	o.Ask("redrive", func(ctx context.Context) error {
		list, err := o.letters.List(ctx, 0, 100)
		if err != nil {
			return err
		}
		for _, l := range list {
			if err := unless(o.letters.Redrive(ctx, l.Seq), publish.ErrNoLetter, streams.ErrSubject); err != nil {
				return err
			}
			o.o.Note("has put back dead letter %d: %s", l.Seq, l.Subject)
		}
		return nil
	})
}

// Drop has the value of an entity dropped, if it has ended long enough ago.
func (o *Operator) Drop(machine, key, id string) {
	cmd := publish.Command{Machine: machine, Key: key, Name: machines.CommandDrop, Actor: "operator", ID: streams.MadeUpID(id)}
	o.Ask("drop "+machine+" "+key, func(ctx context.Context) error {
		_, err := o.commands.Send(ctx, cmd)
		if publish.Permanent(err) {
			return nil
		}
		return err
	})
}

// Purge takes everything under a filter out of a stream. Before and after are called around each try, and when it has succeeded.
func (o *Operator) Purge(stream, filter string, before, after func()) {
	o.Ask("purge "+filter, func(ctx context.Context) error {
		before()
		err := streams.Purge(ctx, o.nc, stream, filter, 1<<40)
		if err == nil {
			after()
		}
		return err
	})
}

func unless(err error, fine ...error) error {
	for _, f := range fine {
		if errors.Is(err, f) {
			return nil
		}
	}
	return err
}
