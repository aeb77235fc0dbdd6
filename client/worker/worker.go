package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Causes of the end of a handler's context.
var (
	ErrUnwanted = errors.New("nobody waits for the task any more")
	ErrStopped  = errors.New("the worker stops")
)

// Options say how a worker works. NC is required.
type Options struct {
	NC          *nats.Conn
	Prefix      string        // of subjects; "instar" if empty
	APIPrefix   string        // of JetStream; empty is its own, users of the role work have $JS.INSTAR.API
	Name        string        // in failures and logs; the host's name if empty
	Version     string        // of the program, for those who look at the workers; at most 128 characters
	Concurrency int           // tasks of one effect at a time; 0 is 8. The server bounds all workers of an effect together
	Grace       time.Duration // for tasks under way when it stops; 0 is 30 s
	Log         *slog.Logger  // nil says nothing
}

// Task is what is to be done for an entity. Data is what the machine gives for the effect.
type Task[In any] struct {
	Machine   string `json:"machine"`
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Parent    string `json:"parent"`
	Effect    string `json:"effect"`
	Attempt   string `json:"attempt"` // unique; the same when the task comes again
	Try       int    `json:"try"`
	Fence     uint64 `json:"fence"` // refuse a task with an older one than was seen for the entity, with a [Failure] that says which
	Data      In     `json:"data"`

	words *words // nil of one that no worker has taken: it says nothing
}

// Key identifies the entity among those of its machine.
func (t *Task[In]) Key() string { return key(t.Namespace, t.Parent, t.ID) }

func key(namespace, parent, id string) string {
	if parent == "" {
		return namespace + "." + id
	}
	return namespace + "." + parent + "." + id
}

