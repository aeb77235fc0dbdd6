package presence

// The orchestrator calls Asked for each pool with tasks that could start; look asks the consumer beside that, and knock is told of requests while nobody is there. Both move the time of the last
// sign of a worker (sees), which is all that Asked looks at.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Present is how long a queue counts as asked for after the last sign of a worker.
const Present = 10 * time.Second

// Every is how often a queue is looked at, at most.
const Every = time.Second

const lookWithin = 2 * time.Second

// Watch looks at queues. Use [New].
type Watch struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	wake   chan<- struct{} // gets something when an answer has become another one, if there is room

	ctx     context.Context
	looks   sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	present time.Duration
	every   time.Duration
	queues  map[string]*queue // by the name of the consumer
}

type queue struct {
	seen    time.Time // the last sign of a worker
	looked  time.Time
	looking bool
	sub     *nats.Subscription // while nobody is there
}

// New looks at consumers of a stream until [Watch.Close]; ctx ends questions.
func New(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, stream string, wake chan<- struct{}) *Watch {
	return &Watch{nc: nc, js: js, stream: stream, wake: wake, ctx: ctx, present: Present, every: Every, queues: map[string]*queue{}}
}

// Asked reports whether anybody asks for tasks of a consumer, as far as is known, and has it looked at where that is not known, or known for a second. It does not wait.
func (w *Watch) Asked(consumer string) bool {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[consumer]
	if q == nil {
		q = &queue{}
		w.queues[consumer] = q
	}
	if !q.looking && !w.closed && now.Sub(q.looked) >= w.every {
		q.looking = true
		w.looks.Go(func() { w.look(consumer, q) })
	}
	return w.there(q, now)
}

func (w *Watch) there(q *queue, now time.Time) bool { return now.Sub(q.seen) < w.present }

// Forget ends looking at a consumer.
func (w *Watch) Forget(consumer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[consumer]; q != nil {
		q.unsubscribe()
		delete(w.queues, consumer)
	}
}

// Close ends all of it. ctx of [New] should have ended, or it waits for answers.
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed = true
	for name, q := range w.queues {
		q.unsubscribe()
		delete(w.queues, name)
	}
	w.mu.Unlock()
	w.looks.Wait()
}

func (q *queue) unsubscribe() {
	if q.sub != nil {
		_ = q.sub.Unsubscribe() // it is so when the connection is closed, too
		q.sub = nil
	}
}

// look asks the consumer. It decides by the clock of the server, which has both times.
func (w *Watch) look(consumer string, q *queue) {
	ctx, cancel := context.WithTimeout(w.ctx, lookWithin)
	defer cancel()
	cons, err := w.js.Consumer(ctx, w.stream, consumer)
	now, seen := time.Now(), time.Time{}
	if err == nil {
		seen = now.Add(-silence(cons.CachedInfo()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q.looking, q.looked = false, now
	if w.queues[consumer] != q || w.closed || err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return
	}
	w.sees(q, seen)
	switch away := !w.there(q, now); {
	case !away:
		q.unsubscribe()
	case q.sub == nil: // a request that does not wait is seen by nothing else
		q.sub, _ = w.nc.Subscribe(jetstream.DefaultAPIPrefix+"CONSUMER.MSG.NEXT."+w.stream+"."+consumer, func(*nats.Msg) { w.knock(consumer, q) }) // without it the next look sees what waits
	}
}

// silence is how long nobody has asked.
func silence(info *jetstream.ConsumerInfo) time.Duration {
	if info.NumWaiting > 0 {
		return 0
	}
	least := time.Duration(1<<63 - 1)
	for _, last := range []*time.Time{info.Delivered.Last, info.AckFloor.Last} {
		if last != nil {
			least = min(least, max(0, info.TimeStamp.Sub(*last)))
		}
	}
	return least
}

// knock is a request that has come.
func (w *Watch) knock(consumer string, q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues[consumer] == q {
		w.sees(q, time.Now())
	}
}

// sees takes a sign of a worker. The lock is held.
func (w *Watch) sees(q *queue, at time.Time) {
	now := time.Now()
	before := w.there(q, now)
	if at.After(q.seen) {
		q.seen = at
	}
	if w.there(q, now) != before {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
