// Package ended drops the values of entities that ended long ago, after a time of their machine.
//
// [Passes] finds them by the indexes and sends their owners the command drop-ended. The engine looks again and replaces the value, at its revision, by a marker whose
// note is what [Remains] of it (kv.DropAt): that one write is all, and the mark, the version and the revision go on from it as from any other value. Each pass also removes the
// values of views whose entity is a marker (views.go): no command waits for that. The marker lives as long as any event may, [Life]; after it nobody knows of the entity any more.
package ended

import (
	"context"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Life is how long the marker of a dropped value is kept: a day longer than any event of its entity, whose versions it is above.
var Life = streams.LifeOf(string(machines.ClassState)) + 24*time.Hour

// Due reports whether an entity ended so long before a time that its value is to go; after 0 none is. It waits for nothing any more.
func Due(m *machines.Machine, e *machines.Entity, now time.Time, after time.Duration) bool {
	st, _ := m.State(e.State)
	return after > 0 && st.Terminal && len(e.Timers) == 0 && len(e.Effects) == 0 && now.Sub(e.UpdatedAt) >= after
}

// Remains is what is left of an entity when its value, of a revision, is dropped: its name, how it ended, and what the commit protocol knows of it, so that its next life begins
// above its versions and no earlier command is taken again. It is stored without data.
func Remains(m *machines.Machine, e machines.Entity, revision uint64) machines.Entity {
	r := m.New(e.Namespace, e.Parent, e.ID)
	r.State, r.Version, r.Generation, r.Since, r.CreatedAt, r.Birth, r.UpdatedAt = e.State, e.Version, e.Generation, e.Since, e.CreatedAt, e.Birth, e.UpdatedAt
	r.LastError, r.Mark, r.MarkedAt, r.LastEvent, r.Replaced = e.LastError, e.Mark, e.MarkedAt, e.LastEvent, revision
	return r
}

// Awaited reports whether the stream of commands has others for an entity than to drop it: ones that come later, or that were decided and not acked yet. With none
// of them, no earlier command can come again.
func Awaited(ctx context.Context, d *consumers.Deps, m *machines.Machine, key string) (bool, error) {
	held, _, err := streams.Subjects(ctx, d.NC, d.Names.Stream(streams.CommandStream), d.Names.StoredOf(m.Name, key), 0)
	if err != nil {
		return false, fmt.Errorf("cannot list the commands of %s %s: %w", m.Name, key, err)
	}
	delete(held, d.Names.Stored(m.Name, key, machines.CommandDrop))
	return len(held) > 0, nil
}

const (
	every   = time.Hour        // between two passes
	within  = 30 * time.Minute // of a pass, if that is not faster than fastest: what ends all the time has to go as fast
	fastest = 500              // commands, or values of views, per second: a quarter of a core
)

// Passes has the values dropped of what ended long ago in the partitions of this process.
type Passes struct {
	consumers.Deps
	Indexes *index.Map
	First   time.Duration                      // until the first pass
	After   func(machine string) time.Duration // how long an entity has ended; 0 keeps it
	Owns    func(partition int) bool           // whether this process has a partition now

	recent map[string]*recent // by machine
}

// recent is what the next pass over the views of a machine begins with.
type recent struct {
	due    map[string]bool          // keys that are, or were, to be dropped, and may not be yet
	listed [streams.Partitions]bool // partitions in which all that views have was looked at while this process had them
}

// Run passes until ctx ends.
func (p *Passes) Run(ctx context.Context) {
	for pause := p.First; wait.For(ctx, pause); pause = every {
		p.Pass(ctx)
	}
}

// Pass is one pass over all machines.
func (p *Passes) Pass(ctx context.Context) {
	for _, m := range p.Machines.All() {
		ix := p.Indexes.Get(m.Name)
		if ix == nil {
			continue
		}
		due := p.due(m, ix) // before the views: what somebody else has sent before may be done meanwhile
		select {
		case <-ix.Ready(): // else it would have to be asked for each entity whether it is a marker
			p.views(ctx, m, ix)
		default:
		}
		p.pass(ctx, m, due)
	}
}

// due are the keys of this process's partitions that are due by its clock; the engine looks by that of the stream.
func (p *Passes) due(m *machines.Machine, ix *index.Index) (keys []string) {
	after := p.After(m.Name)
	if after <= 0 {
		return nil
	}
	for _, key := range ix.Ended(time.Now().Add(-after)) {
		if p.Owns(streams.Partition(m.Name, key)) {
			keys = append(keys, key)
			p.of(m).due[key] = true
		}
	}
	return keys
}

// pass sends the command for each key.
func (p *Passes) pass(ctx context.Context, m *machines.Machine, keys []string) {
	if len(keys) == 0 {
		return
	}
	bucket := streams.BucketStream(p.Names.Bucket(m.Plural))
	info, err := streams.Info(ctx, p.NC, bucket)
	if err != nil || !info.Config.AllowMsgTTL {
		if ctx.Err() != nil {
			return
		}
		p.Meter.DropFailed(m.Name)
		p.Log.Warn("values of ended entities are kept: their bucket takes no messages with a life, or does not answer", "stream", bucket, "error", err)
		return
	}
	tick := time.NewTicker(consumers.Spread(len(keys), within, fastest))
	defer tick.Stop()
	sent := 0
	for _, key := range keys {
		if !p.Owns(streams.Partition(m.Name, key)) {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, err := p.Commands.Send(ctx, publish.Command{Machine: m.Name, Key: key, Name: machines.CommandDrop, Actor: "engine"}); err != nil && ctx.Err() == nil {
			p.Meter.DropFailed(m.Name)
			p.Log.Warn("the values of ended entities are kept until the next pass", "machine", m.Name, "key", key, "error", err)
			return
		}
		sent++
	}
	if sent > 0 {
		p.Log.Info("the values of entities that ended long ago are dropped", "machine", m.Name, "entities", sent)
	}
}
