package consumers

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/bcc94042/instar/machines"
)

// maxReplaced is how large a value may be that is kept in an event when it is replaced: JSON that is no text doubles at most.
const maxReplaced = 256 << 10

// reconciles reports whether the entity is to be loaded anew.
func (it *item) reconciles() bool {
	return it.slot != nil && it.reconciling()
}

func (it *item) reconciling() bool {
	return it.addr.Last == machines.CommandReconcile || it.addr.Last == machines.CommandRepair
}

// decode reads the stored value of the slot's entity.
func (s *slot) decode(value []byte) (machines.Entity, error) {
	e, err := s.m.Decode(value)
	if err == nil && e.Key() != s.key {
		err = fmt.Errorf("machines: the value under %s says that it is %s", s.key, e.Key())
	}
	return e, err
}

// repair is the entity that the command brings for one whose stored value cannot be used; why says so. Without that nothing is
// replaced: what can be used is changed by its machine alone. The stored value is kept in the event that tells of the repair.
func (it *item) repair(stored *storedMessage, e machines.Entity, why error) (machines.Entity, error) {
	if why == nil {
		if (&slot{entity: e}).took(it) { // it comes again
			return e, nil
		}
		it.bad = &machines.Refusal{Code: machines.CodeGuard, State: e.State, Command: it.addr.Last, Message: fmt.Sprintf("%s %s is not parked: send it commands", e.Machine, e.Key())}
		return e, nil
	}
	var body machines.Repair
	err := json.Unmarshal(it.msg.Data(), &body)
	if err != nil {
		it.bad = machines.Invalid(machines.FieldError{Field: "body", Message: "is not {revision, value}"})
		return e, why
	}
	next, err := it.slot.decode(body.Value)
	switch {
	case body.Revision != stored.Sequence:
		it.bad = &machines.Refusal{Code: machines.CodePrecondition, Command: it.addr.Last, Message: fmt.Sprintf("the stored value is at revision %d, not %d", stored.Sequence, body.Revision)}
	case err != nil:
		it.bad = machines.Invalid(machines.FieldError{Field: "body.value", Message: err.Error()})
	case len(stored.Data) > maxReplaced:
		it.bad = &machines.Refusal{Code: machines.CodeGuard, Command: it.addr.Last, Message: fmt.Sprintf("the stored value has %d bytes, more than an event can keep: save it, and write the new one to the bucket", len(stored.Data))}
	default:
		it.repaired = map[string]any{"replaced": kept64(stored.Data), "replacedRevision": stored.Sequence, "why": clip(why.Error(), maxReason)}
		next.Mark, next.LastEvent = 0, 0 // they are of streams that may have been others
		return next, nil
	}
	return e, why
}

// kept64 is JSON as it is, and anything else as a text in base64.
func kept64(value []byte) any {
	if json.Valid(value) {
		return json.RawMessage(value)
	}
	return base64.StdEncoding.EncodeToString(value)
}
