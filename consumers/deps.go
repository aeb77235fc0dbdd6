package consumers

// What all consumers share. Package server fills in Deps once (connection, appender, commands, machines, log, hooks), and each consumer embeds it. Its methods are the steps that
// several of them need: opening a durable consumer (Consumer), running something for every machine (EachMachine) or restarting it with backoff (Keep), reading a stored value
// (Value).

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Tracer starts a span below a W3C traceparent and returns the traceparent of the span and what ends it.
type Tracer func(name, parent string, attributes ...string) (traceparent string, end func(error))

// ErrCutOff is the cause of the end of what a node does when others may have been given that: the node was frozen, or did not reach them.
var ErrCutOff = errors.New("the node was cut off")

// Deps is what every consumer needs.
type Deps struct {
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Appender *publish.Appender
	Commands *publish.Commands
	Machines *registry.Registry
	Log      *slog.Logger
	Meter    Meter  // nil measures nothing
	Trace    Tracer // nil traces nothing

	// Acking is held while a command is acked whose entity was written before (see [embedded.Server.Acking]); nil needs nothing.
	Acking sync.Locker

	// EndAtStart is where a stream ended when its server started, if that is known (see [embedded.Server.EndAtStart]); nil knows of none.
	EndAtStart func(stream string) (uint64, bool)

	// Lacks reports that a stream certainly holds no message under a subject, without a question to the stream (see [embedded.Server.Lacks]); false says nothing, as does nil.
	Lacks func(stream, subject string) bool

	// Replicated says that the streams have replicas. Then consumers of work queues are kept on disk: of a group in memory
	// everybody begins with an empty log, and without all of its members it elects no leader.
	Replicated bool

	Turn chan struct{} // that of the process, but for tests, which have several
}

// Marked is the mark of an entity as far as it tells what COMMANDS has. Where the stream ended before it when its server started, and the value had been stored by then, a power loss has cost COMMANDS what
// came behind: commands with such sequences are later ones. Those up to the end are of then.
func (d *Deps) Marked(bucket string, revision, mark uint64) uint64 {
	if d.EndAtStart == nil {
		return mark
	}
	commands, known := d.EndAtStart(d.Names.Stream(streams.CommandStream))
	values, stored := d.EndAtStart(streams.BucketStream(bucket))
	if known && stored && revision <= values {
		return min(mark, commands)
	}
	return mark
}

// WithDefaults fills in what nobody has set.
func (d Deps) WithDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Meter == nil {
		d.Meter = NoMeter{}
	}
	if d.Acking == nil {
		d.Acking = unlocked{}
	}
	if d.Lacks == nil {
		d.Lacks = func(string, string) bool { return false }
	}
	if d.Turn == nil {
		d.Turn = turn
	}
	if d.Trace == nil {
		d.Trace = func(_, parent string, _ ...string) (string, func(error)) { return parent, func(error) {} }
	}
	return d
}

// DeadLetters is the stream of what was given up.
func (d *Deps) DeadLetters() publish.DeadLetters {
	return publish.DeadLetters{JS: d.JS, Names: d.Names, Appender: d.Appender}
}

// StopPulling ends a pull, and makes sure that the server knows: who takes the consumer next should be alone.
func (d *Deps) StopPulling(ctx context.Context, cc jetstream.ConsumeContext) {
	cc.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	select {
	case <-cc.Closed():
		_ = d.NC.FlushWithContext(ctx) // without a connection there is nothing to end
	case <-ctx.Done():
	}
}

// Bury makes a dead letter of what a stream will never take, so that its entity does not wait for it for ever: the deadline of its state ends that.
func (d *Deps) Bury(ctx context.Context, consumer string, m *nats.Msg, why error) error {
	addr, _ := d.Names.ParseEffect(m.Subject) // a timer stays "unknown"
	dead := d.DeadLetters().Message(publish.DeadLetter{
		Consumer: consumer, Machine: addr.Machine, Key: addr.Key, Subject: m.Subject, Reason: Clip(why.Error(), MaxReason), Tries: 1, Header: m.Header, Body: m.Data,
	}, "dead/"+consumer+"/"+streams.Header(m.Header, streams.HeaderID)+m.Subject)
	if r := d.Appender.Append(ctx, []publish.Write{{Stream: d.Names.Stream(streams.DeadStream), Msg: dead}})[0]; r.Err != nil {
		return fmt.Errorf("cannot keep what %s refuses as a dead letter: %w", m.Subject, r.Err)
	}
	d.Log.Error("a message was rejected permanently; moving it to the dead letters", "subject", m.Subject, "error", why)
	d.Meter.DeadLetter(consumer)
	return nil
}

