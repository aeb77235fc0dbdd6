package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// fill reads the entity of a command and its last event from their leaders, and compares them.
func (p *partition) fill(ctx context.Context, it *item) error {
	s := it.slot
	bucket := p.e.Names.Bucket(s.m.Plural)
	var last lastEvent
	var answered uint64
	var errEvent, errAnswer error
	var others sync.WaitGroup
	others.Go(func() { last, errEvent = p.e.lastEvent(ctx, s) })
	others.Go(func() { answered, errAnswer = p.e.answers().LastVersion(ctx, s.m.Name, s.key) })
	stored, err := kv.Read(ctx, p.e.NC, bucket, s.key)
	others.Wait()
	if errors.Is(err, streams.ErrUnreadable) {
		p.park(s, err)
		err = nil
	}
	if err = errors.Join(err, errEvent, errAnswer); err != nil {
		return fmt.Errorf("cannot load %s %s: %w", s.m.Name, s.key, err)
	}
	last.answered = answered
	s.lastEvent, s.lastEventID = last.seq, last.id
	if s.parked != nil {
		return nil
	}
	if stored != nil {
		s.revision = stored.Sequence
	}
	if kv.Absent(stored) {
		return p.reborn(ctx, it, &last)
	}
	e, err := s.m.DecodeAt(s.key, stored.Data)
	before, why := *s, err
	if it.addr.Last == machines.CommandRepair && it.msg != nil {
		e, err = p.repair(it, stored, e, err)
	}
	if err != nil {
		p.park(s, err)
		return nil
	}
	outbox := e.Outbox
	s.recent = e.Commands
	for i := range s.recent {
		o := &s.recent[i]
		o.Kept = !keyed(s.m, o.Command, o.ID)
		if it.repaired == nil { // else it is that of the value to come
			o.Revision = cmp.Or(o.Revision, s.revision)
		}
	}
	e.Commands, e.Outbox = nil, nil
	s.entity = e
	if last.seq == 0 {
		if last.kept, err = p.e.kept(ctx); err != nil {
			return err
		}
	}
	if err := p.reconcile(ctx, it, outbox, &last); err != nil {
		return err
	}
	lacks := s.took(it) || it.reconciles() || p.mayLack(&s.entity)
	if p.ahead(&s.entity) {
		s.entity.Mark, s.entity.MarkedAt = 0, time.Time{}
	}
	if lacks {
		if err := p.resume(ctx, s); err != nil {
			return err
		}
	}
	if it.repaired == nil {
		return nil
	}
	if it.bad = s.tooLarge(); it.bad != nil {
		it.repaired, *s = nil, before
		p.park(s, why)
		return nil
	}
	return p.disown(ctx, s, e.Version)
}

// reload loads the entity of a command anew, whatever memory has of it. The batch before has ended, and no command of this
// one is waiting for its commit.
func (p *partition) reload(ctx context.Context, it *item) error {
	if err := p.settled(); err != nil {
		return err
	}
	s := it.slot
	recent, revision := s.recent, s.revision
	*s = *p.newSlot(it)
	s.round = p.round
	if err := p.fill(ctx, it); err != nil {
		return err
	}
	if s.revision == revision && len(recent) > len(s.recent) { // memory has more of them than the value
		s.recent = recent
	}
	return nil
}

// park leaves an entity alone whose value cannot be used: what is sent to it is refused, and goes to the dead letters.
func (p *partition) park(s *slot, why error) {
	s.parked = &machines.Refusal{Code: machines.CodeParked, Message: fmt.Sprintf("%s %s is parked: its stored value cannot be used", s.m.Name, s.key)}
	if p.aside {
		return
	}
	p.e.Log.Error("an entity is parked: its stored value cannot be used", "machine", s.m.Name, "key", s.key, "revision", s.revision, "error", why)
}

// lastEvent is where the events of an entity end; sequence 0 says that there is none.
type lastEvent struct {
	seq      uint64
	id       string
	at       time.Time // when it was stored
	birth    string    // of the life that it is of; empty for one of an earlier version, or of nobody
	version  uint64    // of the entity when it was emitted
	kept     kept      // where there is none
	answered uint64    // version of the last answer that is kept under a key
}

// highest is the highest version that the entity is known to have had.
func (l *lastEvent) highest() uint64 { return max(l.version, l.answered) }

// lastEvent finds the entity's last event.
func (e *Engine) lastEvent(ctx context.Context, s *slot) (lastEvent, error) {
	m, err := streams.Last(ctx, e.NC, e.Names.Stream(streams.EventStream), e.Names.EventsOf(s.m.Name, s.key))
	if err != nil {
		return lastEvent{}, fmt.Errorf("cannot find the last event of %s %s: %w", s.m.Name, s.key, err)
	}
	if m == nil {
		return lastEvent{}, nil
	}
	h, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return lastEvent{}, fmt.Errorf("cannot read the headers of event %d: %w", m.Sequence, err)
	}
	last := lastEvent{seq: m.Sequence, id: streams.Header(h, streams.HeaderID), at: m.Time, birth: streams.Header(h, streams.HeaderBirth)}
	last.version = consumers.EventVersion(s.m.Name, s.key, last.id, m.Data)
	return last, nil
}
