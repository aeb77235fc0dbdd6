package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Entities that nobody sends a command to are held against their streams as well, slowly: a deadline that a stream has lost
// would never come. The first pass follows the start, because that is when something may have been lost.
const (
	reconcileEvery = time.Hour        // between two passes
	reconcileAfter = 30 * time.Second // of the start, so that what is under way then has ended
	reconcilePace  = 50               // entities per second: some 200 reads, a few percent of a core
)

// reconcileAll looks at all entities of this process's partitions, again and again, until ctx ends.
func (e *Engine) reconcileAll(ctx context.Context) {
	for pause := cmp.Or(e.ReconcileAfter, reconcileAfter); wait.For(ctx, pause); pause = reconcileEvery {
		for name, ix := range e.Indexes {
			select {
			case <-ix.Ready():
				e.reconcilePass(ctx, e.byName[name], ix)
				e.missingPass(ctx, e.byName[name], ix)
			case <-ctx.Done():
				return
			}
		}
	}
}

// reconcilePass looks at the entities of one machine, and has the owner look again at those that something is missing of.
func (e *Engine) reconcilePass(ctx context.Context, m *machines.Machine, ix *kv.Index) {
	if m == nil {
		return
	}
	tick := time.NewTicker(time.Second / reconcilePace)
	defer tick.Stop()
	for q := (kv.Query{Limit: 200}); ; {
		page := ix.List(q)
		for _, item := range page.Items {
			n := streams.Partition(m.Name, item.Key)
			if !e.owned().Has(n) || item.Problem != "" {
				continue
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			e.inspect(ctx, m, item.Key)
		}
		if q.After = page.Next; q.After == "" {
			return
		}
	}
}

// inspect has the owner of an entity look again when something is missing of it.
func (e *Engine) inspect(ctx context.Context, m *machines.Machine, key string) {
	if lacks, err := e.lacks(ctx, m, key); err != nil {
		e.Log.Debug("an entity cannot be held against its streams; the next pass looks again", "machine", m.Name, "key", key, "error", err)
	} else if lacks {
		e.sendReconcile(ctx, m, key)
	}
}

// missingPass looks for entities of one machine that were born, as their events say, and that the index never had: their values
// are lost. It asks for the subjects of births only, one per entity, 100,000 at once, which are some 10 MB for a moment.
func (e *Engine) missingPass(ctx context.Context, m *machines.Machine, ix *kv.Index) {
	if m == nil {
		return
	}
	tick := time.NewTicker(time.Second / reconcilePace)
	defer tick.Stop()
	for _, filter := range e.births(m) {
		for offset := 0; ; {
			born, total, err := streams.Subjects(ctx, e.NC, e.Names.Stream(streams.EventStream), filter, offset)
			if err != nil {
				e.Log.Warn("it cannot be told which entities were born; the next pass looks again", "machine", m.Name, "error", err)
				return
			}
			for subject := range born {
				a, err := e.Names.ParseEvent(subject, m.Parent != "")
				if err != nil || !e.owned().Has(streams.Partition(m.Name, a.Key)) || !ix.NeverHad(a.Key) {
					continue
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				e.inspect(ctx, m, a.Key)
			}
			if offset += len(born); len(born) == 0 || offset >= total {
				break
			}
		}
	}
}

// births are the subjects of the events that tell of births.
func (e *Engine) births(m *machines.Machine) []string {
	anyKey := "*.*"
	if m.Parent != "" {
		anyKey = "*.*.*"
	}
	var filters []string
	for _, edge := range m.Edges {
		if edge.From != machines.None || len(edge.Emit) == 0 {
			continue
		}
		if t, ok := m.Event(edge.Emit[0]); ok {
			filters = append(filters, e.Names.Event(m.Name, anyKey, t.Subject))
		}
	}
	slices.Sort(filters)
	return slices.Compact(filters)
}

// owned are the partitions of this process.
func (e *Engine) owned() cluster.Set {
	if e.Node == nil {
		return cluster.All
	}
	s, _ := e.Node.Owned()
	return s
}

// lacks reads an entity as its owner would, beside it: what is on its way meanwhile may look as if it were missing.
func (e *Engine) lacks(ctx context.Context, m *machines.Machine, key string) (bool, error) {
	namespace, parent, id, err := streams.SplitKey(key)
	if err != nil {
		return false, nil // no door lets it in; the index tells of it
	}
	it := &item{addr: streams.Address{Machine: m.Name, Key: key, Last: machines.CommandReconcile}, machine: m}
	it.time, it.answer.Namespace, it.answer.Parent, it.answer.ID = time.Now(), namespace, parent, id
	p := &partition{e: e, aside: true}
	it.slot = p.newSlot(it)
	if err := p.fill(ctx, it); err != nil {
		return false, err
	}
	return it.slot.parked == nil && (it.slot.dirty || len(it.slot.loose) > 0), nil
}

func (e *Engine) sendReconcile(ctx context.Context, m *machines.Machine, key string) {
	e.Log.Info("something that an entity waits for is missing in its streams; its owner looks again", "machine", m.Name, "key", key)
	if _, err := e.Commands.Send(ctx, streams.Command{Machine: m.Name, Key: key, Name: machines.CommandReconcile, Actor: "engine"}); err != nil && ctx.Err() == nil {
		e.Log.Warn("an entity is not reconciled; the next pass looks again", "machine", m.Name, "key", key, "error", err)
	}
}
