package effects

// From a task to the command that reports its result. pulls (deliveries.go) brings the tasks of one kind from stream EFFECTS, and task takes each to its end: it reads whether the entity still
// waits for this attempt (wanted), calls the provider within the timeout of the effect (perform), sends the result as a command (report), and acks the task when that is stored.
// A task that cannot be handled becomes a dead letter (bury); after an error it stays unacked, and is delivered again.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Performer carries out in the outside world what a task says. It is idempotent, and refuses a task whose fence is older than one
// that it has seen. It returns when ctx ends.
type Performer interface {
	Perform(ctx context.Context, t machines.Task) machines.Result
}

// Workers perform the effects of all machines: one durable consumer per kind, each with its own concurrency. Every
// delivery ends in a command, and is acked after the command is stored; a provider's failure is a command, too, and the
// wait before the next try is a timer of the machine, so nothing waits inside the consumer. A task whose entity has a value that
// nobody can read, and one that cannot be read itself, goes to the dead letters within seconds, and redrive puts it back. So does
// one whose provider ends the process again and again, with all others of that process meanwhile done one at a time.
type Workers struct {
	consumers.Deps
	Performer   func(machine string) Performer // is asked when the workers of a machine start; nil is an error where it has effects
	Concurrency int                            // tasks of one kind at a time; 0 is 16
	AckWait     time.Duration                  // until an unfinished task comes again; 0 is 30 s
	Routes      func(machine string) Routes    // is asked likewise, for queues that its effects have by their data; nil has none

	// Serves says of which machines, where that is not of all: nil.
	Serves func(machine string) bool

	// Bounds is asked likewise for how many tasks of an effect this process has under way at a time, by the name of the effect. It takes no more than it can begin, and leaves the rest to
	// others. Nil, and what it does not name, is as many as all processes may have together.
	Bounds func(machine string) map[string]int

	// Takes says whether tasks of the effects that Bounds names are taken: those under way go on where not. The channel is closed when that may have changed; nil always takes them.
	Takes func() (bool, <-chan struct{})

	process string        // distinguishes this process from earlier ones
	queue   chan struct{} // taken by the suspected task that waits for the turn, or has it
}

// ByMachine are performers by the name of their machine: its Of is [Workers.Performer].
type ByMachine map[string]Performer

// Of is the performer of a machine; nil when there is none.
func (p ByMachine) Of(machine string) Performer { return p[machine] }

// External is the performer of a machine whose tasks others take: their consumers are made and kept, and nothing is taken from them.
var External Performer = external{}

type external struct{}

func (external) Perform(context.Context, machines.Task) machines.Result { panic("it takes no tasks") }

// Run performs effects until ctx ends, also those of machines that are added meanwhile; then it waits for the tasks under way.
func (w *Workers) Run(ctx context.Context) error {
	w.Deps = w.WithDefaults()
	w.Concurrency, w.AckWait = cmp.Or(w.Concurrency, 16), cmp.Or(w.AckWait, 30*time.Second)
	w.process, w.queue = cmp.Or(w.process, rand.Text()), make(chan struct{}, 1)
	return w.EachMachine(ctx, w.serve)
}

// serve performs the effects of one machine.
func (w *Workers) serve(ctx context.Context, m *machines.Machine) error {
	if len(m.Effects) == 0 || w.Serves != nil && !w.Serves(m.Name) {
		return nil
	}
	performer := w.Performer(m.Name)
	if performer == nil {
		return fmt.Errorf("consumers: nobody performs effect %s of %s", m.Effects[0].Name, m.Name)
	}
	var bounds map[string]int
	if w.Bounds != nil {
		bounds = w.Bounds(m.Name)
	}
	var all sync.WaitGroup
	for _, fx := range m.Effects {
		k := &kind{w: w, m: m, fx: fx, performer: performer, name: streams.WorkerName(m.Name, fx.Name), filter: w.Names.Effects(m.Name, fx.Name), most: cmp.Or(fx.Parallel, w.Concurrency)}
		k.here, k.bounded = min(cmp.Or(bounds[fx.Name], k.most), k.most), bounds[fx.Name] > 0
		if fx.Routed && w.Routes != nil {
			if routes := w.Routes(m.Name); routes != nil {
				all.Go(func() {
					w.Keep(ctx, k.name+" by route", func(ctx context.Context) error { return k.lendRoutes(ctx, routes) })
				})
			}
		}
		if performer == External {
			all.Go(func() { w.Keep(ctx, k.name, k.lend) })
			continue
		}
		all.Go(func() { k.run(ctx) })
	}
	all.Wait()
	return nil
}

