package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// told is one event of a task.
type told struct {
	typ, key string
	at       time.Time
	attempt  string
	kind     string
}

// ends are the events with which an attempt ends.
var ends = []string{task.EventSucceeded, task.EventFailed, task.EventRetrying, task.EventCanceled, task.EventSnoozed, task.EventReset}

// judge holds the log of events against the limits, and every attempt against its ends. Nothing else is believed.
func (w *world) judge() error {
	log, err := w.log()
	if err != nil {
		return err
	}
	violated := func(format string, args ...any) {
		if w.Violations++; w.Violations < 20 {
			w.Say("VIOLATED: "+format, args...)
		}
	}
	ended := attempts(log, violated)
	if ended < w.made {
		violated("%d attempts have ended, of %d tasks", ended, w.made)
	}
	for path, states := range map[string][]string{"tasks": {task.Queued, task.Running}, "repositories": {repository.Cloning, repository.Analyzing}} {
		left, err := w.left(path, states)
		if err != nil {
			return err
		}
		if left > 0 {
			violated("%d %s are left %s", left, path, strings.Join(states, " or "))
		}
	}
	w.Say("%d attempts of %d tasks, each with one end; never more than %d at a time", ended, w.made, atOnce)
	return nil
}

// attempts says what is wrong of those in a log, and returns how many have ended. An end is counted by the attempt that it names, whatever ran then: one that comes twice is seen.
func attempts(log []told, violated func(format string, args ...any)) int {
	running, ended := map[string]told{}, map[string]bool{}
	for _, e := range log {
		switch id := e.key + "/" + e.attempt; {
		case slices.Contains(ends, e.typ) && e.attempt != "": // else it was queued
			if ended[id] {
				violated("the attempt %s ended twice", id)
			}
			ended[id] = true
			if running[e.key].attempt != e.attempt {
				violated("the attempt %s ended, and did not run", id)
				continue
			}
			delete(running, e.key)
		case e.typ == task.EventStarted:
			if _, twice := running[e.key]; twice {
				violated("%s was started while it ran", e.key)
			}
			running[e.key] = e
			within(running, e.at, violated)
		}
	}
	if len(running) > 0 {
		violated("%d attempts have no end", len(running))
	}
	return len(ended)
}

// within holds what runs at a moment against the limits.
func within(running map[string]told, at time.Time, violated func(format string, args ...any)) {
	repos, away := map[string]int{}, 0
	for key, r := range running {
		repos[strings.Split(key, ".")[1]]++
		if r.kind == "away" {
			away++
		}
	}
	if len(running) > atOnce || away > elsewhere {
		violated("%d run at %s, %d of them elsewhere", len(running), at, away)
	}
	for r := range repositories {
		if n := repos[fmt.Sprint("r", r)]; n > concurrency(r) {
			violated("%d of r%d run at %s", n, r, at)
		}
	}
}

// left is how many of a list are still in one of some states.
func (w *world) left(path string, states []string) (n int, err error) {
	err = rig.Until(w.Ctx, time.Minute, "a list of "+path, func() bool {
		for _, i := range w.nodes {
			var list struct {
				Items []json.RawMessage `json:"items"`
			}
			if get("http://"+i.HTTP+"/v1/"+path+"?state="+strings.Join(states, ","), &list) == nil {
				n = len(list.Items)
				return true
			}
		}
		return false
	})
	return n, err
}

// outlived is how long after a moment the last attempt ended that ran then.
func outlived(log []told, moment time.Time) (longest time.Duration) {
	running := map[string]bool{}
	for _, e := range log {
		switch late := e.at.After(moment); {
		case slices.Contains(ends, e.typ):
			if running[e.key] && late {
				longest = max(longest, e.at.Sub(moment))
			}
			delete(running, e.key)
		case e.typ == task.EventStarted && !late:
			running[e.key] = true
		}
	}
	return longest
}

// log reads all events of tasks in the order in which their commands were stored. A stream may have no leader for a while.
func (w *world) log() (all []told, err error) {
	r, err := w.Reader(w.url())
	if err != nil {
		return nil, err
	}
	late := rig.Until(w.Ctx, time.Minute, "the events are read", func() bool { all, err = w.read(r.JS()); return err == nil })
	return all, errors.Join(late, err)
}

func (w *world) read(js jetstream.JetStream) ([]told, error) {
	c, err := js.OrderedConsumer(w.Ctx, "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"instar.evt.task.>"}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, err
	}
	it, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer it.Stop()
	var all []told
	for {
		m, err := it.Next(jetstream.NextMaxWait(20 * time.Second))
		if err != nil {
			return nil, fmt.Errorf("cannot read the events: %w", err)
		}
		var e struct {
			Time time.Time `json:"time"`
			Data struct {
				AttemptID string `json:"attemptId"`
				Type      string `json:"type"`
			} `json:"data"`
		}
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			return nil, err
		}
		key := strings.Join(strings.Split(m.Subject(), ".")[3:6], ".")
		all = append(all, told{typ: m.Headers().Get("ce-type"), key: key, at: e.Time, attempt: e.Data.AttemptID, kind: e.Data.Type})
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.NumPending == 0 {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b told) int { return a.at.Compare(b.at) })
	return all, nil
}
