package publish

// Group commit: one atomic batch, and so one fsync, for many writes. Appender.Go and AppendChains (chain.go) add units to the queue of their stream; run takes what has gathered
// there while the last batch was under way, and commit sends it as one batch (batch), or message by message (single) where that is faster (pace.go) or the batch was refused. The
// callback of each unit gets the result of its own messages.

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/streams"
)

// maxBatch is the server's limit of messages in one atomic batch (error 10199 above it).
const maxBatch = 1000

// Headers of the messages of an atomic batch.
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// unit is what must be stored together. Of several messages only the first may be conditional.
type unit struct {
	msgs []*nats.Msg
	done func(Result)
}

// grouping collects the units of one stream while a batch of it is under way.
type grouping struct {
	a      *Appender
	stream string
	wakeup chan struct{}
	pace   pace // of run alone

	mu     sync.Mutex
	queue  []unit
	closed bool // nothing takes from the queue any more
}

func (a *Appender) grouping(stream string) *grouping {
	if g, ok := a.groups.Load(stream); ok {
		return g.(*grouping)
	}
	g, loaded := a.groups.LoadOrStore(stream, &grouping{a: a, stream: stream, wakeup: make(chan struct{}, 1), pace: newPace()})
	if !loaded {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.closed {
			for _, u := range g.(*grouping).close() { // somebody may have found it meanwhile
				u.done(Result{Err: ErrClosed})
			}
		} else {
			a.workers.Go(g.(*grouping).run)
		}
	}
	return g.(*grouping)
}

func (g *grouping) add(u unit) {
	for _, m := range u.msgs {
		if !streams.Storable(m.Subject) { // the batch would be refused with it
			u.done(Result{Err: unsendable(m)})
			return
		}
	}
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.queue = append(g.queue, u)
	}
	g.mu.Unlock()
	if closed {
		u.done(Result{Err: ErrClosed})
		return
	}
	select {
	case g.wakeup <- struct{}{}:
	default:
	}
}

// take removes up to maxBatch messages' worth of units.
func (g *grouping) take() []unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, msgs := 0, 0
	for n < len(g.queue) && (n == 0 || msgs+len(g.queue[n].msgs) <= maxBatch) {
		msgs += len(g.queue[n].msgs)
		n++
	}
	units := g.queue[:n:n]
	g.queue = append([]unit(nil), g.queue[n:]...)
	return units
}

// close takes no more units and returns what is left.
func (g *grouping) close() []unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	units := g.queue
	g.queue, g.closed = nil, true
	return units
}

func (g *grouping) run() {
	for {
		select {
		case <-g.a.done:
			for _, u := range g.close() {
				u.done(Result{Err: ErrClosed})
			}
			return
		case <-g.wakeup:
		}
		for units := g.take(); len(units) > 0; units = g.take() {
			g.commit(units)
		}
	}
}

// commit stores the units: in one batch, or one by one when that is cheaper or the batch was refused.
func (g *grouping) commit(units []unit) {
	msgs := 0
	for _, u := range units {
		msgs += len(u.msgs)
	}
	began := time.Now()
	if g.alone(msgs, began) {
		if g.single(units) {
			g.took(true, msgs, began)
		}
		return
	}
	r := g.batch(units, msgs)
	if r.Err == nil {
		g.took(false, msgs, began)
	}
	var refused *RefusedError
	if errors.As(r.Err, &refused) || errors.Is(r.Err, nats.ErrMaxPayload) { // nothing of it was stored
		g.single(units)
		return
	}
	seq := r.Seq - uint64(msgs)
	for _, u := range units {
		seq += uint64(len(u.msgs))
		if r.Err != nil {
			u.done(r)
			continue
		}
		u.done(Result{Seq: seq})
	}
}

func (g *grouping) alone(msgs int, now time.Time) bool {
	if g.a.batchFrom > 0 {
		return msgs < g.a.batchFrom
	}
	return g.pace.alone(msgs, now)
}

func (g *grouping) took(alone bool, msgs int, began time.Time) {
	now := time.Now()
	g.pace.took(alone, msgs, now.Sub(began), now)
}

// batch sends all messages as one atomic batch (ADR-50). The answer to the last one carries the sequence of the last.
func (g *grouping) batch(units []unit, total int) Result {
	id, n := nuid.Next(), uint64(0)
	answer := make(chan Result, 1)
	for _, u := range units {
		for _, m := range u.msgs {
			n++
			b := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: make(nats.Header, len(m.Header)+3)}
			for k, v := range m.Header {
				b.Header[k] = v
			}
			b.Header[headerBatchID], b.Header[headerBatchSeq] = []string{id}, []string{strconv.FormatUint(n, 10)}
			if n == uint64(total) {
				b.Header[headerBatchCommit] = []string{"1"}
				g.a.publish(g.stream, b, func(r Result) { answer <- r })
				continue
			}
			if err := g.a.nc.PublishMsg(b); err != nil {
				return Result{Err: err}
			}
		}
	}
	return <-answer // publish always calls back
}

// single sends the messages of all units singly: those of different units side by side, those of one unit one after the other. It reports whether all of them were answered.
func (g *grouping) single(units []unit) bool {
	var all sync.WaitGroup
	var silent atomic.Bool
	for _, u := range units {
		all.Add(1)
		g.follow(u, 0, 0, func(r Result) {
			if errors.Is(r.Err, ErrUnanswered) {
				silent.Store(true)
			}
			u.done(r)
			all.Done()
		})
	}
	all.Wait()
	return !silent.Load()
}

func (g *grouping) follow(u unit, i, duplicates int, done func(Result)) {
	g.a.publish(g.stream, u.msgs[i], func(r Result) {
		if r.Err != nil || i+1 == len(u.msgs) {
			r.earlier = duplicates
			done(r)
			return
		}
		if r.Duplicate {
			duplicates++
		}
		if filter := streams.ExpectedUnder(u.msgs[i]); filter != "" { // of a chain
			streams.ExpectUnder(u.msgs[i+1], filter, r.Seq)
		}
		if len(u.msgs[i].Header[headerExpectLast]) > 0 {
			expectAt(u.msgs[i+1], r.Seq+1)
		}
		g.follow(u, i+1, duplicates, done)
	})
}
