package engine

// What becomes of one command, decided in memory. process (commit.go) calls handle for each command of a batch, with its entity loaded: handle repeats an earlier answer, refuses
// the command, gives it up, or steps the machine. The outcome is left in the item (answer, dead letter) and in the cached entity (state, outcomes, outbox), from which commit.go
// writes the value and publish.go the messages.

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/failpoint"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// handle decides about one command in memory.
func (p *partition) handle(it *item) {
	s := it.cached
	h := it.msg.Headers()
	if s.parked != nil && it.kept == nil && !it.lost {
		it.refuse(cmp.Or(it.bad, s.parked))
		it.answer.Refusal.Allowed = s.parked.Allowed
		if it.bad == nil && it.addr.Last != machines.CommandDrop && streams.Header(h, streams.HeaderLookup) == "" { // neither a question nor what a pass sends again is to be kept
			it.deadLetter = s.parked.Message
		}
		return
	}
	if it.repaired != nil {
		it.answer.Outcome = machines.Applied
		p.commitLater(it, nil)
		return
	}
	if s.hasTaken(it) {
		failpoint.Hit("taken-before")
		p.takenBefore(it)
		return
	}
	if o := s.outcome(func(o *machines.Outcome) bool { return o.ID == it.id }); o != nil {
		it.answerFromOutcome(o)
		return
	}
	if it.kept != nil {
		it.replay(it.kept)
		return
	}
	if it.lost || it.lookup && !it.keyed() {
		p.answerUnknown(it)
		return
	}
	// Where the stream has seen the id of a lookup and the entity has not, the id was used up by somebody else: the command was never taken, and is now.
	for _, r := range []*machines.Refusal{it.bad, it.precondition(h), p.fenced(it, h)} {
		if r != nil {
			p.refused(it, r)
			return
		}
	}
	if n := p.failures[it.seq]; n >= consumers.MaxTries {
		p.giveUp(it, fmt.Errorf("given up after %d tries", n))
		return
	}
	if it.addr.Last == machines.CommandRepair {
		p.refused(it, &machines.Refusal{Code: machines.CodeNotFound, Command: it.addr.Last, Message: fmt.Sprintf("%s %s is not stored", s.m.Name, s.key)})
		return
	}
	if it.addr.Last == machines.CommandDrop {
		p.drop(it)
		return
	}
	p.step(it)
}

// takenBefore answers a command that came again: its transition has happened.
func (p *partition) takenBefore(it *item) {
	if o := it.cached.outcome(func(o *machines.Outcome) bool { return o.ID == it.id }); o != nil { // its own, or that of the command that it repeats
		it.answerFromOutcome(o)
		if o.Result == machines.Dead && o.Seq == it.seq {
			it.deadLetter, it.again = "the command could not be processed; the log of then tells why", true
			o.Kept = false // a value that is written before its dead letter is stored has to tell of it, or nobody does after a crash
		}
	} else if it.kept != nil {
		it.replay(it.kept)
	} else {
		p.answerUnknown(it)
		return
	}
	it.replayed = false // the command came again, not its sender
}

// answerUnknown answers for a command that was taken, but too long ago to remember how it ended.
func (p *partition) answerUnknown(it *item) {
	it.refuse(&machines.Refusal{Code: machines.CodeUnknown, State: it.cached.entity.State, Message: fmt.Sprintf("a command with the id %q was taken before, but its outcome is not known any more", it.id)})
	it.fillAnswer(it.cached)
}

// answerFromOutcome answers with a remembered outcome, unless the id was used for something else.
func (it *item) answerFromOutcome(o *machines.Outcome) {
	if o.Hash != it.hash {
		it.answerKeyReused(o.ID)
		return
	}
	it.replayed, it.stored = true, true
	it.answer.Outcome, it.answer.Refusal = o.Result, o.Refusal
	it.answer.State, it.answer.Version, it.answer.Generation = o.State, o.Version, o.Generation
	it.answer.Revision, it.revised = o.Revision, o.Revision != 0 || o.State == machines.None
}

// answerKeyReused refuses an id that was used for something else.
func (it *item) answerKeyReused(id string) {
	it.refuse(&machines.Refusal{Code: machines.CodeKeyReused, Message: fmt.Sprintf("the id %q was used before for another command, body or expected revision", id)})
	it.fillAnswer(it.cached)
}

