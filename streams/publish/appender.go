package publish

// From a message to the answer of its stream. Whoever writes calls Append, or Go with a callback: with groups the message goes to the queue of its stream (group.go), otherwise
// publish sends it at once, with a reply subject of its own under which the callback is registered. answered takes the answers, finds the callback and passes on the result
// (ack.go); watch fails what is not answered in time, or was under way on a lost connection.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// ErrConflict says that a conditional write was refused: somebody else wrote first.
var ErrConflict = errors.New("the stream has moved on")

// ErrUnanswered says that it is not known whether the message was stored.
var ErrUnanswered = errors.New("no answer from the stream")

// ErrClosed says that the appender was closed.
var ErrClosed = errors.New("appender is closed")

// Result is what became of one message, or of the last message of a unit.
type Result struct {
	Seq       uint64
	Duplicate bool // the stream had the id already; Seq is that of the earlier message
	Err       error

	earlier int // of several messages, how many duplicates came before the last one
}

// Appender writes messages to streams and calls back for each.
//
// Without Group every message is published at once and its answer awaited beside the others ("pipelined"). With Group
// the messages of a stream that arrive while one atomic batch is under way become the next batch, of up to 1000
// messages and one fsync; a refused batch is published again one by one, so that one conflict does not fail others.
type Appender struct {
	nc    *nats.Conn
	names streams.Names
	group bool
	sync  func(stream string, done func(error))
	wait  time.Duration

	batchFrom int // messages that make a batch; 0 leaves that to pace

	inbox string
	subs  []*nats.Subscription

	mu      sync.Mutex
	next    uint64
	pending map[uint64]pending
	closed  bool

	groups  sync.Map // stream of a subject's root to *grouping
	done    chan struct{}
	workers sync.WaitGroup
}

type pending struct {
	stream   string
	done     func(Result)
	deadline time.Time
	linked   bool // who sends it asks for the sync
}

// AppenderOptions configure an [Appender].
type AppenderOptions struct {
	Names   streams.Names
	Group   bool          // commit in groups: set it exactly when the stream fsyncs each write
	Timeout time.Duration // until ErrUnanswered; 0 is 5 s

	// Sync calls done when everything is on disk that the stream had acknowledged before the call, or with why that is not known. A write is answered after it.
	// It is nil where an ack says that already: see embedded.Server.Syncer.
	Sync func(stream string, done func(error))

	// Moves says that the streams have replicas. When a stream elects another leader, answers to what it was sent before are no longer awaited: the former leader may not send
	// them any more.
	Moves bool
}

// NewAppender starts an appender on a connection, which should not buffer while it is disconnected
// (nats.ReconnectBufSize(-1)): a publish that returned an error must not be stored later.
func NewAppender(nc *nats.Conn, o AppenderOptions) (*Appender, error) {
	a := &Appender{nc: nc, names: o.Names, group: o.Group, sync: o.Sync, wait: o.Timeout, inbox: nc.NewInbox() + ".", pending: map[uint64]pending{}, done: make(chan struct{})}
	if a.wait == 0 {
		a.wait = 5 * time.Second
	}
	if err := a.listen(a.inbox+"*", a.answered); err != nil {
		return nil, fmt.Errorf("streams: cannot listen for answers: %w", err)
	}
	if o.Moves {
		if err := a.listen(streamElected+"*", a.moved); err != nil {
			return nil, fmt.Errorf("streams: cannot listen for elections: %w", err)
		}
	}
	a.workers.Go(a.watch)
	return a, nil
}

func (a *Appender) listen(subject string, f nats.MsgHandler) error {
	sub, err := a.nc.Subscribe(subject, f)
	if err != nil {
		return err
	}
	a.subs = append(a.subs, sub)
	return sub.SetPendingLimits(-1, -1)
}

// Grouping reports whether the appender commits in groups, which is where the stream fsyncs each write.
func (a *Appender) Grouping() bool { return a.group }

// grouped reports whether the stream fsyncs each write, so that writes to it share one. Of streams that are synced when they are told to ([AppenderOptions].Sync) it is the buckets.
func (a *Appender) grouped(stream string) bool {
	_, bucket := streams.BucketOf(stream)
	return a.group || a.sync != nil && bucket
}

// Close fails what is under way with ErrClosed and waits for the appender's goroutines.
func (a *Appender) Close() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	a.mu.Unlock()
	close(a.done)
	a.fail(ErrClosed, func(pending) bool { return true }) // first: a batch under way waits for its answer
	a.workers.Wait()
	for _, sub := range a.subs {
		_ = sub.Unsubscribe() // the connection may be gone already
	}
}

// Go writes one message and calls done exactly once, from another goroutine or, when the message cannot even be
// sent, from this one. done must not block.
func (a *Appender) Go(stream string, m *nats.Msg, done func(Result)) {
	if a.grouped(stream) && !streams.Scheduled(m) { // a schedule in a batch would fire with the headers of the batch
		a.grouping(stream).add(unit{[]*nats.Msg{m}, done})
		return
	}
	a.publish(stream, m, done)
}

