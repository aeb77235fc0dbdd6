package effects

// How tasks come. Where this process may have as many under way as all together, deliveries come as fast as they can (pulls). Where it has a bound of its own, it asks for one task at a time, when
// it can begin one (oneByOne). A delivery that is under way says so (underWay), and what a stopping process has not done is given back (givenBack).

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/panics"
)

// Of a request for tasks: how long it waits, and how often the server says meanwhile that it is there.
const (
	pullFor  = 10 * time.Second
	pullBeat = 2 * time.Second
)

// errKept says that a task is not to be given back when the process stops: its provider still runs, or its result is stored. It comes again when its
// ack is overdue.
var errKept = errors.New("the task is not given back")

// givenBack are tasks that a stopping process has not done. They are given back when its consumer pulls no more: until then the server
// would deliver them to it again. None is given back by a process that was cut off: the server does not look at which delivery that is about, and would take the task from who has it by now.
// The zero value has none.
type givenBack struct {
	mu    sync.Mutex
	ended bool
	tasks []jetstream.Msg
}

func (g *givenBack) give(ctx context.Context, m jetstream.Msg) {
	if errors.Is(context.Cause(ctx), consumers.ErrCutOff) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.tasks = append(g.tasks, m)
		return
	}
	_ = m.Nak() // at worst it comes when its ack is overdue
}

// pulls takes tasks until ctx ends, or the consumer fails.
func (k *kind) pulls(ctx context.Context) error {
	cons, err := k.consumer(ctx)
	if err != nil {
		return err
	}
	if err := k.look(ctx); err != nil {
		return err
	}
	if k.bounded {
		return k.oneByOne(ctx, cons)
	}
	broken := make(chan error, 1)
	var back givenBack
	cc, err := cons.Consume(func(m jetstream.Msg) {
		select {
		case k.gate <- struct{}{}:
			k.begin(ctx, m, &back)
		case <-ctx.Done():
			back.give(ctx, m)
		}
	}, jetstream.PullMaxMessages(min(k.most, 256)), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat), consumers.WhenGone(broken))
	if err != nil {
		return fmt.Errorf("cannot take effects: %w", err)
	}
	defer func() { back.end(cc, k.w.NC.IsConnected()) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		return fmt.Errorf("the consumer fails: %w", err)
	}
}

// oneByOne takes tasks while this process is to take any.
func (k *kind) oneByOne(ctx context.Context, cons jetstream.Consumer) error {
	for {
		takes, changed := k.w.takes()
		if takes {
			if err := k.ask(ctx, cons); err != nil || ctx.Err() != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// ask asks for a task when it can be begun, and for the next one when that is: what waited here would be kept from other processes, and would not be in progress. One is there within a round
// trip, which such tasks do not notice. It ends when no task is to be taken; what is on its way then is given back.
func (k *kind) ask(ctx context.Context, cons jetstream.Consumer) error {
	asking, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()
	watch.Go(func() { k.w.whileTaking(asking); end() })
	it, err := cons.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("cannot take effects: %w", err)
	}
	var back givenBack
	defer back.release()
	defer it.Stop()
	defer context.AfterFunc(asking, func() { stop(it, k.w.NC.IsConnected()) })()
	for {
		select {
		case k.gate <- struct{}{}:
		case <-asking.Done():
			return nil
		}
		m, err := it.Next()
		switch {
		case err == nil && asking.Err() == nil:
			k.begin(ctx, m, &back)
			continue
		case err == nil:
			back.give(ctx, m)
		}
		<-k.gate
		if err != nil && asking.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the consumer fails: %w", err)
		}
	}
}

func (w *Workers) takes() (bool, <-chan struct{}) {
	if w.Takes == nil {
		return true, nil
	}
	return w.Takes()
}

// whileTaking returns when no task is to be taken, or ctx ends.
func (w *Workers) whileTaking(ctx context.Context) {
	for {
		takes, changed := w.takes()
		if !takes {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// message is one of a stream: one that lost its end in a loss of power gives out sequences again.
type message struct {
	sequence uint64
	at       int64
}

// begin starts a task that has its token, unless the worker has ended. A message that is under way here and is delivered again, as when this process was held up for long, is left to
// the delivery that has begun: the server takes the acks of that for the later one, too.
func (k *kind) begin(ctx context.Context, m jetstream.Msg, back *givenBack) {
	var id message
	if meta, err := m.Metadata(); err == nil { // else the task fails
		id = message{meta.Sequence.Stream, meta.Timestamp.UnixNano()}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || k.held[id] {
		<-k.gate
		return
	}
	k.held[id] = true
	k.tasks.Go(func() {
		defer func() {
			k.mu.Lock()
			delete(k.held, id)
			k.mu.Unlock()
			<-k.gate
		}()
		defer panics.Recover(k.w.Log, "effect", "worker", k.name) // the task comes again
		switch err := k.task(ctx, m); {
		case err == nil:
		case ctx.Err() == nil:
			k.w.Log.Warn("leaving a task for its next delivery", "worker", k.name, "error", err)
		case !errors.Is(err, errKept):
			back.give(ctx, m)
		}
	})
}

// stop has a consumer pull no more. What is on its way still comes, to be given back; without a connection it comes again when its ack is overdue.
func stop(pulls puller, connected bool) {
	if connected {
		pulls.Drain()
	} else {
		pulls.Stop()
	}
}

type puller interface {
	Drain()
	Stop()
}

// end stops the consumer, and gives back. Without a connection what is in the consumer's buffer comes again when its ack is overdue.
func (g *givenBack) end(cc jetstream.ConsumeContext, connected bool) {
	stop(cc, connected)
	<-cc.Closed()
	g.release()
}

// release gives back, now and from now on at once.
func (g *givenBack) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, m := range g.tasks {
		_ = m.Nak()
	}
	g.tasks = nil
}

// underWay tells the server, until it is ended, that a delivery is under way, whatever that waits for: its entity, whose bucket may have no leader for longer than AckWait, its turn,
// or its provider. Else the server would deliver it once more, and both would be performed. All that a task waits for has an end but its turn.
func (k *kind) underWay(m jetstream.Msg) (end func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(k.w.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.InProgress() // at worst the task comes again
			case <-over:
				return
			}
		}
	}()
	return func() { close(over) }
}
