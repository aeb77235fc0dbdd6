package tasks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines/task"
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
	running, ended := map[string]told{}, map[string]bool{}
	for _, e := range log {
		if slices.Contains(ends, e.typ) {
			if r, ran := running[e.key]; ran {
				delete(running, e.key)
				if ended[e.key+r.attempt] {
					violated("the attempt %s of %s ended twice", r.attempt, e.key)
				}
				ended[e.key+r.attempt] = true
			}
			continue
		}
		if e.typ != task.EventStarted {
			continue
		}
		if _, twice := running[e.key]; twice {
			violated("%s was started while it ran", e.key)
		}
		running[e.key] = e
		repos, away := map[string]int{}, 0
		for key, r := range running {
			repos[strings.Split(key, ".")[1]]++
			if r.kind == "away" {
				away++
			}
		}
		if len(running) > atOnce || away > elsewhere {
			violated("%d run at %s, %d of them elsewhere", len(running), e.at, away)
		}
		for r := range repositories {
			if n := repos[fmt.Sprint("r", r)]; n > concurrency(r) {
				violated("%d of r%d run at %s", n, r, e.at)
			}
		}
	}
	if len(running) > 0 {
		violated("%d attempts have no end", len(running))
	}
	if len(ended) < repositories*each {
		violated("%d attempts have ended, of %d tasks", len(ended), repositories*each)
	}
	w.Say("%d attempts of %d tasks, each with one end; never more than %d at a time", len(ended), repositories*each+1, atOnce)
	return nil
}

// log reads all events of tasks in the order in which their commands were stored.
func (w *world) log() ([]told, error) {
	r, err := w.Reader(w.nats.URL())
	if err != nil {
		return nil, err
	}
	c, err := r.JS().OrderedConsumer(w.Ctx, "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"instar.evt.task.>"}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, err
	}
	var all []told
	for {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
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
