package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A command that was sent under a key of its sender is answered once: its answer is kept in a bucket of its own for as long
// as the key is remembered, and a command under the same key gets it, byte for byte. The answer is stored before the
// command is acked, so it is there before any later command of the entity is decided. Until then the value itself has the
// outcomes that its last write ended.

// keptAnswer is an answer as it is kept.
type keptAnswer struct {
	ID     string          `json:"id"`   // the sender's key
	Hash   string          `json:"hash"` // of command, body and expected revision: another one under the same key is told apart
	Answer json.RawMessage `json:"answer"`
}

// lastAnswer is the version that the last answer to a key of the entity was given at; 0 when none is kept. Where somebody has had the last one
// forgotten, or it cannot be read, it is the highest of the others.
func (e *Engine) lastAnswer(ctx context.Context, s *slot) (uint64, error) {
	bucket := e.Names.Bucket(streams.IdempotencyBucket)
	stored, err := streams.Last(ctx, e.NC, kv.StreamOf(bucket), kv.SubjectOf(bucket, s.m.Name+"."+s.key+".*"))
	if err != nil {
		return 0, fmt.Errorf("cannot find the last answer of %s %s: %w", s.m.Name, s.key, err)
	}
	if stored == nil {
		return 0, nil
	}
	if json.Valid(stored.Data) {
		return AnswerVersion(stored.Data), nil
	}
	_, others, err := e.answersAbove(ctx, s, 0)
	var highest uint64
	for _, a := range others {
		highest = max(highest, AnswerVersion(a.Value))
	}
	return highest, err
}

// answersAbove are the kept answers to keys of the entity that were given at later versions, and their bucket.
func (e *Engine) answersAbove(ctx context.Context, s *slot, version uint64) (bucket string, above []kv.Entry[[]byte], err error) {
	raw := kv.Codec[[]byte]{Decode: func(data []byte) ([]byte, error) { return data, nil }}
	answers, err := kv.Open(ctx, e.JS, e.Names.Bucket(streams.IdempotencyBucket), raw)
	if err != nil {
		return "", nil, err
	}
	for a, err := range answers.List(ctx, s.m.Name+"."+s.key+".*") {
		if err != nil {
			return "", nil, fmt.Errorf("cannot find the answers of %s %s: %w", s.m.Name, s.key, err)
		}
		if AnswerVersion(a.Value) > version {
			above = append(above, a)
		}
	}
	return answers.Name(), above, nil
}

// AnswerVersion is the version of a kept answer; 0 for one that cannot be used.
func AnswerVersion(data []byte) uint64 {
	var r keptAnswer
	var a machines.Answer
	if json.Unmarshal(data, &r) != nil || json.Unmarshal(r.Answer, &a) != nil {
		return 0
	}
	return a.Version
}

// disown takes the answers to keys away that were given at later versions than the value has: the transitions that they tell
// of are lost, and whoever sends such a command again is to have it applied. It comes before the value is written
// again, at a version above theirs. An answer is kept after its value is written, so the value is looked at once more when they have
// been found: where it is another one, they are those of an owner that has written meanwhile.
func (p *partition) disown(ctx context.Context, s *slot, version uint64) error {
	if p.aside {
		return nil
	}
	bucket, lost, err := p.e.answersAbove(ctx, s, version)
	if err != nil || len(lost) == 0 {
		return err
	}
	now, err := p.e.current(ctx, s.m, s.key)
	if err != nil {
		return err
	}
	if now == nil && s.revision != 0 || now != nil && now.Sequence != s.revision {
		return fmt.Errorf("%s %s is not at revision %d any more: %w", s.m.Name, s.key, s.revision, streams.ErrConflict)
	}
	for _, a := range lost {
		if err := streams.Purge(ctx, p.e.NC, kv.StreamOf(bucket), kv.SubjectOf(bucket, a.Key), a.Revision); err != nil { // nothing that is kept from now on
			return fmt.Errorf("cannot take an answer away that %s %s has lost: %w", s.m.Name, s.key, err)
		}
	}
	return nil
}

