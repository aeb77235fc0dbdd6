package simulation

// Invariants that hold after every step, also while things go wrong: what an entity waits for is somewhere, and what came of a command is published before the command is gone.
// They find at once what the checks at rest would find only if nothing had healed it meanwhile.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// published looks at the command that made the last version of an entity: it stays in its stream until the events of that version are in theirs.
func published(w *World) string {
	commands := w.server.Log(streams.CommandStream)
	for _, x := range w.history.order {
		v := x.Last()
		if v == nil || x.Published == v.Version || v.Version < x.Base() || x.Has(v.Version) {
			continue
		}
		if v.Mark > 0 && commands.At(v.Mark) == nil {
			return fmt.Sprintf("the command %d of version %d of %s is gone, and no event of it is stored", v.Mark, v.Version, x)
		}
	}
	return ""
}

// waiting looks at the deadlines and effects of entities to which no command is under way: each deadline has its schedule, each effect its task.
func waiting(w *World) string {
	commands := w.server.Log(streams.CommandStream)
	for _, x := range w.history.order {
		v := x.Last()
		if v == nil {
			continue
		}
		wrong := cmp.Or(lacksSchedule(w, x), lacksTask(w, x))
		if wrong != "" && commands.LastUnder(streams.Names{}.StoredOf(x.Machine.Name, x.Key)) == nil {
			return wrong + ", and no command to it is under way"
		}
	}
	return ""
}

// every asks of each entity.
func every(lacks func(*World, *seen.Entity) string) func(*World) string {
	return func(w *World) string {
		for _, x := range w.history.order {
			if x.Last() == nil {
				continue
			}
			if wrong := lacks(w, x); wrong != "" {
				return wrong
			}
		}
		return ""
	}
}

// lacksSchedule says which deadline of an entity has no schedule.
func lacksSchedule(w *World, x *seen.Entity) string {
	log := w.server.Log(streams.CommandStream)
	v := x.Last()
	s, _ := x.Machine.State(v.State)
	if _, armed := v.Timers["deadline"]; s.Deadline != "" && !armed && !slices.Contains(openEnded, x.Machine.Name) {
		return fmt.Sprintf("%s is %s, and has no deadline", x, v.State)
	}
	for name, t := range v.Timers {
		var fired machines.Elapsed
		e := log.LastUnder(streams.Names{}.Timer(x.Machine.Name, x.Key, name))
		if e != nil {
			_ = json.Unmarshal(e.Data, &fired)
		}
		if e == nil || fired.Armed != t.Armed || store.Value(e.Header, "Nats-Schedule") != "@at "+t.At.UTC().Format(time.RFC3339Nano) {
			return fmt.Sprintf("timer %s of %s, armed at version %d for %s, has no schedule", name, x, t.Armed, t.At)
		}
	}
	return ""
}

// openEnded are the machines whose states may last for ever although they have a timeout: it has an Until, which may name no time.
var openEnded = []string{"instance", "preservation", "database_provisioning", "instance_provisioning"}

// lacksTask says which effect of an entity nobody has.
func lacksTask(w *World, x *seen.Entity) string {
	log, v := w.server.Log(streams.EffectStream), x.Last()
	for name, a := range v.Effects {
		if _, armed := v.Timers["retry-"+name]; a.NextTry != nil && !armed {
			return fmt.Sprintf("%s waits for the next try of %s, for which it has no timer", x, name)
		}
		if a.NextTry == nil && log.LastUnder(streams.Names{}.Effect(x.Machine.Name, name, x.Key)) == nil {
			return fmt.Sprintf("%s waits for attempt %s of %s, which nobody has", x, a.ID, name)
		}
	}
	return ""
}