// kind is one effect of one machine.
type kind struct {
	w         *Workers
	m         *machines.Machine
	fx        machines.EffectInfo
	performer Performer
	name      string        // of the consumer
	filter    string        // of its subjects
	most      int           // tasks at a time, of all processes together
	here      int           // of those, how many of this process
	bounded   bool          // this process has a bound of its own
	idle      time.Duration // after which the server removes the consumer; 0 is never

	gate  chan struct{} // one token per task under way
	tasks sync.WaitGroup
	mu    sync.Mutex
	ended bool // no task starts any more
	held  map[message]bool
	under map[string]*performing

	stored map[string]time.Time // attempts whose results were stored lately
	order  []string             // of these, as they were stored

	looked bool         // found is known
	found  uint64       // the last task that was there before this process
	early  atomic.Int64 // of those, how many have come for the first time
}

// end waits for the tasks under way.
func (k *kind) end() {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	k.tasks.Wait()
}

func (k *kind) run(ctx context.Context) {
	k.gate, k.held, k.under = make(chan struct{}, k.here), map[message]bool{}, map[string]*performing{}
	defer k.end()
	k.w.Keep(ctx, k.name, k.pulls)
}

// task takes one delivery to its end. An error leaves it unacked.
func (k *kind) task(ctx context.Context, m jetstream.Msg) error {
	var t machines.Task
	if err := json.Unmarshal(m.Data(), &t); err != nil || t.Effect != k.fx.Name || t.Machine != k.m.Name {
		return k.bury(ctx, m, fmt.Sprintf("the effect is not a task of %s.%s: %v", k.m.Name, k.fx.Name, err))
	}
	if _, _, _, err := streams.SplitKey(t.Key()); err != nil {
		return k.bury(ctx, m, err.Error())
	}
	defer k.underWay(m)()
	wanted, err := k.wanted(ctx, &t)
	for try := 1; unreadable(err) && try < maxReads; try++ {
		if !wait.For(ctx, 100*time.Millisecond<<(try-1)) {
			return ctx.Err()
		}
		wanted, err = k.wanted(ctx, &t)
	}
	if unreadable(err) { // somebody must repair the value, and then redrive the task; those behind it should not wait for that
		return k.bury(ctx, m, err.Error())
	}
	if err != nil {
		return err
	}
	if !wanted {
		return k.unwanted(ctx, m)
	}
	if moved, err := k.move(ctx, m, &t); moved || err != nil {
		return err
	}
	survived, why, err := k.examine(ctx, m, &t)
	if errors.Is(err, errUnwanted) {
		return k.unwanted(ctx, m)
	}
	if err != nil {
		return err
	}
	if why != "" {
		if err := k.bury(ctx, m, why); err != nil {
			return err
		}
		return survived()
	}
	trace, end := k.w.Trace("effect "+k.m.Name+"."+k.fx.Name, streams.Header(m.Headers(), streams.HeaderTrace), "instar.machine", k.m.Name, "instar.effect", k.fx.Name)
	var result machines.Result
	var left error
	mine, performed, leave, err := k.supersede(ctx, &t)
	if err == nil {
		defer leave() // when its result is stored: until then the entity waits for the attempt, also for one that was sent twice
		result, left = k.perform(mine, t)
		err = performed()
	}
	if err := cmp.Or(survived(), ctx.Err()); err != nil {
		err = errors.Join(err, left) // with what still runs
		end(err)
		return err // it comes again, as when this process is stopping
	}
	if errors.Is(err, errUnwanted) {
		end(nil)
		return k.unwanted(ctx, m)
	}
	if errors.Is(err, errTwice) {
		end(nil)
		return m.NakWithDelay(againAfter)
	}
	if err != nil {
		end(err)
		return err
	}
	failpoint.Hit("effect-before-result")
	cmd, err := k.report(&t, result, trace)
	if err == nil {
		_, err = k.w.Commands.Send(ctx, cmd)
	}
	end(err)
	if publish.Permanent(err) {
		return k.bury(ctx, m, fmt.Sprintf("no stream takes the result: %v", err))
	}
	if err != nil {
		return fmt.Errorf("cannot send the result of %s for %s: %w", t.Attempt, t.Key(), err)
	}
	k.hasResult(t.Key() + " " + t.Attempt)
	failpoint.Hit("effect-before-ack")
	if err := m.DoubleAck(ctx); err != nil {
		return errors.Join(err, errKept)
	}
	return nil
}

func (k *kind) unwanted(ctx context.Context, m jetstream.Msg) error {
	k.w.Meter.Attempt(k.m.Name+"."+k.fx.Name, consumers.OutcomeUnwanted)
	return m.DoubleAck(ctx)
}

// maxReads is how often the state of an entity is read, within two seconds, until its task is given up as unreadable. The task
// holds its place in the consumer meanwhile.
const maxReads = 5

// unreadable reports whether there is a value that cannot be read or decoded.
func unreadable(err error) bool {
	return errors.Is(err, streams.ErrUnreadable) || errors.Is(err, kv.ErrCorrupt)
}

