package seen

import (
	"fmt"
	"slices"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// at is the value that an answer names by its revision, and the one before it, which is the zero one of an entity that was born with it. Both are nil where none has that revision.
func (x *Entity) at(revision uint64) (v, before *Value) {
	i := slices.IndexFunc(x.Values, func(v Value) bool { return v.Seq == revision })
	switch {
	case i < 0:
		return nil, nil
	case i == 0:
		return &x.Values[0], &Value{}
	}
	return &x.Values[i], &x.Values[i-1]
}

// Stood: an answer says how the entity stood: with what the command has made of it, or when it was decided that it changes nothing. It asks for an entity of which every value was seen.
func Stood(x *Entity, a *machines.Answer) string {
	v, before := x.at(a.Revision)
	if v == nil {
		if a.Revision == 0 && a.Version == 0 && a.State == machines.None && a.Generation == 0 && a.Outcome != machines.Applied {
			return "" // there was none
		}
		return fmt.Sprintf("no value is of revision %d", a.Revision)
	}
	first := before.Version
	if a.Outcome == machines.Applied {
		first++
	}
	if a.Version < first || a.Version > v.Version {
		return fmt.Sprintf("with revision %d it went from version %d to %d", v.Seq, before.Version, v.Version)
	}
	state, generation := v.State, v.Generation
	switch a.Version {
	case v.Version:
	case before.Version:
		state, generation = before.State, before.Generation
	default: // one of several that were written at once
		i := slices.IndexFunc(x.Events, func(ev Event) bool { return ev.Numbered && ev.Version == a.Version })
		if i < 0 {
			return "" // which others ask for
		}
		state, generation = x.Events[i].To, x.Events[i].Generation
	}
	if a.State != state || a.Generation != generation {
		return fmt.Sprintf("at version %d it is %q of generation %d", a.Version, state, generation)
	}
	return ""
}

// Expected: a command that expects a revision is applied to that one and to nothing that came before it in its batch, changes nothing of that one, and is refused for its expectation where
// the entity is at another one. told is that the sender has the revision of an answer; else it may have guessed one that came later.
func Expected(x *Entity, expect string, told bool, a *machines.Answer) string {
	expected, ok := streams.ParseExpected(expect)
	v, before := x.at(a.Revision)
	if !ok || expect == "" || expected.Any || v == nil {
		return ""
	}
	holds := func(v *Value) bool { // what is left of a dropped value stands for it
		_, replaced := x.at(v.Seq)
		return expected.Holds(v.Seq) || v.Dropped && replaced != nil && expected.Holds(replaced.Seq)
	}
	switch {
	case a.Outcome == machines.Applied && !holds(before):
		return fmt.Sprintf("and was applied to %d", before.Seq)
	case a.Outcome == machines.Applied && a.Version != before.Version+1:
		return fmt.Sprintf("and was applied to version %d of revision %d, which went from %d", a.Version-1, v.Seq, before.Version)
	case a.Outcome == machines.Unchanged && !holds(v):
		return fmt.Sprintf("and had nothing to change at %d", v.Seq)
	case a.Outcome == machines.Refused && a.Refusal != nil && a.Refusal.Code == machines.CodePrecondition && told && holds(v):
		return fmt.Sprintf("and was refused at %d, since it was not at that", v.Seq)
	}
	return ""
}
