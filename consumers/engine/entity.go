package engine

// Entities in the memory of their partition. load, called by process (commit.go), takes the entity of each command from the cache, or has it read from its bucket (read in
// load.go). A cachedEntity collects what the commands of a batch change (state, mark, outcomes, outbox) until commit.go has written it, and stays for the next batches until it
// is evicted, because the cache is full or no command has come for a while.

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// cachedEntity is an entity in the memory of its owner.
type cachedEntity struct {
	m   *machines.Machine
	key string

	entity      machines.Entity
	baseVersion uint64          // below its first transition
	revision    uint64          // of its value in the bucket, or of the marker of one that was deleted; 0 when there is neither
	lastEvent   uint64          // sequence of its last event
	lastEventID string          // its id, as it was when the entity was loaded
	data        json.RawMessage // JSON of what dataOf points to: most commands of a busy entity leave its data as it is
	dataOf      any
	recent      []machines.Outcome // of its last commands: those of the stored value, and later ones
	schedules   map[string]uint64  // sequences of its timers' schedules in COMMANDS, as far as they are known
	parked      *machines.Refusal  // why nothing may be done to it
	dropped     bool               // it ended, and its value is what remains of it; see package ended
	whole       *machines.Entity   // it as it was, until the drop of its value is written
	speculative bool               // it is not there, as far as its index knows; nobody has looked

	finishing bool   // what it emitted in the batch before is being published
	round     uint64 // of the partition, when it had its last command
	unstored  bool   // it took commands that no commit has stored

	// Of the batch under way:
	dirty       bool
	outbox      []machines.Message // emitted by transitions, to be committed
	transient   []machines.Message // published without being stored in the value first: events of refusals, what a stream has lost
	size        int                // bytes of outbox and outcomes
	newOutcomes int                // outcomes of the commands that the next commit ends
	taken       []uint64           // sequences that a failed write would be blamed on
}

// newCached is the entity of a command as if it did not exist.
func (p *partition) newCached(it *item) *cachedEntity {
	s := &cachedEntity{m: it.machine, key: it.addr.Key, entity: it.machine.New(it.answer.Namespace, it.answer.Parent, it.answer.ID), baseVersion: p.found.Above}
	s.entity.Version = s.baseVersion
	return s
}

// hasTaken reports whether the entity took the command before. A sequence at or below the mark is not enough: where a power
// loss has cost COMMANDS its last messages, sequences are given out again, to later commands.
func (s *cachedEntity) hasTaken(it *item) bool {
	return it.seq <= s.entity.Mark && (s.entity.MarkedAt.IsZero() || !it.time.After(s.entity.MarkedAt))
}

func (s *cachedEntity) mark(it *item) {
	s.entity.Mark = it.seq
	if it.time.After(s.entity.MarkedAt) {
		s.entity.MarkedAt = it.time.UTC()
	}
}

// emit publishes a message that belongs to no transition: with the next commit of the batch, or without one if none is to come.
func (s *cachedEntity) emit(m machines.Message) {
	if !s.dirty {
		s.transient = append(s.transient, m)
		return
	}
	s.outbox = append(s.outbox, m)
	s.size += len(m.Body) + 160
}

// at is the revision of the entity as others see it: 0 when there is none.
func (s *cachedEntity) at() uint64 {
	if s.parked == nil && !s.entity.Exists() {
		return 0
	}
	return s.revision
}

// maxRecent is how many outcomes of an entity are kept in memory for senders who ask again at once: fewer where a partition has more than roomForRecent of all, but minRecent.
const maxRecent, minRecent, roomForRecent = 64, 8, 8 << 10

// remember keeps the outcome of a command until the commit that ends it, and a while longer. It has copies of what are parts of the message, which would else be kept with them.
func (s *cachedEntity) remember(o machines.Outcome) {
	s.newOutcomes++
	s.size += 192
	if o.Refusal != nil {
		s.size += len(o.Refusal.Message) + 64*len(o.Refusal.Fields)
	}
	s.unstored = true
	o.Kept = !answers.Keyed(s.m, o.Command, o.ID)
	s.recent = append(s.recent, o)
}

// committed records the revision of the commit in the outcomes that it has ended, and in those that a repair has brought.
func (s *cachedEntity) committed() {
	for i := range s.recent {
		if o := &s.recent[i]; o.Revision == 0 && o.State != machines.None && (i >= len(s.recent)-s.newOutcomes || !o.Kept) {
			o.Revision = s.at()
		}
	}
	s.newOutcomes, s.size = 0, 0
}

// trim forgets old outcomes, but none whose answer is not stored yet. It is called before a batch, never within one: stored answers are looked up only at the beginning of a
// batch.
func (s *cachedEntity) trim(entities int) {
	n, most := 0, min(max(roomForRecent/max(entities, 1), minRecent), maxRecent)
	for n <= len(s.recent)-most && s.recent[n].Kept { // with the next one it has so many
		n++
	}
	s.recent = slices.Delete(s.recent, 0, n)
}

// outcomesToStore are the outcomes that the value must hold: those of this commit, and those whose answers are not kept.
func (s *cachedEntity) outcomesToStore() []machines.Outcome {
	list := make([]machines.Outcome, 0, s.newOutcomes)
	for i := range s.recent {
		if !s.recent[i].Kept || i >= len(s.recent)-s.newOutcomes {
			list = append(list, s.recent[i])
		}
	}
	return list
}

func (s *cachedEntity) outcome(match func(*machines.Outcome) bool) *machines.Outcome {
	for i := len(s.recent) - 1; i >= 0; i-- {
		if match(&s.recent[i]) {
			return &s.recent[i]
		}
	}
	return nil
}

// load brings the entities of a batch into memory, the missing ones together.
func (p *partition) load(ctx context.Context, batch []*item) error {
	var missing []*item // the first of each entity that is not in memory
	for _, it := range batch {
		if it.machine == nil {
			continue
		}
		id := it.machine.Name + "/" + it.addr.Key
		s := p.cache[id]
		if known := s != nil; !known || s.parked != nil { // a parked value may have been repaired
			s = p.newCached(it)
			p.cache[id] = s
			if it.reconciles() {
				// it is loaded when its turn comes, once
			} else if known || !p.speculate(s, it) {
				missing = append(missing, it)
			}
		}
		it.cached, s.round = s, p.round
		if !s.finishing {
			s.trim(len(p.cache))
		}
	}
	if err := consumers.InParallel(ctx, missing, p.read); err != nil {
		return err
	}
	return p.lookUpAnswers(ctx, batch)
}

// evict forgets entities when there are too many; their next command loads them again.
func (p *partition) evict() {
	for id, s := range p.cache {
		if len(p.cache) <= p.e.CacheSize {
			return
		}
		if !s.finishing {
			delete(p.cache, id)
		}
	}
}

// evictIdle drops entities that have had no command for one round. A refusal that only memory holds is kept until the stream has forgotten the id as well: its sender may ask again.
func (p *partition) evictIdle() {
	const rounds = uint64(streams.CommandWindow/idleRound) + 1
	for id, s := range p.cache {
		if age := p.round - s.round; !s.finishing && (age > rounds || age > 0 && !s.unstored) {
			delete(p.cache, id)
		}
	}
	p.round++
}
