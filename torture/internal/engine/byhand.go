package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
)

// write puts a value beside the engine, at the revision that it was read at.
func (m *mischief) write(key string, revision uint64, value []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(m.Ctx, 20*time.Second)
	defer cancel()
	ack, err := m.reader.JS().PublishMsg(ctx, &nats.Msg{Subject: "$KV.services." + key, Data: value, Header: nats.Header{"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(revision)}}})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (m *mischief) value(key string) (uint64, []byte, error) {
	ctx, cancel := context.WithTimeout(m.Ctx, 20*time.Second)
	defer cancel()
	s, err := m.reader.JS().Stream(ctx, "KV_services")
	if err != nil {
		return 0, nil, err
	}
	msg, err := s.GetLastMsgForSubject(ctx, "$KV.services."+key)
	if err != nil {
		return 0, nil, err
	}
	return msg.Sequence, msg.Data, nil
}

// touch writes the same value again by hand: its revision is not the one that the engine knows.
func (m *mischief) touch(id string) {
	revision, value, err := m.value(load.Key(id))
	if err != nil {
		return // not there yet
	}
	if _, err := m.write(load.Key(id), revision, value); err == nil {
		m.did["values touched by hand"]++
	}
}

// park makes a value unreadable by hand: its commands must be refused, those of others in its partition go on. Then it
// gets its value back.
func (m *mischief) park(round int) error {
	id := fmt.Sprintf("parked%d", round)
	m.client.Create(m.Ctx, id, "nothing", 5*time.Second)
	neighbour := m.neighbour(id)
	m.client.Create(m.Ctx, neighbour, "nothing", 5*time.Second)
	r, revision, err := m.overwrite(id, []byte(`{"schema":1,`))
	if err != nil {
		return fmt.Errorf("cannot write a value by hand: %w", err)
	}
	m.did["values broken by hand"]++
	for n := range 4 {
		// The first one may be refused in the engine's own memory of the entity, and restarts the partition then.
		cmd := m.client.Do(m.Ctx, id, "label", map[string]any{"labels": map[string]string{"n": fmt.Sprint(n)}}, 0)
		if cmd.Code != "entity-parked" {
			m.Violations++
			m.Say("VIOLATION parked: a command to an unreadable value was answered %s %s", cmd.Outcome, cmd.Code)
		} else {
			m.buried++
		}
		began := time.Now()
		if cmd := m.client.Do(m.Ctx, neighbour, "label", map[string]any{"labels": map[string]string{"n": fmt.Sprint(n)}}, 0); cmd.Outcome != check.Applied || time.Since(began) > 20*time.Second {
			m.Violations++
			m.Say("VIOLATION others: beside an unreadable value in the same partition a command was answered %s %s after %s", cmd.Outcome, cmd.Code, part.Since(began))
		}
	}
	_, err = m.write(load.Key(id), revision, r.value)
	return err
}

// overwrite writes over the value of an entity that has come to rest, and returns what was there. What looked like rest on a busy machine may have been a pause: then the engine was first, and it waits anew.
func (m *mischief) overwrite(id string, value []byte) (was stored, revision uint64, err error) {
	for range 10 {
		if was, err = m.rested(id); err != nil {
			return was, 0, err
		}
		revision, err = m.write(load.Key(id), was.revision, value)
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
			break
		}
	}
	return was, revision, err
}

// rested waits until an entity has come to rest and gives its value.
func (m *mischief) rested(id string) (stored, error) {
	var last stored
	for range 100 {
		revision, value, err := m.value(load.Key(id))
		if err != nil {
			return last, err
		}
		v, err := m.client.Get(m.Ctx, id)
		if err == nil && v.State == "FAILED" && revision == last.revision {
			return last, nil
		}
		last = stored{revision, value}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-m.Ctx.Done():
			return last, m.Ctx.Err()
		}
	}
	return last, fmt.Errorf("%s does not come to rest", id)
}

type stored struct {
	revision uint64
	value    []byte
}

// neighbour is another entity of the same partition.
func (m *mischief) neighbour(id string) string {
	for n := 0; ; n++ {
		other := fmt.Sprintf("%s-%d", id, n)
		if streams.Partition(check.Machine, load.Key(other)) == streams.Partition(check.Machine, load.Key(id)) {
			return other
		}
	}
}

// forgotten repeats a command after its entity has taken more others than it remembers and the stream has forgotten it,
// too. It is applied again: exactly-once ends where a client repeats that late. The figure is told, not judged.
func (m *mischief) forgotten() error {
	const id = "forgetful"
	m.client.Create(m.Ctx, id, "nothing", 5*time.Second)
	first := m.client.Do(m.Ctx, id, "label", map[string]any{"labels": map[string]string{"n": "first"}}, 0)
	for n := range 40 {
		m.client.Do(m.Ctx, id, "label", map[string]any{"labels": map[string]string{"n": fmt.Sprint(n)}}, 0)
	}
	if _, err := killAndWait(m.T, m.instar, m.journal); err != nil {
		return err
	}
	c := &load.Client{Name: "late", Bases: m.client.Bases, Journal: &load.Journal{}, Rand: m.client.Rand}
	answer := c.Repeat(m.Ctx, id, first)
	m.Say("a client that repeats an id after a restart and 40 other commands of the entity is answered: %s %s, version %d (then: version %d)", answer.Outcome, answer.Code, answer.Version, first.Version)
	m.spoiled = append(m.spoiled, load.Key(id))
	return nil
}
