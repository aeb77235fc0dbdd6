package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// maxReplaced is how large a value may be, as it is written, that is kept in an event when it is replaced. The event is a part of the value that replaces it, until
// it is published, and a value may have 1 MiB.
const maxReplaced = 512 << 10

// maxStored is how large a value may be that a repair writes. It leaves room for the outcome and for headers.
const maxStored = 1<<20 - 64<<10

// maxRepaired is the highest version that a value may bring: from there many others can follow before it is one that cannot be stored.
const maxRepaired = 1 << 52

// reconciles reports whether the command has its entity loaded anew.
func (it *item) reconciles() bool {
	return it.addr.Last == machines.CommandReconcile || it.addr.Last == machines.CommandRepair || it.addr.Last == machines.CommandDrop
}

// repair is the entity that the command brings for one whose stored value cannot be used; why says so. Without that nothing is
// replaced: what can be used is changed by its machine alone. The stored value is kept in the event that tells of the repair. Whatever speaks against it
// is found here, or by unstorable: after these, the entity is another one.
func (p *partition) repair(it *item, stored *streams.Message, e machines.Entity, why error) (machines.Entity, error) {
	if why == nil {
		it.bad = &machines.Refusal{Code: machines.CodeGuard, State: e.State, Command: it.addr.Last, Message: fmt.Sprintf("%s %s is not parked: send it commands", e.Machine, e.Key())}
		return e, nil
	}
	if it.kept != nil || it.lost { // its key was used before
		return e, why
	}
	var body machines.Repair
	err := json.Unmarshal(it.msg.Data(), &body)
	if err != nil || len(it.msg.Data()) > consumers.MaxBody {
		it.bad = machines.Invalid(machines.FieldError{Field: "body", Message: fmt.Sprintf("is not {revision, value} of at most %d bytes", consumers.MaxBody)})
		return e, why
	}
	next, err := it.cached.m.DecodeAt(it.cached.key, body.Value)
	replaced, _ := json.Marshal(consumers.JSONOrBase64(stored.Data)) // it is valid
	if err == nil && max(next.Version, next.Generation) > maxRepaired {
		err = fmt.Errorf("has version %d and generation %d, of which none may be above %d", next.Version, next.Generation, maxRepaired)
	}
	want := streams.Header(it.msg.Headers(), streams.HeaderExpect)
	expected, ok := streams.ParseExpected(want)
	switch {
	case want != "" && !ok:
		it.bad = consumers.NotExpected()
	case body.Revision != stored.Sequence || want != "" && !expected.Holds(stored.Sequence):
		it.bad = &machines.Refusal{Code: machines.CodePrecondition, Command: it.addr.Last, Message: fmt.Sprintf("the stored value is at revision %d", stored.Sequence)}
	case err != nil:
		it.bad = machines.Invalid(machines.FieldError{Field: "value", Message: err.Error()})
	case len(replaced) > maxReplaced:
		it.bad = &machines.Refusal{Code: machines.CodeGuard, Command: it.addr.Last, Message: fmt.Sprintf("the stored value has %d bytes in an event, more than it can keep: save it, and write the new one to the bucket", len(replaced))}
	case p.failures[it.seq] >= consumers.MaxTries:
		it.bad = &machines.Refusal{Code: machines.CodeDead, Command: it.addr.Last, Message: "the new value could not be stored"}
	default:
		it.repaired = map[string]any{"replaced": json.RawMessage(replaced), "replacedRevision": stored.Sequence, "why": consumers.Clip(why.Error(), consumers.MaxReason)}
		next.Mark, next.MarkedAt, next.LastEvent = 0, time.Time{}, 0 // they are of streams that may have been others
		return next, nil
	}
	return e, why
}

// unstorable is why a value cannot be stored by which the entity was repaired: with what it emits, which has the value that it replaces, and with
// what it waits for, at a version above those of its events. What is written has to be one that can be read.
func (s *cachedEntity) unstorable() *machines.Refusal {
	next := *s
	next.outbox = slices.Concat(s.outbox, s.transient)
	value, err := next.appendValue(nil)
	if err == nil && len(value) > maxStored {
		err = fmt.Errorf("has %d bytes as it is written, with its messages and the value that it replaces: more than %d", len(value), maxStored)
	}
	if err == nil {
		_, err = s.m.DecodeAt(s.key, value)
	}
	if err == nil {
		return nil
	}
	return machines.Invalid(machines.FieldError{Field: "value", Message: err.Error()})
}
