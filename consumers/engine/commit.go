package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// process takes a batch through the commit protocol, in as few commits as the bounds on a value allow.
func (p *partition) process(ctx context.Context, batch []delivery) error {
	items := make([]*item, len(batch))
	for i, d := range batch {
		items[i] = p.read(d)
	}
	if err := p.load(ctx, items); err != nil {
		return err
	}
	defer p.e.busy[p.n].Store(0)
	for len(items) > 0 {
		p.e.busy[p.n].Store(int64(p.e.now()))
		n := 0
		for n < len(items) {
			s := items[n].slot
			if s != nil && s.settling { // nothing may overtake what it emitted before
				if err := p.settled(); err != nil {
					return err
				}
			}
			// What one commit adds must be bounded, and be remembered whole: a command that comes again is answered from it.
			// Each commit takes one command at least.
			if s != nil && n > 0 && (s.size > maxOutbox || s.dirty && p.failures[items[n].seq] > 0 || items[n].reconciles()) { // one that failed is tried alone
				break
			}
			if items[n].reconciles() {
				if err := p.reload(ctx, items[n]); err != nil {
					return err
				}
				if err := p.recall(ctx, items[n:]); err != nil { // the entity may have lost some answers
					return err
				}
			}
			if s != nil {
				p.handle(items[n])
				if s.unsure() {
					var err error
					if items[n], err = p.ascertain(ctx, items[n]); err != nil {
						return err
					}
				}
			}
			n++
		}
		if err := p.commit(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	p.evict()
	return nil
}

// commit is steps 3 and 4 of the protocol for commands that were handled in memory. Steps 5 and 6 go on beside the
// next batch, which waits for them before it touches the same entities and before it publishes anything itself.
func (p *partition) commit(ctx context.Context, items []*item) error {
	slots := touched(items)
	for _, s := range slots {
		s.keepArmed()
	}
	if !p.e.may() {
		return errLapsed
	}
	failpoint.Hit("before-kv")
	if err := p.write(ctx, slots); err != nil {
		p.replyWritten(items)
		return err
	}
	failpoint.Hit("after-kv")
	for _, it := range items {
		if s := it.slot; s != nil && s.fresh > 0 {
			s.ended()
		}
		if !it.late() {
			p.reply(it)
		}
	}
	if err := p.settled(); err != nil {
		return err
	}
	for _, it := range items {
		it.sweep = p.broom.takes(it)
	}
	s := &settlement{items: items, slots: slots, done: make(chan error, 1)}
	for _, slot := range slots {
		slot.settling = true
	}
	p.settling = s
	go func() { s.done <- p.settle(ctx, s) }()
	return nil
}

// settlement is the end of a batch: publishing and acking.
type settlement struct {
	items []*item
	slots []*slot
	done  chan error
}

// settle is steps 5 and 6.
func (p *partition) settle(ctx context.Context, s *settlement) error {
	failpoint.Hit("before-publish")
	if err := p.publish(ctx, s.slots, s.items); err != nil {
		return err
	}
	for _, it := range s.items {
		if it.letter != "" && !it.parked() {
			p.reply(it)
		}
	}
	p.cancelTimers(ctx, s.slots)
	failpoint.Hit("before-ack")
	for _, it := range s.items {
		if err := p.ack(ctx, it); err != nil {
			return fmt.Errorf("cannot ack command %d: %w", it.seq, err)
		}
		failpoint.Hit("between-acks")
	}
	if p.broom == nil {
		return nil
	}
	p.broom.note(s.items)
	return p.sweep(ctx)
}

// ack ends a command, unless it is swept with others. What is refused because its entity is parked is answered only when
// it cannot come again: nothing remembers the refusal, and somebody may repair the value meanwhile.
func (p *partition) ack(ctx context.Context, it *item) error {
	if it.sweep {
		return nil
	}
	if !it.parked() {
		p.e.Acking.Lock()
		defer p.e.Acking.Unlock()
		if it.seq <= p.alone { // it must be gone if the next one ends the process
			return it.msg.DoubleAck(ctx)
		}
		return it.msg.Ack()
	}
	if err := it.msg.DoubleAck(ctx); err != nil {
		return err
	}
	p.reply(it)
	return nil
}

// settled waits for the end of the batch before, if it has not come yet.
func (p *partition) settled() error {
	if p.settling == nil {
		return nil
	}
	return p.ended(<-p.settling.done)
}

// ended takes note of the end of the batch before.
func (p *partition) ended(err error) error {
	s := p.settling
	p.settling = nil
	for _, slot := range s.slots {
		slot.settling = false
	}
	if err != nil {
		return err
	}
	for _, slot := range s.slots {
		slot.kept()
	}
	for _, it := range s.items {
		delete(p.failures, it.seq)
		if it.letter != "" {
			p.e.Meter.DeadLetter(p.name)
		}
	}
	return nil
}

// touched are the slots of a batch with something to write, to publish or to keep, in the order of their first command.
func touched(items []*item) []*slot {
	var slots []*slot
	seen := map[*slot]bool{}
	for _, it := range items {
		if s := it.slot; s != nil && !seen[s] && (s.dirty || len(s.loose) > 0 || s.owes()) {
			seen[s] = true
			slots = append(slots, s)
		}
	}
	return slots
}

// write is the commit point: every changed entity once, at its revision, all together.
func (p *partition) write(ctx context.Context, slots []*slot) error {
	var writes []streams.Write
	var owners []*slot
	for _, s := range slots {
		if !s.dirty {
			continue
		}
		value, err := s.value()
		if err != nil {
			p.blame(s)
			return fmt.Errorf("cannot write %s %s: %w", s.m.Name, s.key, err)
		}
		writes = append(writes, kv.WriteAt(p.e.Names.Bucket(s.m.Plural), s.key, value, s.revision))
		owners = append(owners, s)
	}
	var errs []error
	for i, r := range p.e.Appender.Append(ctx, writes) {
		s := owners[i]
		if r.Err == nil {
			s.revision, s.dirty, s.taken, s.unstored, s.guessed = r.Seq, false, nil, false, false
			continue
		}
		err := r.Err
		switch conflict := errors.Is(err, streams.ErrConflict); {
		case conflict && s.guessed:
			err = fmt.Errorf("%w: %w", errGuess, err)
		case conflict:
			p.e.Meter.Conflict(s.m.Name)
		case streams.Permanent(err):
			p.blame(s)
		}
		errs = append(errs, fmt.Errorf("cannot write %s %s at revision %d: %w", s.m.Name, s.key, s.revision, err))
	}
	return errors.Join(errs...)
}

// blame counts a failed write against the commands that it would have stored.
func (p *partition) blame(s *slot) {
	for _, seq := range s.taken {
		p.failures[seq]++
	}
}

// value is the entity as it is stored.
func (s *slot) value() ([]byte, error) {
	e := s.entity
	e.LastEvent, e.Commands, e.Outbox = s.lastEvent, s.unkept(), s.outbox
	if s.dataOf != e.Data {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return nil, err
		}
		s.data, s.dataOf = data, e.Data
	}
	e.Data = s.data
	value, err := e.AppendJSON(make([]byte, 0, max(s.length+s.length/4, 1536)))
	s.length = len(value)
	return value, err
}

// replyWritten answers for those entities of a failed write that were written: their commands come again, too, and are
// not answered twice by anybody who listens.
func (p *partition) replyWritten(items []*item) {
	for _, it := range items {
		if it.slot != nil && !it.slot.dirty && !it.late() {
			p.reply(it)
		} else if it.end != nil {
			it.end(streams.ErrUnanswered)
		}
	}
}

// reply answers the waiter of a command: the commit point has passed.
func (p *partition) reply(it *item) {
	if it.repaired != nil {
		p.e.Log.Warn("the value of a parked entity was replaced", "machine", it.slot.m.Name, "key", it.slot.key, "revision", it.repaired["replacedRevision"], "actor", it.actor, "reason", it.reason)
	}
	if it.end != nil {
		it.end(nil)
	}
	if it.reply == "" {
		return
	}
	body, err := it.bytes()
	if err != nil {
		p.e.Log.Error("cannot write an answer", "error", err)
		return
	}
	m := &nats.Msg{Subject: it.reply, Data: body}
	if it.replayed {
		m.Header = nats.Header{streams.HeaderReplayed: {"true"}}
	}
	if err := p.e.NC.PublishMsg(m); err != nil {
		p.e.Log.Warn("cannot answer a command; its sender asks again", "seq", it.seq, "error", err)
	}
}

// bytes is the answer as it is sent and kept. The commit of the command has passed.
func (it *item) bytes() ([]byte, error) {
	if it.raw != nil {
		return it.raw, nil
	}
	if it.slot != nil && !it.revised {
		it.answer.Revision = it.slot.at()
	}
	var err error
	it.raw, err = it.answer.AppendJSON(make([]byte, 0, 384))
	return it.raw, err
}

// publish is step 5: what the transitions emit, entity by entity in order, and the dead letters of the batch. Where a life begins that none is known
// to have been before, its tasks wait for its events: these find out whether one was, above whose versions the fences have to be.
func (p *partition) publish(ctx context.Context, slots []*slot, items []*item) error {
	var chains []*chain
	var timers []schedule
	var writes, first []streams.Write
	for _, s := range slots {
		answers, err := p.keep(s)
		if err != nil {
			return err
		}
		writes = append(writes, answers...)
		messages := append(s.outbox, s.loose...)
		s.outbox, s.loose = nil, nil
		c := &chain{Chain: streams.Chain{Filter: p.e.Names.EventsOf(s.m.Name, s.key), Last: s.lastEvent}, slot: s}
		for i := range messages {
			w, err := p.e.message(s, &messages[i])
			if err != nil {
				return err
			}
			switch {
			case messages[i].Kind == machines.KindEvent:
				c.Msgs = append(c.Msgs, w.Msg)
				c.messages = append(c.messages, messages[i])
			case messages[i].Kind == machines.KindTimer:
				timers = append(timers, schedule{slot: s, msg: &messages[i], Write: w})
			case s.begins(&messages[i]):
				first = append(first, w)
			default:
				writes = append(writes, w)
			}
		}
		if len(c.Msgs) > 0 {
			chains = append(chains, c)
		}
	}
	for _, it := range items {
		if it.letter == "" {
			continue
		}
		if there, err := p.buried(ctx, it); err != nil {
			return err
		} else if !there {
			writes = append(writes, p.letter(it))
		}
	}
	others := make(chan error, 2)
	go func() { others <- p.publishOthers(ctx, writes) }()
	go func() { others <- p.publishTimers(ctx, timers) }()
	err := p.publishChains(ctx, chains)
	failpoint.Hit("after-events")
	if err := errors.Join(err, <-others, <-others); err != nil || len(first) == 0 {
		return err
	}
	return p.publishOthers(ctx, first)
}

func (p *partition) publishOthers(ctx context.Context, writes []streams.Write) error {
	for i, r := range p.e.Appender.Append(ctx, writes) {
		if streams.Permanent(r.Err) {
			if err := p.bury(ctx, writes[i].Msg, r.Err); err != nil {
				return err
			}
		} else if r.Err != nil {
			return fmt.Errorf("cannot publish to %s: %w", writes[i].Msg.Subject, r.Err)
		}
	}
	return nil
}
