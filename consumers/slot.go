package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// slot is one entity in the owner's memory.
type slot struct {
	m   *machines.Machine
	key string

	entity      machines.Entity
	revision    uint64          // of its value in the bucket; 0 when there is none
	lastEvent   uint64          // sequence of its last event
	lastEventID string          // its id, as it was when the entity was loaded
	data        json.RawMessage // JSON of what dataOf points to: most commands of a busy entity leave its data as it is
	dataOf      any
	length      int                // of the last value that was written
	ring        []machines.Outcome // its last commands; ahead of the stored ones by refusals
	stored      []machines.Message // the outbox of the stored value
	confirmed   bool               // stored is known to be published
	parked      *machines.Refusal  // why nothing may be done to it
	guessed     bool               // it is not there, as far as its index knows; nobody has looked

	settling bool   // what it emitted in the batch before is being published
	round    uint64 // of the partition, when it had its last command
	unstored bool   // the ring holds outcomes that no commit has stored

	// Of the batch under way:
	dirty  bool
	outbox []machines.Message // emitted by transitions, to be committed
	loose  []machines.Message // events of refusals without a commit
	size   int                // bytes of outbox
	fresh  int                // outcomes of the commands that the next commit ends
	taken  []uint64           // sequences that a failed write would be blamed on
}

// newSlot is the entity of a command, as one that is not there.
func newSlot(it *item) *slot {
	return &slot{m: it.machine, key: it.addr.Key, entity: it.machine.New(it.answer.Namespace, it.answer.Parent, it.answer.ID)}
}

// took reports whether the entity took the command before. A sequence at or below the mark is not enough: where a power
// loss has cost COMMANDS its last messages, sequences are given out again, to later commands.
func (s *slot) took(it *item) bool {
	return it.seq <= s.entity.Mark && (s.entity.MarkedAt.IsZero() || !it.time.After(s.entity.MarkedAt))
}

func (s *slot) mark(it *item) {
	s.entity.Mark = it.seq
	if it.time.After(s.entity.MarkedAt) {
		s.entity.MarkedAt = it.time.UTC()
	}
}

func (s *slot) remember(o machines.Outcome) {
	s.fresh++
	s.unstored = true
	if len(s.ring) >= machines.RingSize {
		copy(s.ring, s.ring[len(s.ring)-machines.RingSize+1:])
		s.ring = s.ring[:machines.RingSize-1]
	}
	s.ring = append(s.ring, o)
}

func (s *slot) outcome(match func(*machines.Outcome) bool) *machines.Outcome {
	for i := len(s.ring) - 1; i >= 0; i-- {
		if match(&s.ring[i]) {
			return &s.ring[i]
		}
	}
	return nil
}

// load brings the entities of a batch into memory, the missing ones together.
func (p *partition) load(ctx context.Context, batch []*item) error {
	var missing []*slot
	for _, it := range batch {
		if it.machine == nil {
			continue
		}
		id := it.machine.Name + "/" + it.addr.Key
		s := p.slots[id]
		if known := s != nil; !known || s.parked != nil { // a parked value may have been repaired
			s = newSlot(it)
			p.slots[id] = s
			if known || !p.guess(s, it) {
				missing = append(missing, s)
			}
		}
		it.slot, s.round = s, p.round
	}
	if len(missing) == 0 {
		return nil
	}
	errs := make([]error, len(missing))
	var all sync.WaitGroup
	gate := make(chan struct{}, 64)
	for i, s := range missing {
		gate <- struct{}{}
		all.Go(func() {
			errs[i] = p.fill(ctx, s)
			<-gate
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// fill reads one entity and the sequence of its last event.
func (p *partition) fill(ctx context.Context, s *slot) error {
	bucket := p.e.Names.Bucket(s.m.Plural)
	stored, err := lastMessage(ctx, p.e.JS, "KV_"+bucket, "$KV."+bucket+"."+s.key)
	if err != nil {
		return fmt.Errorf("cannot load %s %s: %w", s.m.Name, s.key, err)
	}
	if stored == nil {
		return nil
	}
	s.revision = stored.Sequence
	e, err := s.m.Decode(stored.Data)
	if err == nil && e.Key() != s.key {
		err = fmt.Errorf("machines: the value under %s says that it is %s", s.key, e.Key())
	}
	if err != nil {
		s.parked = &machines.Refusal{Code: machines.CodeParked, Message: fmt.Sprintf("%s %s is parked: its stored value at revision %d cannot be used", s.m.Name, s.key, s.revision)}
		p.e.Log.Error("an entity is parked: its stored value cannot be used", "machine", s.m.Name, "key", s.key, "revision", s.revision, "error", err)
		return nil
	}
	if s.lastEvent, s.lastEventID, err = p.e.lastEvent(ctx, s); err != nil {
		return err
	}
	s.ring, s.stored = e.Commands, e.Outbox
	e.Commands, e.Outbox = nil, nil
	s.entity = e
	return nil
}

// lastEvent finds the entity's last event; sequence 0 says that there is none.
func (e *Engine) lastEvent(ctx context.Context, s *slot) (uint64, string, error) {
	m, err := lastMessage(ctx, e.JS, e.Names.Stream(streams.EventStream), e.Names.EventsOf(s.m.Name, s.key))
	if err != nil {
		return 0, "", fmt.Errorf("cannot find the last event of %s %s: %w", s.m.Name, s.key, err)
	}
	if m == nil {
		return 0, "", nil
	}
	h, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return 0, "", fmt.Errorf("cannot read the headers of event %d: %w", m.Sequence, err)
	}
	return m.Sequence, streams.Header(h, streams.HeaderID), nil
}

// readWithin is how long a leader has to answer. A stream whose server has died answers nothing until another one leads.
const readWithin = 1500 * time.Millisecond

// lastMessage reads the last message under a subject from the stream's leader, in one round trip. It is nil when there
// is none.
func lastMessage(ctx context.Context, js jetstream.JetStream, stream, subject string) (*storedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	var answer struct {
		answered
		Message *storedMessage `json:"message"`
	}
	err := enquire(ctx, js.Conn(), "MSG.GET", stream, map[string]string{"last_by_subj": subject}, &answer)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Message == nil:
		return nil, errors.New("the stream's answer has no message")
	}
	return answer.Message, nil
}

// storedMessage is a message as the stream's API returns it.
type storedMessage struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

// evict forgets entities when there are too many; their next command loads them again.
func (p *partition) evict() {
	for id, s := range p.slots {
		if len(p.slots) <= p.e.CacheSize {
			return
		}
		if !s.settling {
			delete(p.slots, id)
		}
	}
}

// forget drops entities that have had no command for one round: most are created and then left alone for long. A refusal
// that only memory holds is kept until the stream has forgotten the id as well: its sender may ask again.
func (p *partition) forget() {
	const rounds = uint64(streams.CommandWindow/idleRound) + 1
	for id, s := range p.slots {
		if age := p.round - s.round; !s.settling && (age > rounds || age > 0 && !s.unstored) {
			delete(p.slots, id)
		}
	}
	p.round++
}
