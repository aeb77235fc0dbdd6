package consumers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

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
	Hash   string          `json:"hash"` // of command and body: another one under the same key is told apart
	Answer json.RawMessage `json:"answer"`
}

func (e *Engine) recordSubject(it *item) string {
	return "$KV." + e.Names.Bucket(streams.IdempotencyBucket) + "." + streams.AnswerKey(it.addr.Machine, it.addr.Key, it.id)
}

// keyed reports whether the answer to the command is kept: it is a command of a user, under a key of his own. Results and
// timers are told apart by the attempt or the version that they carry.
func (it *item) keyed() bool {
	if it.machine == nil || streams.MadeUp(it.id) {
		return false
	}
	switch it.addr.Last {
	case machines.CommandElapsed, machines.CommandFailed, machines.CommandReconcile:
		return false
	}
	in, _ := it.machine.Input(it.addr.Last)
	return !in.Report
}

// recall fetches the answers to the keys of a batch that no slot remembers.
func (p *partition) recall(ctx context.Context, batch []*item) error {
	var asked []*item
	for _, it := range batch {
		if it.slot != nil && it.slot.parked == nil && it.keyed() && it.slot.outcome(func(o *machines.Outcome) bool { return o.ID == it.id }) == nil {
			asked = append(asked, it)
		}
	}
	bucket := p.e.Names.Bucket(streams.IdempotencyBucket)
	return atOnce(asked, func(it *item) error {
		stored, err := lastMessage(ctx, p.e.JS, "KV_"+bucket, p.e.recordSubject(it))
		if err != nil {
			return fmt.Errorf("cannot look up what was answered under key %q of %s %s: %w", it.id, it.addr.Machine, it.addr.Key, err)
		}
		if stored == nil {
			return nil
		}
		var r keptAnswer
		if err := json.Unmarshal(stored.Data, &r); err != nil || r.ID != it.id {
			p.e.Log.Error("a kept answer cannot be used; the command is taken for a new one", "subject", stored.Subject, "error", err)
			return nil
		}
		it.kept = &r
		return nil
	})
}

// replay answers with what is kept, unless the key was used for something else.
func (it *item) replay(r *keptAnswer) {
	it.replayed = true
	if r.Hash != it.hash {
		it.reused(r.ID)
		return
	}
	it.raw = r.Answer
	_ = json.Unmarshal(r.Answer, &it.answer) // for who reads it here; what is sent are the bytes
}

// keep is what stores the answer to a command, nil when it is not kept.
func (p *partition) keep(it *item) (*streams.Write, error) {
	if it.replayed || it.slot == nil || it.parked() || !it.keyed() {
		return nil, nil
	}
	answer, err := it.bytes()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(keptAnswer{ID: it.id, Hash: it.hash, Answer: answer})
	if err != nil {
		return nil, fmt.Errorf("cannot write what was answered under key %q of %s %s: %w", it.id, it.addr.Machine, it.addr.Key, err)
	}
	m := &nats.Msg{Subject: p.e.recordSubject(it), Data: data}
	return &streams.Write{Stream: "KV_" + p.e.Names.Bucket(streams.IdempotencyBucket), Msg: m}, nil
}
