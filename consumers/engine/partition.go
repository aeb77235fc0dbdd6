package engine

// The loop of one partition, from its consumer of COMMANDS to batches of commands. run restarts serve with backoff; serve resets the consumer to its ack floor (open), and
// repeats: next collects the commands that have arrived, and takeBatch passes them on to process (commit.go). A gap in the deliveries, a new connection or a failed
// commit ends serve; what the partition had in memory is dropped, and unacked commands are delivered again.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/consumers/poison"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// idleRound is how long an entity without commands stays in memory, at least.
const idleRound = 30 * time.Second

// partition is one loop over one durable consumer.
type partition struct {
	e     *Engine
	n     int
	name  string
	leave <-chan struct{} // closed when no further batch is to be begun; nil never is

	cache     map[string]*cachedEntity // by machine and key
	round     uint64                   // counts the times that idle entities were forgotten
	idle      *time.Ticker
	room      []byte            // in which the values of a batch are written; it is used again
	finishing *finishing        // of the previous batch; nil when that has finished
	acking    sync.WaitGroup    // of commands that are known
	acker     *bulkack.Acker    // ends commands where an ack is dear; nil acks each
	failures  map[uint64]int    // writes that the stream refused for good, by command
	last      uint64            // consumer sequence of the last delivery; 0 after a reset, which starts it at 1
	top       uint64            // the highest sequence that was delivered since found was read
	found     reconcile.History // the stream of commands
	readOnly  bool              // it only reads: nothing is logged, counted or changed
	recovered bool              // all commands that were waiting at the start have ended
	begun     *poison.Record    // the note about them meanwhile (suspects.go)
	before    poison.Record     // the note that an earlier process has left
	alone     uint64            // up to this sequence, commands are processed one at a time
	turn      poison.Turn       // to process commands that may crash the process
}

// delivery is one command as it arrived.
type delivery struct {
	msg       jetstream.Msg
	seq       uint64 // in COMMANDS
	consumer  uint64 // in the consumer: without gaps for as long as nobody else takes from it
	time      time.Time
	delivered uint64
	pending   uint64 // how many were waiting behind it
}

// Why a partition ends: it is given up, or the lease of its node has run out.
var (
	errLeft      = errors.New("the partition is given up")
	errLeaseLost = errors.New("this node's key was not renewed in time")
)

// run restarts the partition until ctx ends or it is to leave.
func (p *partition) run(ctx context.Context) {
	failing := time.Now() // since then
	p.failures = map[uint64]int{}
	for try := 0; ctx.Err() == nil; try++ {
		started := time.Now()
		err := p.serve(ctx)
		if ctx.Err() != nil || errors.Is(err, errLeft) {
			return
		}
		if time.Since(started) > 10*time.Second {
			try, failing = 0, time.Now()
		}
		p.e.Meter.Restarted(p.name)
		if p.last > 0 { // it has taken commands
			p.e.coolUntil.Store(int64(p.e.now() + coolDown))
		}
		if errors.Is(err, errSpeculation) {
			p.e.Log.Info("a speculative create found an entity that the index did not know; restarting the partition from its ack floor", "partition", p.n, "error", err)
		} else if errors.Is(err, publish.ErrConflict) {
			p.e.Log.Warn("an entity was written by another process; restarting the partition from its ack floor", "partition", p.n, "error", err)
		} else {
			p.e.Log.Error("the partition failed; restarting it from its ack floor", "partition", p.n, "error", err)
		}
		// Tries of what is refused for good are counted, and the others of the partition should not wait long for their end; a leader that died has a successor in a few seconds.
		if publish.Permanent(err) && len(p.failures) > 0 || time.Since(failing) < 20*time.Second {
			try = min(try, 2)
		}
		if !wait.BackoffUnless(ctx, p.leave, try) {
			return
		}
	}
}

// serve takes the partition from its ack floor and processes batches until something cannot be written.
func (p *partition) serve(ctx context.Context) error {
	p.cache, p.last = map[string]*cachedEntity{}, 0
	p.idle = time.NewTicker(idleRound)
	defer p.idle.Stop()
	p.acker = p.bulkAcker()
	defer p.acker.Stop()
	moved := p.e.NC.StatusChanged(nats.CONNECTED)
	defer p.e.NC.RemoveStatusListener(moved)
	if err := p.e.Synced(ctx); err != nil {
		return err
	}
	if anew, err := p.e.reader().Look(ctx, &p.found); err != nil {
		return err
	} else if anew {
		p.top = 0
	}
	cons, err := p.open(ctx)
	if err != nil {
		return err
	}
	incoming := make(chan jetstream.Msg, 2*p.e.Batch)
	broken := make(chan error, 1)
	stop := make(chan struct{})
	cc, err := cons.Consume(func(m jetstream.Msg) {
		select {
		case incoming <- m:
		case <-stop:
		}
	}, jetstream.PullMaxMessages(p.e.Batch), jetstream.PullExpiry(p.e.Node.PullExpiry()), jetstream.PullHeartbeat(p.e.Node.PullExpiry()/2),
		consumers.WhenGone(broken))
	if err != nil {
		return fmt.Errorf("cannot take commands: %w", err)
	}
	defer p.e.StopPulling(ctx, cc)
	defer close(stop)
	p.e.live.Add(1)
	defer p.e.live.Add(-1)
	for err == nil {
		var batch []delivery
		if batch, err = p.next(ctx, incoming, broken, moved); err == nil {
			err = p.takeBatch(ctx, batch)
		}
	}
	err = errors.Join(err, p.awaitFinished())
	p.acking.Wait()
	p.acker.Last(ctx)
	return errors.Join(err, p.withdrawNote(ctx))
}

