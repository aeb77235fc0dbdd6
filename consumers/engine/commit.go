package engine

// A batch of commands in the commit protocol. process, called by takeBatch (partition.go), loads the entities, has each command decided (handle in decide.go) and calls commit,
// which writes the changed entities at their revisions (write), replies to the senders (answers.go) and starts finish: outboxes are published (publish.go) and commands acked
// (ack.go) while the next batch is already processed. An error ends the loop of the partition (partition.go), which starts again from its ack floor.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/streams/publish"
)

// process takes a batch through the commit protocol, in as few commits as the bounds on a value allow.
func (p *partition) process(ctx context.Context, batch []delivery) (err error) {
	items := make([]*item, len(batch))
	for i, d := range batch {
		items[i] = p.newItem(d)
	}
	if err := p.load(ctx, items); err != nil {
		return err
	}
	defer p.e.busy[p.n].Store(0)
	for len(items) > 0 {
		p.e.busy[p.n].Store(int64(p.e.now()))
		n := 0
		for ; n < len(items); n++ {
			it, s := items[n], items[n].cached
			if s == nil { // it cannot be addressed, and becomes a dead letter
				continue
			}
			if s.finishing { // nothing may overtake what it emitted before
				if err := p.awaitFinished(); err != nil {
					return err
				}
			}
			// What one commit adds must be bounded, and be remembered whole: a command that comes again is answered from it. Each commit takes one command at least.
			if n > 0 && (s.size > MaxOutbox || s.dirty && p.failures[it.seq] > 0 || it.reconciles()) { // one that failed is tried alone
				break
			}
			if it.reconciles() {
				if err := p.reload(ctx, items[n:]); err != nil {
					return err
				}
				p.e.busy[p.n].Store(int64(p.e.now())) // what it has waited for has an end
			}
			p.handle(it)
			if s.unverified() {
				p.e.busy[p.n].Store(int64(p.e.now())) // it may wait for as long as a read has, each time
				if items[n], err = p.verify(ctx, it); err != nil {
					return err
				}
			}
		}
		if err := p.commit(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	p.evict()
	return nil
}

// commit writes what was decided in memory, and replies. finish then runs beside the next batch, which waits for it before it touches the same entities, and before it publishes.
func (p *partition) commit(ctx context.Context, items []*item) error {
	entities := touched(items)
	for _, s := range entities {
		s.dropReplacedTimers()
	}
	if n := p.e.Node; n != nil && !n.LeaseValid() { // a process that was suspended finds out here, before it writes what it decided from memory
		return errLeaseLost
	}
	failpoint.Hit("before-kv")
	if err := p.write(ctx, entities); err != nil {
		p.replyWritten(items)
		return err
	}
	failpoint.Hit("after-kv")
	var err error
	if slices.ContainsFunc(items, func(it *item) bool { return it.stored }) {
		err = p.e.Synced(ctx)
	}
	if slices.ContainsFunc(items, (*item).bare) { // else a loss of power could take both the command and what was told of it
		err = errors.Join(err, p.e.Accepted(ctx))
	}
	if err != nil {
		return err
	}
	for _, it := range items {
		if s := it.cached; s != nil && s.newOutcomes > 0 {
			s.committed()
		}
		if !it.late() {
			p.reply(it)
		}
	}
	if err := p.awaitFinished(); err != nil {
		return err
	}
	for _, it := range items {
		it.known = p.known(it)
	}
	s := &finishing{items: items, entities: entities, done: make(chan error, 1)}
	for _, e := range entities {
		e.finishing = true
	}
	p.finishing = s
	go func() { s.done <- p.finish(ctx, s) }()
	return nil
}

// finishing is the end of a batch: publishing and acking.
type finishing struct {
	items    []*item
	entities []*cachedEntity
	done     chan error
}

// finish publishes, and acks or has acked.
func (p *partition) finish(ctx context.Context, s *finishing) error {
	failpoint.Hit("before-publish")
	if err := p.publish(ctx, s.entities, s.items); err != nil {
		return err
	}
	for _, it := range s.items {
		if it.deadLetter != "" && !it.parked() {
			p.reply(it)
		}
	}
	p.cancelTimers(ctx, s.entities)
	failpoint.Hit("before-ack")
	for _, it := range s.items {
		if !it.known {
			if err := p.ackNow(ctx, it); err != nil {
				return fmt.Errorf("cannot ack command %d: %w", it.seq, err)
			}
		}
	}
	if !p.acker.Takes() {
		p.acking.Go(func() { p.ackKnown(s.items) })
	}
	p.acker.Done(len(s.items), s.items[len(s.items)-1].seq)
	return p.acker.Purge(ctx)
}

// awaitFinished waits until the previous batch has finished.
func (p *partition) awaitFinished() error {
	if p.finishing == nil {
		return nil
	}
	return p.finished(<-p.finishing.done)
}

// finished records how the previous batch has ended.
func (p *partition) finished(err error) error {
	s := p.finishing
	p.finishing = nil
	for _, e := range s.entities {
		e.finishing = false
	}
	if err != nil {
		return err
	}
	for _, e := range s.entities {
		e.markAnswersStored()
	}
	for _, it := range s.items {
		delete(p.failures, it.seq)
		if it.deadLetter != "" {
			p.e.Meter.DeadLetter(p.name)
		}
	}
	return nil
}

// touched are the entities of a batch with something to write, to publish or to keep, in the order of their first command.
func touched(items []*item) []*cachedEntity {
	var entities []*cachedEntity
	seen := map[*cachedEntity]bool{}
	for _, it := range items {
		if s := it.cached; s != nil && !seen[s] && (s.dirty || len(s.transient) > 0 || s.hasUnstoredAnswers()) {
			seen[s] = true
			entities = append(entities, s)
		}
	}
	return entities
}

// write is the commit point: every changed entity once, at its revision, all together.
func (p *partition) write(ctx context.Context, entities []*cachedEntity) error {
	var writes []publish.Write
	var owners []*cachedEntity
	room := p.room[:0]
	p.room = nil
	for _, s := range entities {
		if !s.dirty {
			continue
		}
		at := len(room)
		var err error
		if room, err = s.appendValue(room); err != nil {
			p.countFailure(s)
			return fmt.Errorf("cannot write %s %s: %w", s.m.Name, s.key, err)
		}
		writes = append(writes, p.writeOf(s, room[at:len(room):len(room)]))
		owners = append(owners, s)
	}
	var errs []error
	for i, r := range p.e.Appender.Append(ctx, writes) {
		s := owners[i]
		if r.Err == nil {
			s.revision, s.dirty, s.taken, s.unstored, s.speculative, s.whole = r.Seq, false, nil, false, false, nil
			continue
		}
		err := r.Err
		switch conflict := errors.Is(err, publish.ErrConflict); {
		case s.whole != nil && !conflict && errors.As(err, new(*publish.RefusedError)):
			p.undrop(s, err)
			continue
		case conflict && s.speculative:
			err = fmt.Errorf("%w: %w", errSpeculation, err)
		case conflict:
			p.e.Meter.Conflict(s.m.Name)
		case publish.Permanent(err):
			p.countFailure(s)
		}
		errs = append(errs, fmt.Errorf("cannot write %s %s at revision %d: %w", s.m.Name, s.key, s.revision, err))
	}
	if len(errs) == 0 && cap(room) <= maxRoom { // what has no answer may be sent yet
		p.room = room
	}
	return errors.Join(errs...)
}

// maxRoom is how much a partition keeps to write values in: usually that of some hundred.
const maxRoom = 256 << 10

// countFailure counts a failed write against the commands that it would have stored.
func (p *partition) countFailure(s *cachedEntity) {
	for _, seq := range s.taken {
		p.failures[seq]++
	}
}

// appendValue appends the entity as it is stored.
func (s *cachedEntity) appendValue(b []byte) ([]byte, error) {
	e := s.entity
	e.LastEvent, e.Commands, e.Outbox = s.lastEvent, s.outcomesToStore(), s.outbox
	if s.dataOf != e.Data {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return nil, err
		}
		s.data, s.dataOf = data, e.Data
	}
	if e.Data = s.data; s.dropped {
		e.Data = nil
	}
	return e.AppendJSON(b)
}
