package simulation

// Invariants that hold after every step, also while things go wrong: what an entity waits for is somewhere, and what came of a command is published before the command is gone.
// They find at once what the checks at rest would find only if nothing had healed it meanwhile.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// published looks at the command that made the last version of an entity: it stays in its stream until the events of that version are in theirs.
func published(w *World) string {
	commands := w.server.Log(streams.CommandStream)
	for _, x := range w.history.order {
		v := x.last()
		if v == nil || x.told == v.Version || v.Version < x.base() || x.has(v.Version) {
			continue
		}
		if v.Mark > 0 && commands.At(v.Mark) == nil {
			return fmt.Sprintf("the command %d of version %d of %s is gone, and no event of it is stored", v.Mark, v.Version, x)
		}
	}
	return ""
}

// has reports whether an event of a version was seen, and notes it.
func (x *entity) has(version uint64) bool {
	for i := len(x.events) - 1; i >= 0; i-- {
		if x.events[i].numbered && x.events[i].Version == version {
			x.told = version
			return true
		}
	}
	return false
}

// waiting looks at the deadlines and effects of entities to which no command is under way: each deadline has its schedule, each effect its task.
func waiting(w *World) string {
	commands := w.server.Log(streams.CommandStream)
	for _, x := range w.history.order {
		v := x.last()
		if v == nil {
			continue
		}
		wrong := cmp.Or(x.lacksSchedule(w), x.lacksTask(w))
		if wrong != "" && commands.LastUnder(streams.Names{}.StoredOf(x.m.Name, x.key)) == nil {
			return wrong + ", and no command to it is under way"
		}
	}
	return ""
}

// every asks of each entity.
func every(lacks func(*entity, *World) string) func(*World) string {
	return func(w *World) string {
		for _, x := range w.history.order {
			if x.last() == nil {
				continue
			}
			if wrong := lacks(x, w); wrong != "" {
				return wrong
			}
		}
		return ""
	}
}

// lacksSchedule says which deadline of an entity has no schedule.
func (x *entity) lacksSchedule(w *World) string {
	log := w.server.Log(streams.CommandStream)
	v := x.last()
	if _, armed := v.Timers["deadline"]; x.m == orders.Things && v.State == "working" && !armed { // which is always left after a time
		return fmt.Sprintf("%s is %s, and has no deadline", x, v.State)
	}
	for name, t := range v.Timers {
		var fired machines.Elapsed
		e := log.LastUnder(streams.Names{}.Timer(x.m.Name, x.key, name))
		if e != nil {
			_ = json.Unmarshal(e.Data, &fired)
		}
		if e == nil || fired.Armed != t.Armed || store.Value(e.Header, "Nats-Schedule") != "@at "+t.At.UTC().Format(time.RFC3339Nano) {
			return fmt.Sprintf("timer %s of %s, armed at version %d for %s, has no schedule", name, x, t.Armed, t.At)
		}
	}
	return ""
}

// lacksTask says which effect of an entity nobody has.
func (x *entity) lacksTask(w *World) string {
	log := w.server.Log(streams.EffectStream)
	for name, a := range x.last().Effects {
		if a.NextTry == nil && log.LastUnder(streams.Names{}.Effect(x.m.Name, name, x.key)) == nil {
			return fmt.Sprintf("%s waits for attempt %s of %s, which nobody has", x, a.ID, name)
		}
	}
	return ""
}