// open makes sure of the consumer and resets it, so that everything unacked comes first and in order.
func (p *partition) open(ctx context.Context) (jetstream.Consumer, error) {
	stream := p.e.Names.Stream(streams.CommandStream)
	cons, err := p.e.Consumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: p.name, Description: "commands of one partition, for its owner", FilterSubject: p.e.Names.StoredIn(p.n),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.e.AckWait, MaxAckPending: 8 * p.e.Batch, MaxDeliver: -1,
		MemoryStorage: !p.e.Replicated,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open consumer %s: %w", p.name, err)
	}
	if err := consumers.Patiently(ctx, func(ctx context.Context) error { // a reset that comes late is seen by the count of deliveries
		_, err := p.e.JS.ResetConsumer(ctx, stream, p.name)
		return err
	}); err != nil {
		return nil, fmt.Errorf("cannot reset consumer %s: %w", p.name, err)
	}
	failpoint.Hit("after-reset")
	return cons, nil
}

// next waits for a command and takes those that have arrived behind it.
func (p *partition) next(ctx context.Context, incoming <-chan jetstream.Msg, broken <-chan error, moved <-chan nats.Status) ([]delivery, error) {
	var batch []delivery
	for len(batch) == 0 {
		var finished <-chan error
		if p.finishing != nil {
			finished = p.finishing.done
		}
		select {
		case m := <-incoming:
			d, err := p.receive(m)
			if err != nil {
				return nil, err
			}
			batch = append(make([]delivery, 0, 16), d)
		case <-p.idle.C:
			p.evictIdle()
		case <-p.acker.Due():
			if p.finishing == nil { // else its end may purge, or the next tick
				if err := p.acker.Purge(ctx); err != nil {
					return nil, err
				}
			}
		case err := <-finished:
			if err := p.finished(err); err != nil {
				return nil, err
			}
		case err := <-broken:
			return nil, fmt.Errorf("the consumer fails: %w", err)
		case <-moved: // the consumer went with its server; missing heartbeats would show that only after seconds
			return nil, errors.New("the connection was made anew")
		case <-p.leave:
			return nil, errLeft
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for len(batch) < p.e.Batch {
		select {
		case m := <-incoming:
			d, err := p.receive(m)
			if err != nil {
				return nil, err
			}
			batch = append(batch, d)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// takeBatch processes a batch: all of it, or up to the command alone one at a time, each to its end.
func (p *partition) takeBatch(ctx context.Context, batch []delivery) error {
	if !p.recovered {
		if err := p.examine(ctx, batch); err != nil {
			return err
		}
	}
	last := batch[len(batch)-1]
	for len(batch) > 0 && batch[0].seq <= p.alone {
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		if err := p.process(ctx, batch[:1]); err != nil {
			return err
		}
		if err := p.awaitFinished(); err != nil {
			return err
		}
		batch = batch[1:]
	}
	if len(batch) > 0 {
		if err := p.process(ctx, batch); err != nil {
			return err
		}
	}
	if err := p.clearNote(ctx, last); err != nil {
		return err
	}
	if p.recovered || last.seq >= p.alone {
		p.turn.End()
	}
	return nil
}

// receive reads the position of a message. Deliveries count from 1 after a reset. A gap means that another process takes from the same consumer: what it took must be done before.
func (p *partition) receive(m jetstream.Msg) (delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return delivery{}, fmt.Errorf("cannot read the metadata of a command: %w", err)
	}
	d := delivery{msg: m, seq: meta.Sequence.Stream, consumer: meta.Sequence.Consumer, time: meta.Timestamp, delivered: meta.NumDelivered, pending: meta.NumPending}
	if p.e.stamp != nil {
		d.time = p.e.stamp(d.time)
	}
	if d.consumer != p.last+1 {
		return delivery{}, fmt.Errorf("delivery %d follows %d: another process takes commands of partition %d", d.consumer, p.last, p.n)
	}
	p.last, p.top = d.consumer, max(p.top, d.seq)
	return d, nil
}