// keyed reports whether the answer to a command is kept: it is one of a user, under a key of his own. Results and timers are
// told apart by the attempt or the version that they carry.
func keyed(m *machines.Machine, command, id string) bool {
	if m == nil || streams.MadeUp(id) {
		return false
	}
	switch command {
	case machines.CommandElapsed, machines.CommandFailed, machines.CommandReconcile:
		return false
	}
	in, _ := m.Input(command)
	return !in.Report
}

func (it *item) keyed() bool { return keyed(it.machine, it.addr.Last, it.id) }

// recall fetches the answers to the keys of a batch that no slot remembers.
func (p *partition) recall(ctx context.Context, batch []*item) error {
	var asked []*item
	for _, it := range batch {
		it.kept, it.lost = nil, false
		if it.slot != nil && (it.slot.parked == nil || it.addr.Last == machines.CommandRepair) && it.keyed() && it.slot.outcome(func(o *machines.Outcome) bool { return o.ID == it.id }) == nil {
			asked = append(asked, it)
		}
	}
	bucket := p.e.Names.Bucket(streams.IdempotencyBucket)
	return atOnce(asked, func(it *item) error {
		stored, err := streams.LastIfHeld(ctx, p.e.NC, kv.StreamOf(bucket), kv.SubjectOf(bucket, streams.AnswerKey(it.addr.Machine, it.addr.Key, it.id)))
		if errors.Is(err, streams.ErrUnreadable) {
			it.lost = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot look up what was answered under key %q of %s %s: %w", it.id, it.addr.Machine, it.addr.Key, err)
		}
		if kv.Absent(stored) {
			return nil
		}
		var r keptAnswer
		if err := json.Unmarshal(stored.Data, &r); err != nil || r.ID != it.id {
			p.e.Log.Error("a kept answer cannot be used", "subject", stored.Subject, "error", err)
			it.lost = true
			return nil
		}
		it.kept = &r
		return nil
	})
}

// replay answers with what is kept, unless the key was used for something else.
func (it *item) replay(r *keptAnswer) {
	if r.Hash != it.hash {
		it.reused(r.ID)
		return
	}
	it.replayed = true
	it.raw = r.Answer
	_ = json.Unmarshal(r.Answer, &it.answer) // for who reads it here; what is sent are the bytes
}

// keep is what stores the answers to the commands of an entity that are not kept yet: those of its last commit, and, after a
// crash, those that its value brought along.
func (p *partition) keep(s *slot) ([]streams.Write, error) {
	var writes []streams.Write
	for i := range s.recent {
		o := &s.recent[i]
		if o.Kept {
			continue
		}
		a := s.answer(o)
		answer, err := a.AppendJSON(make([]byte, 0, 384))
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(keptAnswer{ID: o.ID, Hash: o.Hash, Answer: answer})
		if err != nil {
			return nil, fmt.Errorf("cannot write what was answered under key %q of %s %s: %w", o.ID, s.m.Name, s.key, err)
		}
		writes = append(writes, kv.Write(p.e.Names.Bucket(streams.IdempotencyBucket), streams.AnswerKey(s.m.Name, s.key, o.ID), data))
	}
	return writes, nil
}

// answer is what the sender of a command got.
func (s *slot) answer(o *machines.Outcome) machines.Answer {
	return machines.Answer{
		Outcome: o.Result, Machine: s.m.Name, Namespace: s.entity.Namespace, ID: s.entity.ID, Parent: s.entity.Parent, Command: o.Command, CommandID: o.ID,
		State: o.State, Version: o.Version, Revision: o.Revision, Generation: o.Generation, Refusal: o.Refusal,
	}
}

// kept takes note that the answers are stored.
func (s *slot) kept() {
	for i := range s.recent {
		s.recent[i].Kept = true
	}
}

// owes reports whether an answer of the entity is not kept yet.
func (s *slot) owes() bool {
	return slices.ContainsFunc(s.recent, func(o machines.Outcome) bool { return !o.Kept })
}

// fingerprint is what a key is bound to: all that decides what the command does.
func fingerprint(command, expect string, body []byte) string {
	h := fnv.New64a()
	h.Write([]byte(command)) // never fails
	h.Write([]byte{0})
	if expect != "" {
		h.Write([]byte(expect))
		h.Write([]byte{0})
	}
	h.Write(bytes.TrimSpace(body))
	return strconv.FormatUint(h.Sum64(), 36)
}
