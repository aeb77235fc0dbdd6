package engine

// Publishing what a batch has decided. publish, called by finish (commit.go) when the values are written, turns the outboxes of the entities into messages: the events of each
// entity as a chain, in which each states the sequence of the one before, and beside them effects, timers (timers.go), answers under keys (answers.go) and dead letters. If it
// fails, the outbox is still in the stored value: whoever loads the entity next finds out what its streams lack (reconcile.go), and publishes that.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/reconcile"
	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// chain is the events that one entity emits in a batch.
type chain struct {
	publish.Chain
	cached   *cachedEntity
	messages []machines.Message // beside Msgs

	past      int // how many of Msgs the stream has had, and has no longer
	conflicts int // how often it was not where the stream is, without having come further
}

// publish sends what the transitions have emitted, the messages of each entity in order, and the dead letters of the batch. The tasks of an entity that is new, as far as is
// known, wait for its events: publishing these shows whether there was an earlier life, above whose versions the fences have to be. So do answers that refuse.
func (p *partition) publish(ctx context.Context, entities []*cachedEntity, items []*item) error {
	var chains []*chain
	var timers []schedule
	var writes, afterEvents []publish.Write
	for _, s := range entities {
		answers, err := p.storeAnswers(s)
		if err != nil {
			return err
		}
		if len(s.transient) > 0 { // events of refusals among them: once the answer is kept, nothing brings them back
			afterEvents, answers = append(afterEvents, answers...), nil
		}
		writes = append(writes, answers...)
		messages := append(s.outbox, s.transient...)
		s.outbox, s.transient = nil, nil
		c := &chain{Chain: publish.Chain{Filter: p.e.Names.EventsOf(s.m.Name, s.key), Last: s.lastEvent}, cached: s}
		for i := range messages {
			w, err := consumers.WriteOf(p.e.Names, s.m, s.key, s.entity.Birth, &messages[i])
			if err != nil {
				return err
			}
			switch {
			case messages[i].Kind == machines.KindEvent:
				c.Msgs = append(c.Msgs, w.Msg)
				c.messages = append(c.messages, messages[i])
			case messages[i].Kind == machines.KindTimer:
				timers = append(timers, schedule{cached: s, msg: &messages[i], Write: w})
			case messages[i].Version == s.baseVersion+1:
				afterEvents = append(afterEvents, w)
			default:
				writes = append(writes, w)
			}
		}
		if len(c.Msgs) > 0 {
			chains = append(chains, c)
		}
	}
	for _, it := range items {
		if it.deadLetter == "" {
			continue
		}
		if there, err := p.hasDeadLetter(ctx, it); err != nil {
			return err
		} else if !there {
			writes = append(writes, p.deadLetterOf(it))
		}
	}
	others := make(chan error, 2)
	go func() { others <- p.publishOthers(ctx, writes) }()
	go func() { others <- p.publishTimers(ctx, timers) }()
	err := p.publishChains(ctx, chains)
	failpoint.Hit("after-events")
	if err := errors.Join(err, <-others, <-others); err != nil || len(afterEvents) == 0 {
		return err
	}
	return p.publishOthers(ctx, afterEvents)
}

func (p *partition) publishOthers(ctx context.Context, writes []publish.Write) error {
	for i, r := range p.e.Appender.Append(ctx, writes) {
		if publish.Permanent(r.Err) {
			if err := p.e.Bury(ctx, p.name, writes[i].Msg, r.Err); err != nil {
				return err
			}
		} else if r.Err != nil {
			return fmt.Errorf("cannot publish to %s: %w", writes[i].Msg.Subject, r.Err)
		}
	}
	return nil
}

// publishChains publishes the events. Where the stream's last event of an entity is not the expected one, it is looked up: it may be one of these (an earlier try was stored), an
// older one, or that of another owner. An event that the stream never takes becomes a dead letter, and those after it follow the one before it.
func (p *partition) publishChains(ctx context.Context, chains []*chain) error {
	for len(chains) > 0 {
		open := make([]*publish.Chain, len(chains))
		for i, c := range chains {
			open[i] = &c.Chain
		}
		p.e.Appender.AppendChains(ctx, p.e.Names.Stream(streams.EventStream), open)
		var again []*chain
		for _, c := range chains {
			c.cached.lastEvent = c.Last
			var err error
			switch {
			case c.Err == nil:
			case errors.Is(c.Err, publish.ErrConflict):
				err = p.resync(ctx, c)
			case publish.Permanent(c.Err):
				err = p.skipEvent(ctx, c)
			default:
				err = fmt.Errorf("cannot publish the events of %s %s: %w", c.cached.m.Name, c.cached.key, c.Err)
			}
			if err != nil {
				return err
			}
			if c.Done < len(c.Msgs) {
				again = append(again, c)
			}
		}
		chains = again
	}
	return nil
}

// skipEvent makes a dead letter of the event that the stream refuses for good. In a group it is found first.
func (p *partition) skipEvent(ctx context.Context, c *chain) error {
	if len(c.Msgs)-c.Done == 1 || c.Single {
		if err := p.e.Bury(ctx, p.name, c.Msgs[c.Done], c.Err); err != nil {
			return err
		}
		c.Msgs, c.messages = slices.Delete(c.Msgs, c.Done, c.Done+1), slices.Delete(c.messages, c.Done, c.Done+1)
	}
	c.Single, c.Err = true, nil
	return nil
}

// resync finds out where a chain really stands. What the stream acknowledges as a duplicate and does not have, somebody has removed: it is past.
func (p *partition) resync(ctx context.Context, c *chain) error {
	s := c.cached
	if c.conflicts++; c.conflicts == 4 {
		return fmt.Errorf("cannot publish the events of %s %s: %w", s.m.Name, s.key, c.Err)
	}
	last, err := p.e.reader().LastEvent(ctx, s.m.Name, s.key)
	if err := errors.Join(err, p.e.Synced(ctx, s.m.Plural)); err != nil {
		return err
	}
	switch { // when it is loaded, it is reconciled
	case last.Foreign(s.entity.Birth, s.baseVersion, c.messages):
		return fmt.Errorf("%s %s has event %s of a life that is lost: %w", s.m.Name, s.key, last.ID, errSpeculation)
	case last.Version > s.entity.Version:
		return fmt.Errorf("%s %s has an event of version %d, this owner knows %d: %w", s.m.Name, s.key, last.Version, s.entity.Version, publish.ErrConflict)
	case last.Seq < c.Last && p.anew(): // what was stored before, of earlier versions too, may be lost
		return fmt.Errorf("%s %s has events up to %d only, this owner knows %d: the server was started anew", s.m.Name, s.key, last.Seq, c.Last)
	}
	rest := reconcile.Unpublished(s.m.Name, s.key, c.messages, &last, &s.entity, p.found.Now())
	if c.Duplicate && c.Done > c.past {
		c.past, c.conflicts = c.Done, 0
	}
	c.Done, c.Last, c.Duplicate, c.Single, c.Err, s.lastEvent = max(len(c.messages)-len(rest), c.past), last.Seq, false, true, nil, last.Seq
	return nil
}
