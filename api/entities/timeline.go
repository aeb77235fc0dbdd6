package entities

// The history of an entity. Timeline reads a page of its events from the stream EVENTS, for the events route of package api and
// for operations, and Earlier (earlier.go) one backwards; event makes a TimelineEvent of each message. Both call Published first, which waits for up to a second until
// the stream has the events that are still in the outbox of the value: otherwise a timeline could be older than the state.

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// TimelineEvent is one thing that happened to an entity.
type TimelineEvent struct {
	Seq        uint64          `json:"seq" doc:"In the stream EVENTS; after= goes on behind it"`
	Previous   uint64          `json:"previous" doc:"Sequence of the event of this entity before it, whether that is still kept or not; 0 for the first. Where it is not the one that is read before this one, events in between have aged out or were removed"`
	ID         string          `json:"id" doc:"ce-id: the same however often the event is delivered"`
	Type       string          `json:"type"`
	Class      machines.Class  `json:"class,omitempty" doc:"state, resource, error or progress: decides how long it is kept"`
	Time       time.Time       `json:"time"`
	Version    uint64          `json:"version"`
	Generation uint64          `json:"generation,omitempty"`
	From       string          `json:"from" doc:"The state before; empty when the entity did not exist"`
	To         string          `json:"to"`
	Command    string          `json:"command,omitempty" doc:"The input that led to it"`
	CommandID  string          `json:"commandId,omitempty"`
	Actor      string          `json:"actor,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	TraceID    string          `json:"traceId,omitempty" doc:"Of the W3C trace context in which it happened"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// Timeline is a page of an entity's history.
type Timeline struct {
	Items      []TimelineEvent `json:"items"`
	NextCursor string          `json:"nextCursor" doc:"Pass it as after= to read the next page, or as before= if that was asked for; empty on the last page"`
}

const publishedWithin = time.Second // after that the timeline may lack the last events

// Published waits until the stream has the events that the value still holds, so that a client that saw a state finds in
// the timeline how it came about.
func (s *Store) Published(q *rest.Request, m *machines.Machine, key string, value []byte) error {
	e, err := m.Decode(value)
	if err != nil {
		return nil // a value that was written by hand has a timeline nevertheless
	}
	var last *machines.Message
	for i := range e.Outbox {
		if e.Outbox[i].Kind == machines.KindEvent {
			last = &e.Outbox[i]
		}
	}
	if last == nil {
		return nil
	}
	var stream jetstream.Stream
	late := time.After(publishedWithin)
	for pause := time.Millisecond; ; pause *= 2 {
		var msg *jetstream.RawStreamMsg
		err := q.InTurn(func() (err error) {
			if stream == nil {
				if stream, err = s.JS.Stream(q.Context(), s.Names.Stream(streams.EventStream)); err != nil {
					return err
				}
			}
			msg, err = stream.GetLastMsgForSubject(q.Context(), s.Names.EventsOf(m.Name, key))
			return err
		})
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
		if err == nil && reaches(&e, streams.Header(msg.Header, streams.HeaderID), last) {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-late:
			return nil
		case <-q.Context().Done():
			return q.Context().Err()
		}
	}
}

// reaches reports whether the event with the id is the wanted one of the entity, or one that was published after it, such
// as that of a later refusal.
func reaches(e *machines.Entity, id string, wanted *machines.Message) bool {
	if id == wanted.ID(e.Machine, e.Key()) {
		return true
	}
	if seq, at, ok := streams.RefusedOf(e.Machine, e.Key(), id); ok {
		return seq > e.Mark || at.After(e.MarkedAt)
	}
	v, ok := streams.VersionOf(e.Machine, e.Key(), id)
	return ok && v > wanted.Version
}

// Position is where a timeline begins: after a sequence, or at a time if there is one.
type Position struct {
	After uint64
	At    time.Time
}

// Timeline reads a page in the turn of the client, through a consumer of its own that is deleted afterwards; if that fails, the server
// deletes it by itself.
func (s *Store) Timeline(q *rest.Request, m *machines.Machine, filters []string, from Position, limit int) (page *Timeline, err error) {
	err = q.InTurn(func() (err error) {
		page, err = s.timeline(q, m, filters, from, limit)
		return err
	})
	return page, err
}

func (s *Store) timeline(q *rest.Request, m *machines.Machine, filters []string, from Position, limit int) (*Timeline, error) {
	page := &Timeline{Items: []TimelineEvent{}}
	stream := s.Names.Stream(streams.EventStream)
	ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
	defer cancel()
	cfg := jetstream.ConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from.After + 1, AckPolicy: jetstream.AckNonePolicy,
		MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Second,
	}
	if !from.At.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &from.At
	}
	cons, err := s.JS.CreateConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, err
	}
	info := cons.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := s.JS.DeleteConsumer(ctx, stream, info.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			s.rest.Log.Debug("cannot delete a consumer; the server will", "request", q.Id, "error", err)
		}
	}()
	want := min(limit, int(min(info.NumPending, rest.MaxPage)))
	if want == 0 {
		return page, nil
	}
	if _, err := streams.Fetch(ctx, cons, want, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err == nil {
			page.Items = append(page.Items, s.event(m, &jetstream.RawStreamMsg{Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp}))
		}
		return err
	}); err != nil {
		return nil, err
	}
	if len(page.Items) < want {
		return nil, context.DeadlineExceeded
	}
	if info.NumPending > uint64(want) {
		page.NextCursor = strconv.FormatUint(page.Items[want-1].Seq, 10)
	}
	return page, nil
}

func (s *Store) event(m *machines.Machine, msg *jetstream.RawStreamMsg) TimelineEvent {
	e := TimelineEvent{Seq: msg.Sequence, Previous: streams.Previous(msg.Header, msg.Sequence), ID: streams.Header(msg.Header, "ce-id"), Type: streams.Header(msg.Header, "ce-type"), Time: msg.Time.UTC()}
	if trace := strings.Split(streams.Header(msg.Header, streams.HeaderTrace), "-"); len(trace) > 2 {
		e.TraceID = trace[1]
	}
	if e.Type == "" {
		if a, err := s.Names.ParseEvent(msg.Subject, m.Parent != ""); err == nil {
			e.Type = a.Last
		}
	}
	if t, ok := m.Event(e.Type); ok {
		e.Class = t.Class
	}
	var body struct {
		machines.Event
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(msg.Data, &body); err != nil {
		return e // not written by the engine: only its sequence and type can be shown
	}
	e.Version, e.Generation, e.From, e.To, e.Command, e.CommandID = body.Version, body.Generation, body.From, body.To, body.Command, strings.TrimSpace(body.CommandID)
	e.Actor, e.Reason, e.Data = body.Actor, body.Reason, body.Data
	if !body.Time.IsZero() {
		e.Time = body.Time.UTC()
	}
	return e
}