// Failure is why a task failed. As the error of a handler it is reported as it is.
type Failure struct {
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Retryable  bool          `json:"retryable,omitempty"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // the least wait before another try, a day at most
	Fence      uint64        `json:"fence,omitempty"`      // the higher one that was seen
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Terminal is an error that no other try can help.
func Terminal(err error) error { return &Failure{Code: "failed", Message: err.Error()} }

// RetryAfter is an error that may be tried again, but not before a time has passed.
func RetryAfter(wait time.Duration, err error) error {
	return &Failure{Code: "failed", Message: err.Error(), Retryable: true, RetryAfter: wait}
}

// Worker takes tasks and reports their results.
type Worker struct {
	opts  Options
	js    jetstream.JetStream
	api   string
	kinds []*kind
	told  time.Duration // between two words of [Worker.tell]
}

// kind is one effect of one machine.
type kind struct {
	w                     *Worker
	machine, effect, done string
	queue                 string // the consumer, in the end
	perform               func(ctx context.Context, t Task[json.RawMessage]) (any, error)
	ackWait               time.Duration
	running               atomic.Int64
}

// New is a worker without handlers.
func New(opts Options) (*Worker, error) {
	if opts.NC == nil {
		return nil, errors.New("worker: a connection is needed")
	}
	host, _ := os.Hostname() // a worker without a name works, too
	opts.Prefix, opts.Name = cmp.Or(opts.Prefix, "instar"), cmp.Or(opts.Name, host)
	opts.Concurrency, opts.Grace = cmp.Or(opts.Concurrency, 8), cmp.Or(opts.Grace, 30*time.Second)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	api := strings.TrimSuffix(cmp.Or(opts.APIPrefix, jetstream.DefaultAPIPrefix), ".")
	js, err := jetstream.NewWithAPIPrefix(opts.NC, api)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return &Worker{opts: opts, js: js, api: api, told: 5 * time.Second}, nil
}

// Effect names what a handler performs, as the table of the machine does: Done is the report that carries the result. Route is the queue whose tasks it takes, where
// the machine gives some of them queues of their own; empty takes those that have none.
type Effect struct{ Machine, Name, Done, Route string }

// Handle has a function perform an effect. In is decoded from the JSON of the task, and Out encoded into that of the report. It must be called before [Worker.Run].
func Handle[In, Out any](w *Worker, e Effect, perform func(ctx context.Context, t Task[In]) (Out, error)) {
	queue := "fx-" + e.Machine + "-" + e.Name
	if e.Route != "" {
		queue += "=" + e.Route
	}
	w.kinds = append(w.kinds, &kind{w: w, machine: e.Machine, effect: e.Name, done: e.Done, queue: queue, perform: func(ctx context.Context, t Task[json.RawMessage]) (any, error) {
		task := Task[In]{Machine: t.Machine, Namespace: t.Namespace, ID: t.ID, Parent: t.Parent, Effect: t.Effect, Attempt: t.Attempt, Try: t.Try, Fence: t.Fence, words: t.words}
		if len(t.Data) > 0 {
			if err := json.Unmarshal(t.Data, &task.Data); err != nil {
				return nil, &Failure{Code: "invalid", Message: fmt.Sprintf("the data of the task cannot be read: %v", err)}
			}
		}
		return perform(ctx, task)
	}})
}

// Run performs tasks until ctx ends, and returns when all that were under way have ended. If the connection is closed for good before, the error is [nats.ErrConnectionClosed].
func (w *Worker) Run(ctx context.Context) error {
	if len(w.kinds) == 0 {
		return errors.New("worker: there is no handler")
	}
	ctx, cancel := context.WithCancel(ctx) // one that nobody can end has no channel to wait for
	defer cancel()
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	grace := context.AfterFunc(ctx, func() {
		t := time.NewTimer(w.opts.Grace)
		defer t.Stop()
		select {
		case <-t.C:
			stop(ErrStopped)
		case <-work.Done():
		}
	})
	defer grace()
	var all, telling sync.WaitGroup
	for _, k := range w.kinds {
		all.Go(func() { k.run(ctx, work) })
	}
	telling.Go(func() { w.tell(ctx) })
	all.Wait()
	closed := ctx.Err() == nil
	cancel()
	telling.Wait()
	if closed {
		return nats.ErrConnectionClosed
	}
	return nil
}

// tell says who works on what, for those who look (GET /v1/workers). Nothing depends on it, so what gets lost is not repeated. It ends with ctx.
func (w *Worker) tell(ctx context.Context) {
	id := nats.NewInbox()[len(nats.InboxPrefix):]
	for {
		for _, k := range w.kinds {
			raw, err := json.Marshal(map[string]any{"id": id, "queue": k.queue, "name": w.opts.Name, "version": w.opts.Version, "concurrency": w.opts.Concurrency, "running": k.running.Load()})
			if err == nil {
				_ = w.opts.NC.Publish(w.opts.Prefix+".worker."+k.queue, raw)
			}
		}
		if !rest(ctx, w.told) {
			return
		}
	}
}

// run waits for the consumer, which the server keeps, and takes tasks until ctx ends.
func (k *kind) run(ctx, work context.Context) {
	p := k.puller()
	defer p.wait()
	for try := 0; ; try++ {
		cons, err := k.w.js.Consumer(ctx, k.w.stream("EFFECTS"), k.queue)
		if err == nil {
			k.ackWait = cons.CachedInfo().Config.AckWait
			began := time.Now()
			if err = p.take(ctx, work, cons); time.Since(began) > 10*time.Second {
				try = 0
			}
		}
		if ctx.Err() != nil || k.w.opts.NC.IsClosed() {
			return
		}
		k.w.opts.Log.Warn("waiting for the queue of an effect", "queue", k.queue, "error", err)
		if !rest(ctx, min(100*time.Millisecond<<min(try, 6), 5*time.Second)) {
			return
		}
	}
}

// task takes one delivery to its end. An error leaves the task for another.
func (k *kind) task(work context.Context, m *delivery) error {
	var t Task[json.RawMessage]
	if err := json.Unmarshal(m.Data, &t); err != nil || t.Machine != k.machine || t.Effect != k.effect {
		return errors.Join(fmt.Errorf("it is no task of %s.%s: %w", k.machine, k.effect, err), m.giveBack(time.Minute))
	}
	if !fresh(m.Msg) {
		wanted, err := k.wanted(work, &t)
		if err != nil {
			return errors.Join(err, m.giveBack(2*time.Second))
		}
		if !wanted {
			return m.Ack()
		}
	}
	t.words = k.words(&t)
	ctx, end := context.WithCancelCause(work)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch(ctx, end, &t, m)
	}()
	data, failed := k.call(ctx, t)
	var err error
	cause := context.Cause(ctx)
	if cause == nil { // it is kept in progress until the result is stored
		err = k.report(ctx, &t, data, failed)
		cause = context.Cause(ctx)
	}
	end(nil)
	<-watched
	switch {
	case errors.Is(cause, ErrUnwanted):
		return m.Ack()
	case cause != nil:
		return errors.Join(cause, m.giveBack(0))
	case err != nil:
		return err
	}
	return m.Ack() // if it is lost, the task comes again, and nobody waits for it
}

// settled is when a task is looked at that was begun without asking, and how old it may be for that.
const (
	settled  = 250 * time.Millisecond
	youngest = 2 * time.Second
)

// fresh reports whether a task has been sent so lately, and for the first time, that it is hardly ever given up already.
func fresh(m *nats.Msg) bool {
	meta, err := m.Metadata()
	return err == nil && meta.NumDelivered == 1 && time.Since(meta.Timestamp).Abs() < youngest
}

// call is the handler, and what it returned as it is sent. What panics is a failure: methods of what it returned are its own, too.
func (k *kind) call(ctx context.Context, t Task[json.RawMessage]) (data json.RawMessage, failed *Failure) {
	defer func() {
		if p := recover(); p != nil {
			k.w.opts.Log.Error("a handler panics", "machine", k.machine, "effect", k.effect, "key", t.Key(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			failed = &Failure{Code: "internal", Message: "the worker failed unexpectedly", Retryable: true}
		}
	}()
	out, err := k.perform(ctx, t)
	if err != nil {
		return nil, failure(err)
	}
	if data, err = json.Marshal(out); err != nil {
		return nil, &Failure{Code: "result-unwritable", Message: err.Error()}
	}
	return data, nil
}

// watch says that the task is in progress, and ends the context when nobody waits for it. It asks when the task has run for a moment, with each heartbeat, and when something
// happens to the entity. Most tasks that take no longer than that moment are spared the questions.
func (k *kind) watch(ctx context.Context, end context.CancelCauseFunc, t *Task[json.RawMessage], m *delivery) {
	every := max(m.wait/3, 10*time.Millisecond)
	if !rest(ctx, min(settled, every)) {
		return
	}
	said := time.Now()
	_ = m.InProgress() // at worst the task comes again
	events := make(chan *nats.Msg, 16)
	subject := strings.Join([]string{k.w.opts.Prefix, "evt", k.machine, t.Key(), ">"}, ".")
	if sub, err := k.w.opts.NC.ChanSubscribe(subject, events); err == nil {
		defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	for {
		switch wanted, err := k.wanted(ctx, t); {
		case err == nil && !wanted:
			end(ErrUnwanted)
			return
		case err == nil:
			m.lives(said)
		}
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			said = time.Now()
			_ = m.InProgress() // at worst the task comes again
		case <-events:
		}
	}
}

// wanted reports whether the entity waits for this attempt.
func (k *kind) wanted(ctx context.Context, t *Task[json.RawMessage]) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := k.w.opts.NC.RequestWithContext(ctx, strings.Join([]string{k.w.opts.Prefix, "api", "get", k.machine, t.Key()}, "."), nil)
	if err != nil {
		return false, fmt.Errorf("cannot ask for the entity: %w", err)
	}
	switch code := m.Header.Get("Nats-Service-Error-Code"); code {
	case "":
	case "404":
		return false, nil
	default:
		return false, fmt.Errorf("cannot ask for the entity: %s %s", code, m.Header.Get("Nats-Service-Error"))
	}
	var e struct {
		Effects map[string]struct {
			ID      string     `json:"id"`
			NextTry *time.Time `json:"nextTry"`
		} `json:"effects"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return false, fmt.Errorf("cannot read the entity: %w", err)
	}
	a, ok := e.Effects[t.Effect]
	return ok && a.ID == t.Attempt && a.NextTry == nil, nil
}

// stream is the name of a stream of the installation.
func (w *Worker) stream(name string) string {
	if w.opts.Prefix == "instar" {
		return name
	}
	return strings.ToUpper(w.opts.Prefix) + "_" + name
}

// rest waits, and reports false when ctx has ended before.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