// Write is one message and the stream that it is for.
type Write struct {
	Stream string
	Msg    *nats.Msg
}

// Append writes messages that do not depend on one another and waits for all of them.
func (a *Appender) Append(ctx context.Context, writes []Write) []Result {
	results := make([]Result, len(writes))
	a.gather(ctx, len(writes), results, func(i int, done func(Result)) { a.Go(writes[i].Stream, writes[i].Msg, done) })
	return results
}

// gather starts n writes and waits for their results. Results that come after ctx has ended are lost.
func (a *Appender) gather(ctx context.Context, n int, results []Result, start func(i int, done func(Result))) {
	if n == 0 {
		return
	}
	g := &gathering{left: n, results: make([]Result, n), full: make(chan struct{})}
	for i := range n {
		start(i, func(r Result) { g.set(i, r) })
	}
	select {
	case <-g.full:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	copy(results, g.results)
	if g.left == 0 {
		return
	}
	for i := range results {
		if results[i] == (Result{}) {
			results[i].Err = fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
		}
	}
}

type gathering struct {
	mu      sync.Mutex
	left    int
	results []Result
	full    chan struct{}
}

func (g *gathering) set(i int, r Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.results[i] = r
	if g.left--; g.left == 0 {
		close(g.full)
	}
}

// publish sends one message and registers who waits for its answer.
func (a *Appender) publish(stream string, m *nats.Msg, done func(Result)) {
	a.send(stream, m, pending{done: done})
}

func (a *Appender) send(stream string, m *nats.Msg, p pending) {
	done := p.done
	if !streams.Storable(m.Subject) {
		done(Result{Err: unsendable(m)})
		return
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		done(Result{Err: ErrClosed})
		return
	}
	a.next++
	token := a.next
	p.stream, p.deadline = stream, time.Now().Add(a.wait)
	a.pending[token] = p
	a.mu.Unlock()

	m.Reply = a.inbox + strconv.FormatUint(token, 36)
	if err := a.nc.PublishMsg(m); err != nil {
		if p, ok := a.take(token); ok {
			p.done(Result{Err: fmt.Errorf("streams: cannot send to %s: %w", m.Subject, err)})
		}
	}
}

func unsendable(m *nats.Msg) error {
	return fmt.Errorf("streams: %.255q is no subject of a message: %w", m.Subject, streams.ErrSubject)
}

func (a *Appender) take(token uint64) (pending, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pending[token]
	delete(a.pending, token)
	return p, ok
}

func (a *Appender) answered(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[len(a.inbox):], 36, 64)
	if err != nil {
		return // not one of ours
	}
	r := parseAck(m)
	if a.sync == nil || r.Err != nil {
		a.end(token, r)
		return
	}
	a.mu.Lock()
	p, ok := a.pending[token] // it stays pending, so that a disk that stands still is not waited for longer than a stream that does not answer
	a.mu.Unlock()
	switch {
	case !ok:
		return
	case p.linked:
		a.end(token, r)
		return
	}
	a.sync(p.stream, func(err error) {
		if err != nil {
			r = Result{Err: unsynced(err)}
		}
		a.end(token, r)
	})
}

func (a *Appender) end(token uint64, r Result) {
	if p, ok := a.take(token); ok {
		p.done(r)
	}
}

// streamElected begins the subjects on which NATS says that a stream with replicas has another leader.
const streamElected = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."

// errMoved is [ErrUnanswered] without waiting for the timeout.
var errMoved = fmt.Errorf("%w: another server leads it now", ErrUnanswered)

func (a *Appender) moved(m *nats.Msg) {
	stream := m.Subject[len(streamElected):]
	a.fail(errMoved, func(p pending) bool { return p.stream == stream })
}

// watch fails what was not answered in time, and everything when the connection is lost: its answers will not come.
func (a *Appender) watch() {
	lost := a.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED, nats.DISCONNECTED)
	defer a.nc.RemoveStatusListener(lost)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-a.done:
			return
		case <-lost:
			a.fail(fmt.Errorf("%w: the connection was lost", ErrUnanswered), func(pending) bool { return true })
		case now := <-tick.C:
			a.fail(fmt.Errorf("%w within %s", ErrUnanswered, a.wait), func(p pending) bool { return now.After(p.deadline) })
		}
	}
}

func (a *Appender) fail(err error, which func(pending) bool) {
	a.mu.Lock()
	var failed []pending
	for token, p := range a.pending {
		if which(p) {
			failed = append(failed, p)
			delete(a.pending, token)
		}
	}
	a.mu.Unlock()
	for _, p := range failed {
		p.done(Result{Err: err})
	}
}
