package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// values checks what is stored: that nothing waits for what will not come, and that nothing is unpublished.
func (c *checking) values() {
	ids := map[string]bool{}
	for _, e := range c.h.Events {
		ids[e.ID] = true
	}
	for _, key := range slices.Sorted(maps.Keys(c.h.Values)) {
		v := c.h.Values[key]
		if c.h.Foreign[key] {
			continue
		}
		for name, a := range v.Effects {
			if a.NextTry == nil {
				c.say("effects", key, "waits for %s of %s, and no effect is in the stream", a.ID, name)
			}
		}
		if Transitional(v.State) {
			if _, ok := v.Timers["deadline"]; !ok {
				c.say("timers", key, "is %s without a deadline", v.State)
			}
		}
		for name, t := range v.Timers {
			at, ok := c.h.Schedules[key+"/"+name]
			switch {
			case t.At.Before(c.h.Read.Add(-c.h.Late)):
				c.say("timers", key, "timer %s was to fire at %s and is still armed", name, t.At.Format(time.RFC3339Nano))
			case t.At.Before(c.h.Read): // fires now
			case !ok:
				c.say("timers", key, "timer %s is armed for %s, and nothing in the stream fires it", name, t.At.Format(time.RFC3339Nano))
			case !at.Equal(t.At):
				c.say("timers", key, "timer %s is armed for %s, and the stream fires it at %s", name, t.At.Format(time.RFC3339Nano), at.Format(time.RFC3339Nano))
			}
		}
		for _, m := range v.Outbox {
			if id := m.id(key); m.Kind == "event" && !ids[id] {
				c.say("history", key, "the last write emits %s (%s), which is not in the stream", id, m.Name)
			}
		}
	}
}

func (m Message) id(key string) string {
	if m.Refusal != 0 {
		return fmt.Sprintf("%s/%s/refused/%d/%d/%d", Machine, key, m.Refusal, m.At.UnixNano(), m.N)
	}
	return fmt.Sprintf("%s/%s/%d/%d", Machine, key, m.Version, m.N)
}

func (c *checking) leftovers() {
	if n := len(c.h.Pending); n > 0 {
		c.say("left", "", "%d commands lie in their stream, such as %s", n, c.h.Pending[0])
	}
	if n := len(c.h.Effects); n > 0 {
		c.say("left", "", "%d effects lie in their stream, such as %s", n, c.h.Effects[0])
	}
	if n := len(c.h.Letters); n != c.h.Buried {
		c.say("left", "", "there are %d dead letters where %d belong: %v", n, c.h.Buried, c.h.Letters)
	}
}

// relabel is what a transition makes of the labels, told by its events.
func relabel(labels map[string]string, t *transition) map[string]string {
	for i, typ := range t.types {
		var data struct {
			Labels map[string]string `json:"labels"`
		}
		switch typ {
		case "service.creation.requested", "service.labels.updated", "service.update.requested":
			if json.Unmarshal(t.data[i].Data, &data) != nil {
				continue
			}
			if data.Labels != nil || typ != "service.update.requested" {
				labels = data.Labels
			}
		}
	}
	return labels
}

// Redecided counts the commands that were refused, and, because nobody heard of it, decided anew when they were sent
// again. That is no violation, because a refusal changes nothing; it is worth knowing.
func Redecided(h *History) int {
	c := &checking{h: h, decided: map[string]map[string][]uint64{}}
	for key, events := range stories(h.Events) {
		c.story(key, events)
	}
	n := 0
	for key, by := range c.refused {
		for id := range by {
			if len(c.decided[key][id]) > 0 {
				n++
			}
		}
	}
	return n
}