// fillAnswer writes state, version and generation of the entity into the answer, and its revision, unless the next commit gives it one: who decides about a refused command again, which
// is not committed, does so in another batch and is to answer the same.
func (it *item) fillAnswer(s *cachedEntity) {
	it.answer.State, it.answer.Version, it.answer.Generation, it.answer.Revision, it.revised = s.entity.State, consumers.Told(&s.entity, s.baseVersion), s.entity.Generation, 0, !s.dirty
	if it.revised {
		it.answer.Revision = s.at()
	}
}

// precondition checks If-Match. Within a batch the revision after an earlier command is not known to any sender yet.
func (it *item) precondition(h nats.Header) *machines.Refusal {
	want := streams.Header(h, streams.HeaderExpect)
	if want == "" {
		return nil
	}
	expected, ok := streams.ParseExpected(want)
	if !ok {
		return consumers.NotExpected()
	}
	s := it.cached
	switch {
	case expected.Any && !s.entity.Exists():
		return &machines.Refusal{Code: machines.CodePrecondition, Command: it.addr.Last, Message: fmt.Sprintf("%s %s does not exist", s.m.Name, s.key)}
	case !expected.Any && (s.dirty || !expected.Holds(s.at()) && !(s.dropped && expected.Holds(s.entity.Replaced))):
		return &machines.Refusal{Code: machines.CodePrecondition, State: s.entity.State, Command: it.addr.Last, Message: fmt.Sprintf("%s %s is not at revision %s any more", s.m.Name, s.key, strings.ReplaceAll(want, ",", " or "))}
	}
	return nil
}

// fenced refuses a report that was made under an earlier claim of its partition; nil lets it pass.
func (p *partition) fenced(it *item, h nats.Header) *machines.Refusal {
	fence := streams.Header(h, streams.HeaderFence)
	if fence == "" || p.e.Node == nil {
		return nil
	}
	if partition, stale := p.e.Node.Stale(fence); stale {
		return &machines.Refusal{Code: machines.CodeStale, State: it.cached.entity.State, Command: it.addr.Last, Message: fmt.Sprintf("partition %d has been claimed since this was reported", partition)}
	}
	return nil
}

// step runs the machine and keeps what follows.
func (p *partition) step(it *item) {
	s := it.cached
	it.trace, it.end = p.e.Trace("step "+s.m.Name+"."+it.addr.Last, it.trace, "instar.machine", s.m.Name, "instar.command", it.addr.Last)
	in := machines.Input{
		Command: it.addr.Last, ID: it.id, Seq: it.seq, Time: it.time.UTC(), Body: it.msg.Data(), Trace: it.trace,
		Actor: it.actor, Reason: it.reason, Wait: streams.WaitOf(it.msg.Headers()), Nonce: strings.ToLower(rand.Text()[:13]),
	}
	if it.addr.Last == machines.CommandElapsed {
		s.fired(in.Body)
	}
	next, out, err := safely(s.m, s.entity, in)
	var refusal *machines.Refusal
	switch {
	case errors.As(err, &refusal):
		p.refused(it, refusal)
	case err != nil:
		p.giveUp(it, err)
	case out.Result != machines.Applied:
		s.mark(it)
		p.rearm(it)
		it.answer.Outcome = out.Result
		it.fillAnswer(s)
		if it.addr.Last != machines.CommandElapsed { // nobody asks again how an outdated timer ended
			s.remember(it.outcome())
		}
	default:
		var stayed time.Duration
		if !s.entity.Since.IsZero() { // zero at a birth
			stayed = next.UpdatedAt.Sub(s.entity.Since)
		}
		p.e.Meter.Transition(s.m.Name, out.From, out.To, it.addr.Last, stayed)
		s.entity, s.dropped = next, false
		it.answer.Outcome = machines.Applied
		p.commitLater(it, out.Messages)
	}
}

