package engine

import (
	"context"
	"maps"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Whenever an entity is loaded, its value is held against its events, timers and effects (see package reconcile): what is missing is published
// again, and what cannot be had again is told by an event, a log line and a metric.

func (e *Engine) reader() reconcile.Reader { return reconcile.Reader{NC: e.NC, Names: e.Names} }

// loadAbsent is for an entity without a value: its versions go on after those of its events and answers, so that no id of an event
// is given out twice. That the value is lost is told once.
func (p *partition) loadAbsent(ctx context.Context, it *item, last *reconcile.LastEvent) error {
	s := it.cached
	highest := last.Highest()
	if highest == 0 {
		return nil
	}
	s.entity.Version = max(highest, s.entity.Version)
	if told, err := p.e.reader().LossTold(ctx, s.m.Name, s.key); err != nil || told == highest {
		return err
	}
	if err := p.forgetLostAnswers(ctx, s, 0); err != nil {
		return err
	}
	p.reportProblem(s, consumers.ProblemValueLost, last)
	msg := it.event(machines.EventReconciled, last.Describe(consumers.ProblemValueLost, 0))
	msg.Refusal, msg.N = it.seq, int(highest) // #nosec G115 -- what JSON can say; the same command may come again when more was lost, and each loss is told
	s.transient = append(s.transient, msg)
	return nil
}

// reconcile holds a loaded entity against its last event and the last answer to a key.
func (p *partition) reconcile(ctx context.Context, it *item, outbox []machines.Message, last *reconcile.LastEvent) error {
	s := it.cached
	foreign, lastOfLife := it.repaired == nil && last.Foreign(s.entity.Birth, s.baseVersion, outbox), last
	if foreign {
		lastOfLife = &reconcile.LastEvent{}
	}
	missing := reconcile.Unpublished(s.m.Name, s.key, outbox, lastOfLife, &s.entity, p.found.Now())
	problem, version := "", s.entity.Version
	switch {
	case it.repaired != nil:
		problem = consumers.ProblemRepaired // the answers go when nothing speaks against it any more
	case foreign:
		problem = consumers.ProblemValueOlder
		if err := p.forgetLostAnswers(ctx, s, 0); err != nil { // the value has those of its own
			return err
		}
	case last.Highest() > version:
		problem = consumers.ProblemValueOlder
		if err := p.forgetLostAnswers(ctx, s, version); err != nil {
			return err
		}
	case last.Seq < s.entity.LastEvent && s.entity.LastEvent >= last.Begin.Seq && p.found.Now().Sub(s.entity.UpdatedAt) < reconcile.EventLife:
		problem = consumers.ProblemEventsLost
	case len(missing) > 0:
		s.transient = append(s.transient, missing...)
		return nil
	default:
		return nil
	}
	in := machines.Input{Command: machines.CommandReconcile, Seq: it.seq, Time: it.time.UTC()}
	data := last.Describe(problem, version)
	if it.repaired != nil {
		in.Command, in.ID, in.Actor, in.Reason = machines.CommandRepair, it.id, it.actor, it.reason
		maps.Copy(data, it.repaired)
	} else {
		p.reportProblem(s, problem, last)
	}
	next, event, err := s.m.Reconciled(s.entity, max(last.Highest(), p.found.Above), in, data)
	if err != nil {
		return err
	}
	s.entity, s.dirty, s.dropped = next, true, s.dropped && it.repaired == nil
	if problem == consumers.ProblemEventsLost { // the ids of those that are missing are free again
		told := event
		told.Refusal = it.seq
		s.outbox = append(reconcile.ToldBefore(told, missing), event)
		return nil
	}
	s.outbox = append(append(s.outbox, event), reconcile.Renumbered(missing, next.Version)...) // of a value that was written after the loss; their ids are not free
	return nil
}

func (p *partition) reportProblem(s *cachedEntity, problem string, last *reconcile.LastEvent) {
	if p.readOnly {
		return
	}
	p.e.reconciled.Add(1)
	p.e.Meter.Reconciled(s.m.Name, problem)
	p.e.Log.Error("an entity and its events disagree; continuing with the value", "machine", s.m.Name, "key", s.key, "problem", problem,
		"version", s.entity.Version, "revision", s.revision, "lastEvent", last.ID, "lastEventSeq", last.Seq)
}

// resume publishes again what the entity waits for and its streams have lost: schedules of its timers, and effects that are neither to be done nor have a result on its way.
func (p *partition) resume(ctx context.Context, s *cachedEntity) (err error) {
	if len(s.entity.Timers) == 0 && len(s.entity.Effects) == 0 {
		return nil
	}
	for _, m := range s.m.Pending(s.entity) {
		var there bool
		if m.Kind == machines.KindTimer {
			armed, at, failed := p.armed(ctx, s, m.Name)
			there, err = armed == m.Version && at.Equal(m.At), failed
		} else {
			m.At = time.Now() // the stream may still know the id under which it was lost
			there, err = p.e.reader().UnderWay(ctx, s.m, s.key, &m, s.entity.Effects[m.Name].ID)
		}
		if err != nil {
			return err
		}
		if !there {
			s.transient = append(s.transient, m)
		}
	}
	return nil
}

// lacks reads an entity as its owner would, beside it: what is on its way meanwhile may look as if it were missing.
func (e *Engine) lacks(ctx context.Context, m *machines.Machine, key string, found reconcile.History) (bool, error) {
	namespace, parent, id, err := streams.SplitKey(key)
	if err != nil {
		return false, nil // no door lets it in; the index tells of it
	}
	it := &item{addr: streams.Address{Machine: m.Name, Key: key, Last: machines.CommandReconcile}, machine: m}
	it.time, it.answer.Namespace, it.answer.Parent, it.answer.ID = found.Now(), namespace, parent, id
	p := &partition{e: e, readOnly: true, found: found}
	it.cached = p.newCached(it)
	if err := p.read(ctx, it); err != nil {
		return false, err
	}
	return it.cached.parked == nil && (it.cached.dirty || len(it.cached.transient) > 0), nil
}