// InParallel does something for each of a list, up to 64 at a time. An error ends what is under way, and no more is begun: all of it would be done again.
func InParallel[T any](ctx context.Context, list []T, do func(context.Context, T) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	gate := make(chan struct{}, 64)
	for _, of := range list {
		gate <- struct{}{}
		if inner.Err() != nil {
			break
		}
		all.Go(func() {
			if err := do(inner, of); err != nil {
				cancel(err) // the first one counts
			}
			<-gate
		})
	}
	all.Wait()
	return context.Cause(inner)
}

type unlocked struct{}

func (unlocked) Lock()   {}
func (unlocked) Unlock() {}

// patience is how long a leader is asked patiently: an election, or a peak of load.
const patience = 10 * time.Second

// Patiently asks, by package jetstream, for what may be asked for twice: what is on its way when a leader dies is not answered, however long it is waited for. So it is asked again
// after [streams.ReadWithin], and then after twice as long each time, as a leader that is slow has more to answer with each; it fails after ten seconds.
func Patiently(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for within := streams.ReadWithin; ; within *= 2 {
		once, cancel := context.WithTimeout(ctx, within)
		err := ask(once)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// Consumer looks a consumer of a work queue up, and makes it when it is not there or not as it should be. Looking asks its
// own leader; making one asks that of the cluster, which may be away for seconds when a node has died.
//
// On a single server its state is in memory: the stream itself shows what is acked, as that is gone from a work queue. A stored state would cost a file written and renamed ten times a
// second for each of them, and be no truer.
func (d *Deps) Consumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if d.Replicated { // its leader may just have died
		if err := streams.ConsumerLed(ctx, d.NC, stream, want.Durable); err != nil {
			return nil, err
		}
	}
	var cons jetstream.Consumer
	err := Patiently(ctx, func(ctx context.Context) (err error) {
		cons, err = d.JS.Consumer(ctx, stream, want.Durable)
		return err
	})
	if err == nil {
		have := cons.CachedInfo().Config
		if have.MemoryStorage != want.MemoryStorage { // that cannot be changed; what is not acked stays in the stream
			if err := d.JS.DeleteConsumer(ctx, stream, want.Durable); err != nil {
				return nil, err
			}
		} else if have.FilterSubject == want.FilterSubject && have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending && have.Description == want.Description {
			return cons, nil
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	return d.JS.CreateOrUpdateConsumer(ctx, stream, want)
}

// EachMachine runs serve for every machine, those that are there and those that are added meanwhile, until ctx ends and all of them have
// ended. The first error ends the others, and is returned.
func (d *Deps) EachMachine(ctx context.Context, serve func(context.Context, *machines.Machine) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	stop := d.Machines.OnAdd(func(m *machines.Machine) {
		all.Go(func() {
			if err := serve(ctx, m); err != nil {
				cancel(&serveError{err})
			}
		})
	})
	<-ctx.Done()
	stop()
	all.Wait()
	var failed *serveError
	if errors.As(context.Cause(ctx), &failed) {
		return failed.error
	}
	return nil
}

// serveError distinguishes the failure of one machine from other reasons for the end of the context.
type serveError struct{ error }

// Keep runs serve again and again until ctx ends, with back-off while it fails soon.
func (d *Deps) Keep(ctx context.Context, name string, serve func(context.Context) error) {
	for try := 0; ctx.Err() == nil; try++ {
		started := time.Now()
		err := serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > 10*time.Second {
			try = 0
		}
		d.Meter.Restarted(name)
		d.Log.Error("a consumer stopped; restarting it", "consumer", name, "error", err)
		if !wait.Backoff(ctx, try) {
			return
		}
	}
}

// WhenGone sends to broken when a pull finds that its consumer, or its server, has gone.
func WhenGone(broken chan<- error) jetstream.PullConsumeOpt {
	return jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			select {
			case broken <- err:
			default:
			}
		}
	})
}

// Value reads the value of an entity from the leader of its bucket. It is nil when the leader has none, absent when it was deleted, and an error of
// [streams.ErrUnreadable] when it has one that it cannot read.
func (d *Deps) Value(ctx context.Context, m *machines.Machine, key string) (*streams.Message, error) {
	stored, err := kv.Read(ctx, d.NC, d.Names.Bucket(m.Plural), key)
	if err != nil {
		return nil, fmt.Errorf("cannot load %s %s: %w", m.Name, key, err)
	}
	return stored, nil
}

// turn is that of the process. It is taken before a command or a task is begun with which several processes have died: one of them is begun at a time, so that a crash is not
// counted against others that were under way beside it.
var turn = make(chan struct{}, 1)
