package simulation

// The invariants. Each looks at every value and every event as it is stored, at the world when everything has come to rest, or at several of these; it says what is wrong, or
// nothing.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/limits"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/internal/simulation/trace"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// invariant is something that always holds.
type invariant struct {
	id, says string
	value    func(*seen.Entity, *seen.Value) string // before it is added to those of the entity
	event    func(*seen.Entity, *seen.Event) string // likewise
	step     func(*World) string                    // after every step
	rest     func(*World) string                    // when everything has come to rest
	lossy    bool                                   // it holds also where a loss of power may have cost something
}

var invariants = []invariant{
	{id: "I1", says: "a command is applied once at most", event: seen.AppliedOnce},
	{id: "I2", says: "a command that was accepted has the outcome that its sender was told", rest: outcomes},
	{id: "I3", says: "events come once, in the order of the versions, and of versions that exist", event: seen.InOrder},
	{id: "I3b", says: "every version has its events", rest: complete},
	{id: "I3c", says: "a version has all of its events", rest: whole},
	{id: "I4", says: "answers under a key are equal", rest: equalAnswers},
	{id: "I5", says: "versions rise", value: seen.Rises},
	{id: "I5b", says: "transitions are along edges of the table", event: seen.Lawful},
	{id: "I5c", says: "what is added is summed up", event: seen.Summed},
	{id: "I6", says: "commands of one sender are taken in their order", rest: ordered},
	{id: "I6d", says: "commands are taken in the order of their stream", event: seen.AsSent},
	{id: "I6b", says: "a command that expects a revision is applied to that one", rest: told(conditional)},
	{id: "I6c", says: "an answer says how the entity stood", rest: told(stood)},
	{id: "I7b", says: "a result is taken of the attempt that is waited for", event: seen.Awaited},
	{id: "I8", says: "nothing is left outside of what has ended", rest: released},
	{id: "I8b", says: "what has ended waits for nothing", value: seen.Ended, lossy: true},
	{id: "I9", says: "an event says who asked", event: seen.Attributed, lossy: true},
	{id: "I9b", says: "each refusal has an event", rest: audited},
	{id: "C1", says: "a command is decided soon, while nothing goes wrong", step: decided, lossy: true},
	{id: "C2", says: "a command that is decided is acked soon, while nothing goes wrong", step: acked, lossy: true},
	{id: "I11", says: "what an index answers does not fall back", step: indexed},
	{id: "I11b", says: "the indexes have what is stored", rest: current, lossy: true},
	{id: "I10", says: "a repository is what its tasks make it", rest: repositories, lossy: true},
	{id: "L1", says: "what a loss of power has cost is told", rest: lossTold, lossy: true},
	{id: "P1", says: "a command stays until what came of it is published", step: published},
	{id: "P2", says: "what an entity waits for is somewhere", step: waiting},
	{id: "T1", says: "each deadline of a value has its schedule", rest: every(lacksSchedule), lossy: true},
	{id: "E1", says: "each effect that is waited for is to be done", rest: every(lacksTask), lossy: true},
	{id: "V1", says: "views have folded every event once", rest: folded},
	{id: "D1", says: "only what cannot be processed is a dead letter", rest: buried},
	{id: "D2", says: "what is answered with dead is a dead letter", rest: kept},
	{id: "Q1", says: "no limit of tasks is exceeded", rest: func(w *World) string { return w.history.tasks.Exceeded() }},
	endsOnce,
}

// endsOnce is also held against each event, before the others.
var endsOnce = invariant{id: "Q2", says: "each attempt of a task ends once", rest: every(func(w *World, x *seen.Entity) string { return w.history.tasks.Left(x) })}

// holds1 notes when an invariant does not hold.
func (w *World) holds1(i invariant, of fmt.Stringer, wrong string) {
	if wrong == "" || w.rereading || w.lost && !i.lossy {
		return
	}
	w.fail(i.id, "%s: %s (%s)", of, wrong, i.says)
}

// check holds the world at rest against the invariants.
func (w *World) check() {
	for _, i := range invariants {
		if i.rest != nil {
			w.holds1(i, nobody{}, i.rest(w))
		}
	}
}

type nobody struct{}

func (nobody) String() string { return "the world" }

