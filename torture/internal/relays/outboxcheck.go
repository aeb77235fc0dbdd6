package relays

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// judgeStream waits until the stream holds as many events as the database counts, or none come any more, and compares.
func (o *orders) judgeStream(want map[string]int) {
	total := 0
	for _, n := range want {
		total += n
	}
	began := time.Now()
	_ = rig.Until(o.Ctx, 60*time.Second, "all events", func() bool { o.supervise(); return o.held() >= total }) // told below
	settled := time.Since(began)
	wait.For(o.Ctx, time.Second) // what is too much comes as well
	events, err := o.events()
	if err != nil {
		o.Violations++
		o.Say("FAILED: %v", err)
		return
	}
	found := misplaced(want, events)
	o.Violations += len(found)
	for i, v := range found {
		if i < 20 {
			o.Say("VIOLATION %s", v)
		}
	}
	what := ""
	for _, k := range slices.Sorted(maps.Keys(o.kills)) {
		what += fmt.Sprintf(", %d times %s", o.kills[k], k)
	}
	o.Say("mode %s, durability %s: %d transactions, %d rolled back, %d changes, %d events; the last was there after %s%s",
		o.mode, o.profile, o.committed.Load(), o.rolledBack.Load(), total, len(events), settled.Round(time.Millisecond), what)
}

// held is how many events the stream holds.
func (o *orders) held() int {
	r, err := rig.OpenReader(o.url)
	if err != nil {
		return -1
	}
	defer r.Close()
	s, err := r.JS().Stream(o.Ctx, "OUTBOX")
	if err != nil {
		return -1
	}
	info, err := s.Info(o.Ctx, jetstream.WithSubjectFilter("outbox.>"))
	if err != nil {
		return -1
	}
	n := 0
	for _, c := range info.State.Subjects {
		n += int(c) // a count of messages
	}
	return n
}

// events are the events of the stream, oldest first.
func (o *orders) events() ([]*nats.Msg, error) {
	n := o.held()
	r, err := rig.OpenReader(o.url)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c, err := r.JS().OrderedConsumer(o.Ctx, "OUTBOX", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"outbox.>"}})
	if err != nil {
		return nil, err
	}
	it, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer it.Stop()
	var list []*nats.Msg
	for range n {
		m, err := it.Next(jetstream.NextMaxWait(20 * time.Second))
		if err != nil {
			return nil, err
		}
		list = append(list, &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()})
	}
	return list, nil
}

// misplaced says which events are missing, there twice or out of order: those of an aggregate are numbered from 1.
func misplaced(want map[string]int, events []*nats.Msg) []string {
	var found []string
	have, ids := map[string]int{}, map[string]bool{}
	for i, m := range events {
		var body struct {
			N int `json:"n"`
		}
		if err := json.Unmarshal(m.Data, &body); err != nil {
			found = append(found, fmt.Sprintf("event %d cannot be read: %v", i, err))
			continue
		}
		agg, id := m.Header.Get("ce-subject")[len("order/"):], m.Header.Get("ce-id")
		switch {
		case ids[id]:
			found = append(found, fmt.Sprintf("twice: change %d of %s (%s)", body.N, agg, m.Header.Get("Outbox-Pos")))
		case body.N != have[agg]+1:
			found = append(found, fmt.Sprintf("order: change %d of %s follows %d (%s)", body.N, agg, have[agg], m.Header.Get("Outbox-Pos")))
		}
		ids[id] = true
		have[agg] = max(have[agg], body.N)
	}
	for _, agg := range slices.Sorted(maps.Keys(want)) {
		if have[agg] != want[agg] {
			found = append(found, fmt.Sprintf("%s was changed %d times, the stream knows %d", agg, want[agg], have[agg]))
		}
	}
	return found
}
