package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

var readWithin = 40 * time.Second // for all of a read: as long as one question may wait for its place and its answer; a test shortens it

// read reads the entity of a command and its last event from their leaders, and compares them.
func (p *partition) read(ctx context.Context, it *item) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	s := it.cached
	bucket := p.e.Names.Bucket(s.m.Plural)
	var last reconcile.LastEvent
	var answered uint64
	var errEvent, errAnswer error
	var others sync.WaitGroup
	others.Go(func() { last, errEvent = p.e.reader().LastEvent(ctx, s.m.Name, s.key) })
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
	last.Answered = answered
	s.lastEvent, s.lastEventID = last.Seq, last.ID
	if s.parked != nil {
		return nil
	}
	if stored != nil {
		s.revision = stored.Sequence
	}
	if s.dropped = kv.Dropped(stored); kv.Absent(stored) && !s.dropped {
		return p.loadAbsent(ctx, it, &last)
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
		o.Kept = !answers.Keyed(s.m, o.Command, o.ID)
		if it.repaired == nil && o.State != machines.None { // else it is that of the value to come, or of none
			o.Revision = cmp.Or(o.Revision, s.revision)
		}
	}
	e.Commands, e.Outbox = nil, nil
	s.entity = e
	if last.Seq == 0 {
		if last.Begin, err = p.e.reader().Begin(ctx); err != nil {
			return err
		}
		last.Again = s.hasTaken(it) || p.found.Cut(&s.entity)
	}
	if err := p.reconcile(ctx, it, outbox, &last); err != nil {
		return err
	}
	lacks := s.hasTaken(it) || it.reconciles() || p.found.MayLack(&s.entity)
	if p.found.Ahead(&s.entity, p.top) {
		s.entity.Mark, s.entity.MarkedAt = 0, time.Time{}
	}
	s.entity.Mark = p.e.Marked(bucket, s.revision, s.entity.Mark)
	if lacks {
		if err := p.resume(ctx, s); err != nil {
			return err
		}
	}
	if it.repaired == nil {
		return nil
	}
	if it.bad = s.unstorable(); it.bad != nil {
		it.repaired, *s = nil, before
		p.park(s, why)
		return nil
	}
	return p.forgetLostAnswers(ctx, s, e.Version)
}

// reload loads the entity of the first of the commands anew, whatever memory has of it, and their answers, of which it may have lost some. The batch before has ended, and no command
// of this one is waiting for its commit.
func (p *partition) reload(ctx context.Context, items []*item) (err error) {
	it, s := items[0], items[0].cached
	if err := p.awaitFinished(); err != nil {
		return err
	}
	if it.addr.Last == machines.CommandDrop {
		if it.awaited, err = ended.Awaited(ctx, &p.e.Deps, s.m, s.key); err != nil {
			return err
		}
	}
	recent, revision := s.recent, s.revision
	*s = *p.newCached(it)
	s.round = p.round
	if err := p.read(ctx, it); err != nil {
		return err
	}
	if s.revision == revision && len(recent) > len(s.recent) { // memory has more of them than the value
		s.recent = recent
	}
	return p.lookUpAnswers(ctx, items)
}

// park leaves an entity alone whose value cannot be used: what is sent to it is refused, and goes to the dead letters.
func (p *partition) park(s *cachedEntity, why error) {
	s.parked = &machines.Refusal{Code: machines.CodeParked, Message: fmt.Sprintf("%s %s is parked: its stored value cannot be used", s.m.Name, s.key)}
	if !errors.Is(why, streams.ErrUnreadable) {
		s.parked.Allowed = []string{machines.CommandRepair}
	}
	if p.readOnly {
		return
	}
	p.e.Log.Error("an entity is parked: its stored value cannot be read", "machine", s.m.Name, "key", s.key, "revision", s.revision, "error", why)
}