// rearm publishes a timer again after one of the same name has fired that ended nothing: an outdated one, or one before its time. The server purges the subject of a schedule
// that fires, and with it a newer schedule that was stored while the older one was on its way.
func (p *partition) rearm(it *item) {
	var fired machines.Elapsed
	if it.addr.Last != machines.CommandElapsed || json.Unmarshal(it.msg.Data(), &fired) != nil {
		return
	}
	s := it.cached
	t, ok := s.entity.Timers[fired.Timer]
	if !ok || t.Armed == fired.Armed && !it.time.Before(t.At) {
		return
	}
	body, err := json.Marshal(machines.Elapsed{Timer: fired.Timer, Armed: t.Armed})
	if err != nil {
		return // a string and a number
	}
	s.emit(machines.Message{Kind: machines.KindTimer, Name: fired.Timer, Version: t.Armed, At: t.At, Body: body, Trace: it.trace})
}

// safely turns a panic of a table into an error.
func safely(m *machines.Machine, e machines.Entity, in machines.Input) (next machines.Entity, out machines.Output, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panics.Error("machine", r)
		}
	}()
	return m.Step(e, in)
}

// commitLater keeps a command that changes the entity for the commit of the batch.
func (p *partition) commitLater(it *item, messages []machines.Message) {
	s := it.cached
	s.mark(it)
	s.dirty = true
	s.outbox = append(append(s.outbox, s.transient...), messages...)
	s.transient = nil
	for _, m := range messages {
		s.size += len(m.Body) + 160
	}
	s.taken = append(s.taken, it.seq)
	it.fillAnswer(s)
	s.remember(it.outcome())
}

// refused answers and leaves an event. Nothing is committed: the outcome is remembered in memory and goes along with the next commit.
func (p *partition) refused(it *item, r *machines.Refusal) {
	s := it.cached
	if s.unverified() {
		return
	}
	it.refuse(r)
	it.fillAnswer(s)
	s.mark(it)
	s.remember(it.outcome())
	p.e.Meter.Refused(s.m.Name, r.Code)
	if told, at, ok := streams.RefusedOf(s.m.Name, s.key, s.lastEventID); ok && told >= it.seq && !it.time.After(at) {
		return // the command came again after its event was published
	}
	msg := it.event(machines.EventRefused, map[string]any{"code": r.Code, "message": it.answer.Refusal.Message})
	msg.Refusal = it.seq
	s.emit(msg)
}

// event returns an event that belongs to no transition.
func (it *item) event(name string, data any) machines.Message {
	e, version := &it.cached.entity, consumers.Told(&it.cached.entity, it.cached.baseVersion)
	event := machines.Event{
		From: e.State, To: e.State, Version: version, Generation: e.Generation, Time: it.time.UTC(), Command: it.addr.Last, CommandID: it.id,
		Actor: it.actor, Reason: it.reason, Data: data,
	}
	body, err := event.AppendJSON(make([]byte, 0, 384))
	if err != nil {
		body = []byte("{}") // strings and numbers: it cannot fail
	}
	return machines.Message{Kind: machines.KindEvent, Name: name, Version: version, At: it.time.UTC(), Body: body, Trace: it.trace}
}

// giveUp moves a command to DEAD_LETTERS, and records that in the entity, if there is one.
func (p *partition) giveUp(it *item, err error) {
	s := it.cached
	if s.unverified() {
		return
	}
	p.e.Log.Error("a command cannot be processed; moving it to the dead letters", "machine", s.m.Name, "key", s.key, "command", it.addr.Last, "seq", it.seq, "error", err)
	it.deadLetter = consumers.Clip(err.Error(), consumers.MaxReason)
	it.answer.Outcome = machines.Dead
	it.answer.Refusal = &machines.Refusal{Code: machines.CodeDead, State: s.entity.State, Command: it.addr.Last, Message: "the command could not be processed; it lies in the dead letters"}
	it.fillAnswer(s)
	if !s.entity.Exists() || p.failures[it.seq] > consumers.MaxTries { // there is no room even for the note
		s.remember(it.outcome())
		return
	}
	msg := it.event(machines.EventDead, nil)
	msg.Refusal = it.seq
	p.commitLater(it, []machines.Message{msg})
}

func (it *item) outcome() machines.Outcome {
	a := &it.answer
	return machines.Outcome{ID: strings.Clone(it.id), Command: strings.Clone(it.addr.Last), Seq: it.seq, Result: a.Outcome, State: a.State, Version: a.Version, Generation: a.Generation, Revision: a.Revision, Hash: it.hash, Refusal: a.Refusal}
}