// keyed reports whether the program keeps the answer under the key of its sender: not that of a report, of a question, or of a command without a key.
func (w *World) keyed(rec *record) bool {
	in, ok := w.machine(rec.Machine).Input(rec.Name)
	return ok && !in.Report && !streams.MadeUp(rec.id)
}

// answer is how the sender of a command was answered; what a restore has taken back does not count.
func (rec *record) answer() (a machines.Answer, ok bool) {
	if len(rec.answers) == 0 || rec.gone {
		return a, false
	}
	return a, json.Unmarshal(rec.answers[0], &a) == nil
}

func outcomes(w *World) string {
	made := map[string][]uint64{} // versions by machine, key, id
	for _, x := range w.history.order {
		for _, ev := range x.Events {
			at := x.Machine.Name + "/" + x.Key + "/" + ev.ID
			if list := made[at]; ev.Numbered && ev.ID != "" && ev.Type != machines.EventDead && (len(list) == 0 || list[len(list)-1] != ev.Version) {
				made[at] = append(list, ev.Version)
			}
		}
	}
	for _, c := range w.clients {
		for _, rec := range c.log {
			a, ok := rec.answer()
			got := made[rec.Machine+"/"+rec.Key+"/"+rec.id]
			said := fmt.Sprintf("%s %s of %s under %s was answered %s", rec.Machine, rec.Name, rec.Key, rec.id, trace.Short(bytes.Join(rec.answers, []byte(" and "))))
			switch {
			case !ok && rec.stored && !rec.gone && w.keyed(rec):
				return fmt.Sprintf("%s: it was stored and has no answer", said)
			case !ok:
			case a.Refusal != nil && a.Refusal.Code == machines.CodeUnknown && !w.keyed(rec) && (w.restores > 0 || w.wrong["drop"] > 0) && len(got) <= 1: // no answer is kept of it, so one that comes again, behind a restore or after its answer was lost, is told that nobody knows
			case a.Outcome == machines.Applied && rec.Name != machines.CommandRepair && (len(got) != 1 || got[0] != a.Version):
				return fmt.Sprintf("%s, and has made the versions %v", said, got)
			case a.Outcome != machines.Applied && len(got) > 0:
				return fmt.Sprintf("%s, and has made the versions %v", said, got)
			case !w.keyed(rec):
			case a.Outcome == machines.Dead && rec.Name != "poison":
				return said
			case a.Refusal != nil && (a.Refusal.Code == machines.CodeUnknown || a.Refusal.Code == machines.CodeParked || a.Refusal.Code == machines.CodeKeyReused):
				return said
			}
		}
	}
	return ""
}

func equalAnswers(w *World) string {
	for _, c := range w.clients {
		for _, rec := range c.log {
			for _, a := range rec.answers {
				if !w.equal(rec.answers[0], a) && !rec.gone && w.keyed(rec) {
					return fmt.Sprintf("%s was answered %s, and then %s", rec.id, rec.answers[0], a)
				}
			}
		}
	}
	return ""
}

// equal compares two answers under a key. A command that was refused, or had nothing to change, and was still to be acknowledged when a backup was begun, is decided once more after the
// restore, which has given its entity another version: if it expects the one of before, it is refused for that.
func (w *World) equal(first, next []byte) bool {
	if same := bytes.Equal(first, next); same || w.restores == 0 {
		return same
	}
	var a, b machines.Answer
	if json.Unmarshal(first, &a) != nil || json.Unmarshal(next, &b) != nil || a.Outcome == machines.Applied {
		return false
	}
	b.Version, b.Revision = a.Version, a.Revision
	if b.Refusal != nil && b.Refusal.Code == machines.CodePrecondition {
		a.Outcome, a.Refusal = b.Outcome, b.Refusal
	}
	return reflect.DeepEqual(a, b)
}

func complete(w *World) string {
	for _, x := range w.history.order {
		v := x.Last()
		if v == nil {
			continue
		}
		has := map[uint64]bool{}
		for _, ev := range x.Events {
			has[ev.Version] = has[ev.Version] || ev.Numbered
		}
		for version := x.Base(); version <= v.Version; version++ {
			if !has[version] {
				return fmt.Sprintf("%s is at version %d, and no event is of version %d", x, v.Version, version)
			}
		}
	}
	return ""
}

