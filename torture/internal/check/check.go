package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Machine is the one that is tortured.
const Machine = "service"

// Check tells every violation. Nothing is one.
func Check(h *History) []Violation {
	c := &checking{h: h, stories: stories(h.Events), decided: map[string]map[string][]uint64{}}
	for _, key := range slices.Sorted(maps.Keys(c.stories)) {
		if !h.Foreign[key] {
			c.story(key, c.stories[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.Values)) {
		if len(c.stories[key]) == 0 && !h.Foreign[key] {
			c.last(key, nil, nil)
		}
	}
	c.values()
	c.commands()
	c.order()
	c.deadlines()
	c.leftovers()
	return c.found
}

type checking struct {
	h       *History
	stories map[string][]Event
	decided map[string]map[string][]uint64 // key, command id: the versions that it made
	refused map[string]map[string]int
	found   []Violation
}

func (c *checking) say(rule, key, format string, args ...any) {
	c.found = append(c.found, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// stories are the events of each entity, in the order of the stream.
func stories(events []Event) map[string][]Event {
	by := map[string][]Event{}
	for _, e := range events {
		by[e.Key] = append(by[e.Key], e)
	}
	for _, list := range by {
		slices.SortStableFunc(list, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return by
}

// transition is all events of one version.
type transition struct {
	Body
	types []string
	data  []Body
}

// story checks that an entity's events are one run of versions and places without gap or repetition, each along a legal
// edge from where the one before led to.
func (c *checking) story(key string, events []Event) {
	var all []transition
	c.decided[key] = map[string][]uint64{}
	refusals := map[string]bool{}
	for _, e := range events {
		if strings.HasPrefix(e.Type, "command.") {
			c.refusal(key, e, refusals)
			continue
		}
		last := len(all) - 1
		switch {
		case last >= 0 && e.Body.Version == all[last].Version:
			t := &all[last]
			if e.Body.From != t.From || e.Body.To != t.To || e.Body.CommandID != t.CommandID || e.Body.Command != t.Command {
				c.say("history", key, "event %d (%s) tells of another transition than the first event of version %d", e.Seq, e.ID, t.Version)
			}
		case last < 0 && e.Body.Version == 1 || last >= 0 && e.Body.Version == all[last].Version+1:
			all = append(all, transition{Body: e.Body})
		default:
			before := uint64(0)
			if last >= 0 {
				before = all[last].Version
			}
			c.say("history", key, "event %d (%s) is of version %d and follows version %d", e.Seq, e.ID, e.Body.Version, before)
			all = append(all, transition{Body: e.Body})
		}
		t := &all[len(all)-1]
		if want := fmt.Sprintf("%s/%s/%d/%d", Machine, key, e.Body.Version, len(t.types)); e.ID != want {
			c.say("history", key, "event %d has the id %s where %s belongs", e.Seq, e.ID, want)
		}
		t.types, t.data = append(t.types, e.Type), append(t.data, e.Body)
	}
	c.transitions(key, all)
}

func (c *checking) refusal(key string, e Event, seen map[string]bool) {
	if seen[e.ID] {
		c.say("once", key, "the refusal %s stands in the stream twice", e.ID)
	}
	seen[e.ID] = true
	if c.refused == nil {
		c.refused = map[string]map[string]int{}
	}
	if c.refused[key] == nil {
		c.refused[key] = map[string]int{}
	}
	c.refused[key][e.Body.CommandID]++
}

func (c *checking) transitions(key string, all []transition) {
	state, generation := none, uint64(0)
	var labels map[string]string
	for i := range all {
		t := &all[i]
		if t.From != state {
			c.say("history", key, "version %d begins in %q, the one before ended in %q", t.Version, t.From, state)
		}
		if t.Generation < generation {
			c.say("history", key, "version %d is of generation %d after %d", t.Version, t.Generation, generation)
		}
		if why := judge(t.From, t.Command, t.To, t.types); why != "" {
			c.say("legal", key, "version %d: %s", t.Version, why)
		}
		state, generation = t.To, t.Generation
		labels = relabel(labels, t)
		id := t.CommandID
		if versions := c.decided[key][id]; id == "" {
			c.say("history", key, "version %d does not tell which command made it", t.Version)
		} else if len(versions) > 0 {
			c.say("once", key, "command %s was applied as version %d and again as version %d", id, versions[0], t.Version)
		}
		c.decided[key][id] = append(c.decided[key][id], t.Version)
	}
	c.last(key, all, labels)
}

// last compares where the events lead to with what is stored.
func (c *checking) last(key string, all []transition, labels map[string]string) {
	v, ok := c.h.Values[key]
	switch {
	case len(all) == 0 && ok:
		c.say("history", key, "a value of version %d is stored, and there is no event of any", v.Version)
	case len(all) > 0 && !ok:
		c.say("history", key, "there are events, and no value")
	case len(all) > 0:
		t := &all[len(all)-1]
		if t.Version != v.Version || t.To != v.State || t.Generation != v.Generation {
			c.say("history", key, "events lead to version %d %s generation %d, stored is version %d %s generation %d", t.Version, t.To, t.Generation, v.Version, v.State, v.Generation)
		}
		if !maps.Equal(labels, v.Labels) {
			c.say("history", key, "events lead to the labels %v, stored are %v", labels, v.Labels)
		}
	}
}

// commands holds what clients were told against what happened.
func (c *checking) commands() {
	seen := map[string]bool{}
	for i := range c.h.Commands {
		cmd := &c.h.Commands[i]
		id := cmd.Key + " " + cmd.ID
		if seen[id] {
			c.say("torture", cmd.Key, "the id %s was used for two commands: the torture is wrong", cmd.ID)
		}
		seen[id] = true
		if c.h.Foreign[cmd.Key] {
			continue
		}
		versions := c.decided[cmd.Key][cmd.ID]
		switch cmd.Outcome {
		case Applied:
			if len(versions) == 0 {
				c.say("lost", cmd.Key, "%s %s was answered as applied, and made no version", cmd.Name, cmd.ID)
			} else if versions[0] != cmd.Version {
				c.say("once", cmd.Key, "%s %s was answered as version %d, and made version %d", cmd.Name, cmd.ID, cmd.Version, versions[0])
			}
		case Unchanged, Refused, Dead, Ignored:
			if len(versions) > 0 {
				c.say("once", cmd.Key, "%s %s was answered as %s %s, and made version %d", cmd.Name, cmd.ID, cmd.Outcome, cmd.Code, versions[0])
			}
		case "":
			c.say("lost", cmd.Key, "%s %s was tried %d times and never answered", cmd.Name, cmd.ID, cmd.Tries)
		}
	}
}

// order checks that a command that was answered before another one was sent comes before it.
func (c *checking) order() {
	by := map[string][]*Command{}
	for i := range c.h.Commands {
		if cmd := &c.h.Commands[i]; cmd.Outcome == Applied {
			by[cmd.Key] = append(by[cmd.Key], cmd)
		}
	}
	for key, list := range by {
		slices.SortFunc(list, func(a, b *Command) int { return cmp.Compare(a.Version, b.Version) })
		var first *Command // of those behind, the one that was answered first
		for i := len(list) - 1; i >= 0; i-- {
			if first != nil && first.Answered.Before(list[i].Sent) {
				c.say("order", key, "%s became version %d and was answered before %s was sent, which became version %d", first.ID, first.Version, list[i].ID, list[i].Version)
			}
			if first == nil || list[i].Answered.Before(first.Answered) {
				first = list[i]
			}
		}
	}
}

// deadlines checks the entities that must have failed by their deadline, in spite of everything.
func (c *checking) deadlines() {
	for key, after := range c.h.Deadlines {
		var born, ended time.Time
		for _, e := range c.stories[key] {
			switch e.Body.Command {
			case "create":
				born = e.Body.Time
			case "progress-deadline":
				ended = e.Body.Time
			}
		}
		if born.IsZero() || ended.IsZero() || c.h.Values[key].State != failed {
			c.say("timers", key, "had a deadline after %s and is %s", after, c.h.Values[key].State)
			continue
		}
		if late := ended.Sub(born.Add(after)); late < 0 || late > c.h.Late {
			c.say("timers", key, "its deadline after %s was noticed %s late", after, late)
		}
	}
}
