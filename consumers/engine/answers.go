package engine

// Answers to commands: sent to whoever waits, and stored under idempotency keys. reply, called by commit.go after the write, sends the answer; storeAnswers, called by
// publish.go, stores it in the bucket of package answers before the command is acked, and until then the value itself holds the outcomes of its last write. lookUpAnswers, called
// by load, fetches the answer that was stored under the key of a new command, and decide.go sends that again byte for byte (replay), so each key is answered once.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

func (e *Engine) answers() *answers.Store {
	return &answers.Store{NC: e.NC, JS: e.JS, Bucket: e.Names.Bucket(streams.IdempotencyBucket), Lacks: e.Lacks}
}

// forgetLostAnswers deletes the answers that were stored under keys at versions above that of the value: the transitions that they report are lost, and a sender that repeats
// such a command is to have it applied. It runs before the value is written again, at a version above theirs. An answer is stored after its value, so if there are any, the value
// is read once more: when it has changed, the answers are those of another owner that has written meanwhile.
func (p *partition) forgetLostAnswers(ctx context.Context, s *cachedEntity, version uint64) error {
	if p.readOnly {
		return nil
	}
	lost, err := p.e.answers().Above(ctx, s.m.Name, s.key, version)
	if err != nil || len(lost) == 0 {
		return err
	}
	now, err := p.e.Value(ctx, s.m, s.key)
	if err != nil {
		return err
	}
	if now == nil && s.revision != 0 || now != nil && now.Sequence != s.revision {
		return fmt.Errorf("%s %s is not at revision %d any more: %w", s.m.Name, s.key, s.revision, publish.ErrConflict)
	}
	if err := p.e.answers().Forget(ctx, lost); err != nil {
		return fmt.Errorf("cannot take an answer away that %s %s has lost: %w", s.m.Name, s.key, err)
	}
	return nil
}

func (it *item) keyed() bool { return answers.Keyed(it.machine, it.addr.Last, it.id) }

// lookUpAnswers fetches the answers to the keys of a batch that are not in memory.
func (p *partition) lookUpAnswers(ctx context.Context, batch []*item) error {
	var asked []*item
	store := p.e.answers()
	for _, it := range batch {
		it.kept, it.lost = nil, false
		if it.cached != nil && (it.cached.parked == nil || it.addr.Last == machines.CommandRepair) && it.keyed() && it.cached.outcome(func(o *machines.Outcome) bool { return o.ID == it.id }) == nil &&
			!store.Absent(it.addr.Machine, it.addr.Key, it.id) {
			asked = append(asked, it)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return consumers.InParallel(ctx, asked, func(ctx context.Context, it *item) (err error) {
		it.kept, err = store.Get(ctx, it.addr.Machine, it.addr.Key, it.id)
		if it.lost = errors.Is(err, streams.ErrUnreadable) || errors.Is(err, kv.ErrCorrupt); it.lost {
			p.e.Log.Error("a stored answer cannot be read", "error", err)
			return nil
		}
		return err
	})
}

// replay sends the stored answer again, unless the key was used for something else.
func (it *item) replay(r *answers.Kept) {
	if r.Hash != it.hash {
		it.answerKeyReused(r.ID)
		return
	}
	it.replayed, it.stored, it.raw = true, true, r.Answer
	_ = json.Unmarshal(r.Answer, &it.answer) // for the code here; the bytes are what is sent
}

// storeAnswers returns the writes that store the answers to commands of an entity that are not stored yet: those of its last commit and, after a crash, those that its value
// brought along.
func (p *partition) storeAnswers(s *cachedEntity) ([]publish.Write, error) {
	var writes []publish.Write
	for i := range s.recent {
		o := &s.recent[i]
		if o.Kept || !answers.Keyed(s.m, o.Command, o.ID) {
			continue
		}
		answer, err := s.answer(o).AppendJSON(make([]byte, 0, 384))
		if err != nil {
			return nil, err
		}
		writes = append(writes, p.e.answers().Write(s.m.Name, s.key, answers.Kept{ID: o.ID, Hash: o.Hash, Answer: answer}))
	}
	return writes, nil
}

// answer is what the sender of a command got.
func (s *cachedEntity) answer(o *machines.Outcome) *machines.Answer {
	return &machines.Answer{
		Outcome: o.Result, Machine: s.m.Name, Namespace: s.entity.Namespace, ID: s.entity.ID, Parent: s.entity.Parent, Command: o.Command, CommandID: o.ID,
		State: o.State, Version: o.Version, Revision: o.Revision, Generation: o.Generation, Refusal: o.Refusal,
	}
}

// markAnswersStored records that the answers are stored.
func (s *cachedEntity) markAnswersStored() {
	for i := range s.recent {
		s.recent[i].Kept = true
	}
}

// hasUnstoredAnswers reports whether an answer of the entity is not stored yet.
func (s *cachedEntity) hasUnstoredAnswers() bool {
	return slices.ContainsFunc(s.recent, func(o machines.Outcome) bool { return !o.Kept })
}

// replyWritten replies to the commands of those entities that a partly failed write has stored. They are redelivered with the others, but the second reply finds nobody. What is refused, repeated
// or without effect waits for the disk first (commit), and may have been decided from what the failure shows to be old: it is answered when it comes again.
func (p *partition) replyWritten(items []*item) {
	for _, it := range items {
		if it.cached != nil && !it.cached.dirty && !it.late() && !it.stored && !it.bare() {
			p.reply(it)
		} else if it.end != nil {
			it.end(publish.ErrUnanswered)
		}
	}
}

// reply answers the waiter of a command: the commit point has passed.
func (p *partition) reply(it *item) {
	if it.repaired != nil {
		p.e.Log.Warn("the value of a parked entity was replaced", "machine", it.cached.m.Name, "key", it.cached.key, "revision", it.repaired["replacedRevision"], "actor", it.actor, "reason", it.reason)
	}
	if it.end != nil {
		it.end(nil)
	}
	if it.reply == "" {
		return
	}
	body, err := it.bytes()
	if err != nil {
		p.e.Log.Error("cannot write an answer", "error", err)
		return
	}
	m := &nats.Msg{Subject: it.reply, Data: body}
	if it.replayed {
		m.Header = nats.Header{streams.HeaderReplayed: {"true"}}
	}
	if err := p.e.NC.PublishMsg(m); err != nil {
		p.e.Log.Warn("cannot answer a command; its sender will retry", "seq", it.seq, "error", err)
	}
}

// bytes is the answer as it is sent and kept. The commit of the command has passed.
func (it *item) bytes() ([]byte, error) {
	if it.raw != nil {
		return it.raw, nil
	}
	if it.cached != nil && !it.revised {
		it.answer.Revision = it.cached.at()
	}
	var err error
	it.raw, err = it.answer.AppendJSON(make([]byte, 0, 384))
	return it.raw, err
}
