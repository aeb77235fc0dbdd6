package reconcile

// Passes.Run runs beside the loops of the engine, which makes it, for as long as that does. Every 30 s, unless a pass is under way, it chooses the partitions of this process that are due (begin), those just taken over among them, and goes
// through the entities of each machine there: those that the index lists (Listed), and those that only events tell of (Missing). Of each it asks the owner's view whether something is missing (Lacks); inspect has the
// owner look again where it is.

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// The first pass follows the start, because that is when something may have been lost.
const (
	passEvery  = time.Hour        // between two passes over a partition
	again      = 5 * time.Minute  // the same, where something could not be looked at
	firstAfter = 30 * time.Second // of the start, so that what is under way then has ended; as often it is looked whether there is a partition to pass over
	within     = 2 * time.Hour    // of a pass over a machine's entities, if that is not faster than fastest
	fastest    = 200              // entities per second: some 800 reads, a quarter of a core
)

// Passes has the entities looked at that nobody sends a command to.
type Passes struct {
	consumers.Deps
	Indexes *index.Map    // of the machines
	After   time.Duration // when the first pass begins, and how often it is looked for partitions that were taken over; 0 is 30 s

	// Owns reports whether this process has a partition now.
	Owns func(partition int) bool
	// Lacks reads an entity as its owner would, beside it, and reports whether something is missing of it. What is on its way meanwhile may
	// look as if it were missing.
	Lacks func(ctx context.Context, m *machines.Machine, key string, found History) (bool, error)

	found  History               // the stream of commands, at the start of the pass
	passed map[int]time.Duration // when the last pass over a partition of this process ended, by the clock since boot; earlier where it is to be repeated
	due    map[int]bool          // the partitions that are passed over
	unsure map[int]bool          // those of them of which something could not be looked at
}

// Run looks at all entities of this process's partitions, again and again, until ctx ends. One that it has taken over is due: whoever had it before may not have come to it.
func (p *Passes) Run(ctx context.Context) {
	for wait.For(ctx, cmp.Or(p.After, firstAfter)) {
		if !p.begin() {
			continue
		}
		if _, err := (Reader{NC: p.NC, Names: p.Names}).Look(ctx, &p.found); err != nil && ctx.Err() == nil {
			p.Log.Warn("cannot ask the server for its time; entities are compared with their streams by the clock of this machine", "error", err)
		}
		for _, m := range p.Machines.All() {
			ix := p.Indexes.Get(m.Name)
			if ix == nil {
				continue
			}
			select {
			case <-ix.Ready():
				p.Listed(ctx, m, ix)
				p.Missing(ctx, m, ix)
			case <-ctx.Done():
				return
			}
		}
		p.end()
	}
}

// begin chooses the partitions that are to be passed over, and reports whether there are any.
func (p *Passes) begin() bool {
	now := boottime.Now()
	p.due, p.unsure = map[int]bool{}, map[int]bool{}
	for n := range streams.Partitions {
		at, ok := p.passed[n]
		switch {
		case !p.Owns(n):
			delete(p.passed, n)
		case !ok || now-at >= passEvery:
			p.due[n] = true
		}
	}
	return len(p.due) > 0
}

// looks reports whether an entity is to be looked at. A partition that has gone meanwhile is not passed over, also where it comes back.
func (p *Passes) looks(m *machines.Machine, key string) bool {
	n := streams.Partition(m.Name, key)
	if p.due[n] && !p.Owns(n) {
		delete(p.due, n)
	}
	return p.due[n]
}

// end notes the partitions that were passed over.
func (p *Passes) end() {
	if p.passed == nil {
		p.passed = map[int]time.Duration{}
	}
	for n := range p.due {
		switch now := boottime.Now(); {
		case !p.Owns(n):
		case p.unsure[n]:
			p.passed[n] = now - passEvery + again
		default:
			p.passed[n] = now
		}
	}
}

// Listed looks at the entities of a machine that the index lists.
func (p *Passes) Listed(ctx context.Context, m *machines.Machine, ix *index.Index) {
	tick := time.NewTicker(consumers.Spread(ix.Len(), within, fastest))
	defer tick.Stop()
	for q := (index.Query{Limit: 200}); ; {
		page := ix.List(q)
		for _, item := range page.Items {
			if !p.looks(m, item.Key) || item.Problem != "" {
				continue
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			p.inspect(ctx, m, item.Key)
		}
		if q.After = page.Next; q.After == "" {
			return
		}
	}
}

// Missing looks for entities of a machine that were born, as their events say, and that the index never had: their values
// are lost. It asks for the subjects of births only, one per entity, 100,000 at once, which are some 10 MB for a moment.
func (p *Passes) Missing(ctx context.Context, m *machines.Machine, ix *index.Index) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for _, filter := range p.births(m) {
		for offset := 0; ; {
			born, total, err := streams.Subjects(ctx, p.NC, p.Names.Stream(streams.EventStream), filter, offset)
			if err != nil {
				p.Log.Warn("cannot list new entities; retrying in the next pass", "machine", m.Name, "error", err)
				maps.Copy(p.unsure, p.due)
				return
			}
			tick.Reset(consumers.Spread(total, within, fastest)) // the index has none of what is missing
			for subject := range born {
				a, err := p.Names.ParseEvent(subject, m.Parent != "")
				if err != nil || !p.looks(m, a.Key) || !ix.NeverHad(a.Key) {
					continue
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				p.inspect(ctx, m, a.Key)
			}
			if offset += len(born); len(born) == 0 || offset >= total {
				break
			}
		}
	}
}

// births are the subjects of the events that tell of births.
func (p *Passes) births(m *machines.Machine) []string {
	var filters []string
	for _, edge := range m.Edges {
		if edge.From != machines.None || len(edge.Emit) == 0 {
			continue
		}
		if t, ok := m.Event(edge.Emit[0]); ok {
			filters = append(filters, p.Names.Event(m.Name, streams.AnyKey(m.Parent != ""), t.Subject))
		}
	}
	slices.Sort(filters)
	return slices.Compact(filters)
}

// inspect has the owner of an entity look again when something is missing of it.
func (p *Passes) inspect(ctx context.Context, m *machines.Machine, key string) {
	lacks, err := p.Lacks(ctx, m, key, p.found)
	if err != nil {
		p.unsure[streams.Partition(m.Name, key)] = true
		p.Log.Debug("an entity cannot be compared with its streams; retrying in the next pass", "machine", m.Name, "key", key, "error", err)
	}
	if !lacks {
		return
	}
	p.Log.Info("an event, task or timer of an entity is not in its stream, or on its way; its owner looks, and restores what is missing", "machine", m.Name, "key", key)
	if _, err := p.Commands.Send(ctx, publish.Command{Machine: m.Name, Key: key, Name: machines.CommandReconcile, Actor: "engine"}); err != nil && ctx.Err() == nil {
		p.unsure[streams.Partition(m.Name, key)] = true
		p.Log.Warn("an entity was not reconciled; retrying in the next pass", "machine", m.Name, "key", key, "error", err)
	}
}
