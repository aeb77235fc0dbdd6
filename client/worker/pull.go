package worker

// How tasks come: take asks the consumer for as many as can be begun at once, with one subscription for all requests, and begins each when it arrives. So nothing waits here
// that nobody would tell the server to be in progress, and many tasks cost one request.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pull is how long one request for tasks waits, at most: within an ack wait several are answered. It is not cut off when the worker stops: the server could send a task to nobody then.
const pull = time.Second

// errGone says that the consumer is to be looked up anew.
var errGone = errors.New("the queue is gone")

// puller counts what is under way. It is for one goroutine.
type puller struct {
	k              *kind
	subject, inbox string          // of requests, and of what comes
	expires        time.Duration   // of a request
	asked          int             // tasks that may still come
	missed         bool            // requests were given up for lost, and nothing has come since
	running        map[string]bool // by where their messages are in the stream
	ended          chan string     // has room for all
	last           time.Time       // when the last request was sent
	heard          time.Time       // when the last word of the server came, or nothing was asked: what comes was sent later
}

func (k *kind) puller() *puller {
	return &puller{k: k, running: map[string]bool{}, ended: make(chan string, k.w.opts.Concurrency)}
}

// wait returns when all tasks that were begun are at their end.
func (p *puller) wait() {
	for len(p.running) > 0 {
		delete(p.running, <-p.ended)
	}
	_ = p.k.w.opts.NC.FlushTimeout(time.Second) // acks; without them the tasks come again, and nobody waits for them
}

// take begins tasks until ctx ends or the consumer is gone; those that were begun go on.
func (p *puller) take(ctx, work context.Context, cons jetstream.Consumer) (err error) {
	k, most := p.k, p.k.w.opts.Concurrency
	nc, info := k.w.opts.NC, cons.CachedInfo()
	p.inbox, p.subject, p.asked = nc.NewInbox(), k.w.api+".CONSUMER.MSG.NEXT."+info.Stream+"."+info.Name, 0
	p.expires, p.heard, p.missed = min(pull, k.ackWait/8), time.Now(), false
	arriving := make(chan *nats.Msg, 2*most+64) // no more can come
	sub, err := nc.ChanSubscribe(p.inbox, arriving)
	if err != nil {
		return fmt.Errorf("cannot ask for tasks: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	tick := time.NewTicker(max(p.expires/4, 10*time.Millisecond))
	defer tick.Stop()
	over := ctx.Done()
	for over != nil || p.asked > 0 {
		if err := p.look(); err != nil {
			return err
		}
		if over != nil {
			if err := p.ask(most); err != nil {
				return err
			}
		}
		select {
		case m := <-arriving:
			if err := p.look(); err != nil {
				return err
			}
			if m.Reply == "" {
				if err := p.status(m); err != nil {
					return err
				}
			} else {
				p.arrived(work, m, most, over == nil)
			}
			p.heard, p.missed = time.Now(), false
		case id := <-p.ended:
			delete(p.running, id)
		case <-tick.C:
			if p.asked > 0 && time.Since(p.last) > p.expires+min(pull/2, k.ackWait/8) {
				p.asked, p.missed = 0, true
			}
			if nc.IsClosed() {
				return nats.ErrConnectionClosed
			}
		case <-over:
			over = nil
		}
	}
	return nil
}

// look fails where nothing was heard of the server for so long that what it has sent since may be with another worker: it is read by nobody then, and comes again. The server answers each
// request, so it makes no difference whether this worker was held up or what was sent was: the network may bring it late.
func (p *puller) look() error {
	if late(p.heard, p.k.ackWait) {
		return errHeld
	}
	if p.asked == 0 && !p.missed {
		p.heard = time.Now()
	}
	return nil
}

// arrived begins a task, or gives it back: when the worker stops, and when it has enough, because a request that was given up for lost was answered after all. One that is under way here and is
// delivered again, as when the worker was held up for long, is left to the delivery that has begun: the server takes its ack for the later one, too.
func (p *puller) arrived(work context.Context, m *nats.Msg, most int, stopping bool) {
	p.asked = max(p.asked-1, 0)
	id := m.Reply
	if meta, err := m.Metadata(); err == nil {
		id = fmt.Sprint(meta.Sequence.Stream, " ", meta.Timestamp.UnixNano())
	}
	switch {
	case p.running[id]:
	case stopping || len(p.running) >= most:
		_ = m.Nak() // at worst it comes when its ack is overdue
	default:
		p.begin(work, m, id)
	}
}

func (p *puller) begin(work context.Context, m *nats.Msg, id string) {
	p.running[id] = true
	p.k.running.Add(1)
	d := &delivery{Msg: m, wait: p.k.ackWait, alive: p.heard}
	go func() {
		defer func() { p.k.running.Add(-1); p.ended <- id }()
		if err := p.k.task(work, d); err != nil {
			p.k.w.opts.Log.Warn("a task is left for its next delivery", "subject", m.Subject, "error", err)
		}
	}()
}

// ask requests as many tasks as can be begun, if that are not few while others are on their way.
func (p *puller) ask(most int) error {
	free := most - len(p.running) - p.asked
	if free < 1 || p.asked > 0 && free < most/4+1 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"batch": free, "expires": p.expires})
	if err != nil {
		return err
	}
	if err := p.k.w.opts.NC.PublishRequest(p.subject, p.inbox, raw); err != nil {
		return fmt.Errorf("cannot ask for tasks: %w", err)
	}
	p.asked += free
	p.last = time.Now()
	return nil
}

// status is what the server says instead of a task: that so many of a request will not come, and why.
func (p *puller) status(m *nats.Msg) error {
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil {
		left = 0
	}
	p.asked = max(p.asked-left, 0)
	switch code := m.Header.Get("Status"); code {
	case "408", "404", "100": // its time is over
		return nil
	case "409":
		switch m.Header.Get("Description") {
		case "Batch Completed", "Message Size Exceeds MaxBytes":
			return nil
		}
		fallthrough
	default:
		return fmt.Errorf("%w: %s %s", errGone, code, m.Header.Get("Description"))
	}
}