// wanted reports whether the entity still waits for this attempt.
func (k *kind) wanted(ctx context.Context, t *machines.Task) (bool, error) {
	stored, err := k.w.Value(ctx, k.m, t.Key())
	if err != nil || kv.Absent(stored) {
		return false, err
	}
	var e struct {
		Effects map[string]machines.Attempt `json:"effects"`
	}
	if err := json.Unmarshal(stored.Data, &e); err != nil {
		return false, fmt.Errorf("the stored value of %s %s: %w: %w", k.m.Name, t.Key(), kv.ErrCorrupt, err)
	}
	a, ok := e.Effects[t.Effect]
	return ok && a.ID == t.Attempt && a.NextTry == nil, nil
}

// leaving is how long a provider may take when this process ends the effects that it has a bound of its own for: such are programs, which have 5 s from SIGTERM to SIGKILL. Then others can have them at once.
const leaving = 8 * time.Second

// perform runs the provider within the effect's time. A provider that does not return a second after that is left
// behind, and what it returns is thrown away: the next try may begin while it still runs, with a newer fence.
func (k *kind) perform(ctx context.Context, t machines.Task) (machines.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, k.fx.Timeout)
	defer cancel()
	done := make(chan machines.Result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				panics.Caught(k.w.Log, "effect", r, "effect", t.Effect, "key", t.Key())
				done <- machines.Result{Failure: &machines.Failure{Code: "internal", Message: "the provider failed unexpectedly", Retryable: true}}
			}
		}()
		done <- k.performer.Perform(ctx, t)
	}()
	late := (<-chan time.Time)(nil)
	over := ctx.Done()
	for {
		select {
		case r := <-done:
			return r, nil
		case <-over:
			wait := time.Second
			if cause := context.Cause(ctx); k.bounded && !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, errUnwanted) {
				wait = leaving
			}
			over, late = nil, time.After(wait)
		case <-late:
			return machines.Result{Failure: &machines.Failure{Code: "timeout", Message: fmt.Sprintf("no answer within %s", k.fx.Timeout), Retryable: true}}, errKept
		}
	}
}

const maxEnvelope = 1 << 10 // room for what a report has around its data

// report makes the command that ends a task. Its id is one that nobody can guess, and another one each time: the stream drops
// a command whose id it has seen, on whatever subject, and the effect would be acked for a result that is not there. The
// machine refuses doubles by their attempt.
func (k *kind) report(t *machines.Task, r machines.Result, trace string) (publish.Command, error) {
	cmd := publish.Command{Machine: k.m.Name, Key: t.Key(), Actor: "provider", Trace: trace}
	outcome, data := consumers.OutcomeDone, []byte(nil)
	if r.Failure == nil {
		var err error
		data, err = json.Marshal(r.Data)
		switch {
		case err != nil: // it would be no better the next time
			r.Failure = &machines.Failure{Code: "result-unwritable", Message: fmt.Sprintf("the provider's result cannot be written: %v", err)}
		case len(data) > consumers.MaxBody-maxEnvelope: // the stream may not take it, and the entity would wait for its deadline
			r.Failure = &machines.Failure{Code: "result-too-large", Message: fmt.Sprintf("the provider's result has %d bytes, %d are possible", len(data), consumers.MaxBody-maxEnvelope)}
		}
	}
	cmd.Name = k.fx.Done
	var body any = machines.Report{Attempt: t.Attempt, Data: data}
	if r.Failure != nil {
		f := *r.Failure
		f.Code, f.Message = consumers.Clip(f.Code, consumers.MaxField), consumers.Clip(f.Message, machines.MaxFailure)
		outcome, cmd.Name = consumers.OutcomeFailed, machines.CommandFailed
		body = machines.EffectFailed{Effect: t.Effect, Attempt: t.Attempt, Failure: f}
	}
	k.w.Meter.Attempt(k.m.Name+"."+k.fx.Name, outcome)
	var err error
	cmd.Body, err = json.Marshal(body)
	return cmd, err
}

// bury keeps a message that no code can handle among the dead letters, and ends it.
func (k *kind) bury(ctx context.Context, m jetstream.Msg, reason string) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	addr, _ := k.w.Names.ParseEffect(m.Subject()) // what cannot be read stays "unknown"
	letter := k.w.DeadLetters().Message(publish.DeadLetter{
		Consumer: k.name, Machine: addr.Machine, Key: addr.Key, Subject: m.Subject(), Reason: reason, Tries: int(meta.NumDelivered), Header: m.Headers(), Body: m.Data(),
	}, fmt.Sprintf("dead/%s/%d/%d", k.name, meta.Sequence.Stream, meta.Timestamp.UnixNano()))
	if r := k.w.Appender.Append(ctx, []publish.Write{{Stream: k.w.Names.Stream(streams.DeadStream), Msg: letter}})[0]; r.Err != nil {
		return r.Err
	}
	k.w.Log.Error("an effect cannot be handled; moving it to the dead letters", "worker", k.name, "subject", m.Subject(), "reason", reason)
	k.w.Meter.DeadLetter(k.name)
	return m.TermWithReason(reason)
}
