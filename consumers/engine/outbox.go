package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// chain is the events that one entity emits in a batch.
type chain struct {
	streams.Chain
	slot     *slot
	messages []machines.Message // beside Msgs
}

// message builds what is published for one entry of an outbox.
func (e *Engine) message(s *slot, m *machines.Message) (streams.Write, error) {
	return consumers.Published(e.Names, s.m, s.key, s.entity.Birth, m)
}

// publishChains publishes the events. Where the stream says that an entity's last event is another one than thought,
// it is looked up: it is one of these (a try before was stored), or older, or somebody else's. One that the stream never
// takes becomes a dead letter, and those after it follow the one before it.
func (p *partition) publishChains(ctx context.Context, chains []*chain) error {
	for conflicts := 0; len(chains) > 0; {
		open := make([]*streams.Chain, len(chains))
		for i, c := range chains {
			open[i] = &c.Chain
		}
		p.e.Appender.AppendChains(ctx, p.e.Names.Stream(streams.EventStream), open)
		conflict := false
		var again []*chain
		for _, c := range chains {
			c.slot.lastEvent = c.Last
			var err error
			switch {
			case c.Err == nil:
			case errors.Is(c.Err, streams.ErrConflict):
				conflict = true
				err = p.realign(ctx, c)
			case streams.Permanent(c.Err):
				err = p.leaveOut(ctx, c)
			default:
				err = fmt.Errorf("cannot publish the events of %s %s: %w", c.slot.m.Name, c.slot.key, c.Err)
			}
			if err != nil {
				return err
			}
			if c.Done < len(c.Msgs) {
				again = append(again, c)
			}
		}
		if chains = again; conflict {
			conflicts++
		}
		if conflicts == 4 && len(chains) > 0 {
			return fmt.Errorf("cannot publish the events of %s %s: %w", chains[0].slot.m.Name, chains[0].slot.key, streams.ErrConflict)
		}
	}
	return nil
}

// leaveOut makes a dead letter of the event that the stream refuses for good. In a group it is found first.
func (p *partition) leaveOut(ctx context.Context, c *chain) error {
	if len(c.Msgs)-c.Done == 1 || c.Single {
		if err := p.bury(ctx, c.Msgs[c.Done], c.Err); err != nil {
			return err
		}
		c.Msgs, c.messages = slices.Delete(c.Msgs, c.Done, c.Done+1), slices.Delete(c.messages, c.Done, c.Done+1)
	}
	c.Single, c.Err = true, nil
	return nil
}

// realign finds out where a chain really stands.
func (p *partition) realign(ctx context.Context, c *chain) error {
	s := c.slot
	last, err := p.e.lastEvent(ctx, s)
	if err != nil {
		return err
	}
	if last.foreign(s, c.messages) { // when it is loaded, it is reconciled
		return fmt.Errorf("%s %s has event %s of a life that is lost: %w", s.m.Name, s.key, last.id, errGuess)
	}
	if last.version > s.entity.Version {
		return fmt.Errorf("%s %s has an event of version %d, this owner knows %d: %w", s.m.Name, s.key, last.version, s.entity.Version, streams.ErrConflict)
	}
	rest := unpublished(s.m.Name, s.key, c.messages, &last, &s.entity)
	c.Done, c.Last, c.Err = len(c.messages)-len(rest), last.seq, nil
	s.lastEvent = last.seq
	return nil
}