// whole looks at transitions that have two events.
func whole(w *World) string {
	for _, x := range w.history.order {
		for _, ev := range x.Events {
			counts := func(o seen.Event) bool { return o.Version == ev.Version && o.Type == "thing.counted" }
			if ev.Type == "thing.added" && ev.Numbered && !x.Purged && !slices.ContainsFunc(x.Events, counts) {
				return fmt.Sprintf("event %s of %s stands alone", ev.EventID, x)
			}
		}
	}
	return ""
}

// ordered holds where a sender has waited for each of its commands: of one entity the versions of its answers rise.
func ordered(w *World) string {
	for _, c := range w.clients {
		last := map[string]uint64{}
		for _, rec := range c.log {
			a, ok := rec.answer()
			at := rec.Machine + "/" + rec.Key
			if !ok {
				continue
			}
			if a.Version < last[at] || a.Outcome == machines.Applied && a.Version == last[at] {
				return fmt.Sprintf("%s of %s was answered at version %d, the one before at %d", rec.id, at, a.Version, last[at])
			}
			last[at] = a.Version
		}
	}
	return ""
}

func repositories(w *World) string { return limits.Derived(w.history.order) }

// folded holds each view against one that is folded anew from the events that were seen.
func folded(w *World) string {
	for _, x := range w.history.order {
		for i := range x.Machine.Views {
			v := &x.Machine.Views[i]
			want, n := seen.View(x, v)
			if n == 0 || x.Dropped { // its views are removed with it
				continue
			}
			bucket := x.Machine.BucketOf(*v)
			e := w.server.Log(streams.BucketStream(bucket)).LastUnder(streams.BucketSubject(bucket, x.Key))
			if e == nil {
				return fmt.Sprintf("%s has %d events that no view %s has folded", x, n, v.Name)
			}
			var have machines.Folded
			_ = json.Unmarshal(e.Data, &have)
			if !bytes.Equal(have.Value, want) {
				return fmt.Sprintf("the view %s of the %d events of %s is %s, and has to be %s", v.Name, n, x, have.Value, want)
			}
		}
	}
	return ""
}

// letter is a dead letter: its subject, that of the message in it, and the id of that.
type letter struct{ subject, of, id string }

// buried knows what may be a dead letter: a command whose table panics, and a report that a client has made up, which may be of no form at all; also when
// the operator has put it back, under an id of its own.
func buried(w *World) string {
	for _, l := range w.history.letters {
		may := func(rec *record) bool {
			in, _ := w.machine(rec.Machine).Input(rec.Name)
			return strings.HasSuffix(l.of, "."+rec.Machine+"."+rec.Key+"."+rec.Name) && (streams.CommandID(rec.Machine, rec.Key, rec.id) == l.id || strings.HasPrefix(streams.UnscopeID(rec.Machine, rec.Key, l.id), "redrive-")) && (rec.Name == "poison" || in.Report)
		}
		if !slices.ContainsFunc(w.clients, func(c *client) bool { return slices.ContainsFunc(c.log, may) }) {
			return fmt.Sprintf("there is a dead letter %s of %s, %s", l.subject, l.of, l.id)
		}
	}
	return ""
}

// quiet reports whether everything has come to rest.
func (w *World) quiet() bool { return w.unrest() == "" }

// unrest is what keeps the world from rest: somebody has something to do, or what is stored is not published. What a power loss has taken is brought back by the passes over all
// entities, and the views come after the events: both are waited for before they are judged.
func (w *World) unrest() string {
	commands, effects, events := w.server.Log(streams.CommandStream), w.server.Log(streams.EffectStream), w.server.Log(streams.EventStream)
	switch {
	case commands == nil || effects == nil || events == nil:
		return "the streams are not there"
	case effects.N > 0:
		return "an effect is not done: " + effects.At(effects.First).Subject
	case w.restoring:
		return "a backup is restored"
	case w.operator != nil && w.operator.Left+len(w.laters) > 0:
		return "the operator has something to do"
	case commands.LastUnder(streams.Names{}.StoredAll()) != nil:
		return "a command is not taken: " + commands.LastUnder(streams.Names{}.StoredAll()).Subject
	case time.Since(w.calmAt) > calmFor*2/3:
	case cmp.Or(complete(w), lossTold(w), every(lacksSchedule)(w), every(lacksTask)(w), folded(w), current(w), repositories(w)) != "":
		return "what is stored is not published"
	}
	if all := w.choices(); len(all) > 0 {
		return "on its way: " + all[0].what
	}
	return ""
}
