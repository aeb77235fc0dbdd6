package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Event is what an aggregate says that happened to it. Its type is a stable dotted name, such as order.paid: it is what
// others subscribe to, so it outlives the names of code.
type Event interface{ EventType() string }

// DomainEvent is an event that was raised.
type DomainEvent struct {
	ID         uuid.UUID
	OccurredAt time.Time
	Event      Event
}

// Recorder keeps the events of an aggregate until it is saved. Aggregates embed it; their methods raise events and never
// publish them. It is not for several goroutines at a time, like the aggregate.
type Recorder struct{ events []DomainEvent }

// Raise records that something happened, now by the clock of this process, under a new id (UUIDv7).
func (r *Recorder) Raise(e Event) {
	r.events = append(r.events, DomainEvent{ID: uuid.Must(uuid.NewV7()), OccurredAt: time.Now(), Event: e}) // it fails only without random numbers
}

// PullDomainEvents are the events since the last pull, in the order in which they were raised. The aggregate has forgotten them.
func (r *Recorder) PullDomainEvents() []DomainEvent {
	events := r.events
	r.events = nil
	return events
}

// DomainEventContext is what an event itself does not know.
type DomainEventContext struct {
	AggregateType string
	AggregateID   string
	Headers       map[string]string // traceparent, tenant, schemaVersion, …
}

// Serializer writes the payload of an event and says what it is.
type Serializer interface {
	Serialize(e Event) (payload []byte, contentType string, err error)
}

// JSON is the default serializer.
type JSON struct{}

// Serialize writes the event as encoding/json does.
func (JSON) Serialize(e Event) ([]byte, string, error) {
	payload, err := json.Marshal(e)
	return payload, "application/json", err
}

// Pulled is whatever embeds a [Recorder].
type Pulled interface{ PullDomainEvents() []DomainEvent }

// RecordPulledDomainEvents pulls the events of an aggregate and appends them in the transaction that saves it. After an
// error they are gone with the transaction: load the aggregate again.
func (a *Appender) RecordPulledDomainEvents(ctx context.Context, tx pgx.Tx, from Pulled, of DomainEventContext) ([]uuid.UUID, error) {
	msgs, err := a.messages(from, of)
	if err != nil {
		return nil, err
	}
	return a.Append(ctx, tx, msgs...)
}

// RecordPulledDomainEventsSQL is [Appender.RecordPulledDomainEvents] for database/sql.
func (a *Appender) RecordPulledDomainEventsSQL(ctx context.Context, tx *sql.Tx, from Pulled, of DomainEventContext) ([]uuid.UUID, error) {
	msgs, err := a.messages(from, of)
	if err != nil {
		return nil, err
	}
	return a.AppendSQL(ctx, tx, msgs...)
}

func (a *Appender) messages(from Pulled, of DomainEventContext) ([]Message, error) {
	s := a.Serializer
	if s == nil {
		s = JSON{}
	}
	events := from.PullDomainEvents()
	msgs := make([]Message, len(events))
	for i, e := range events {
		payload, contentType, err := s.Serialize(e.Event)
		if err != nil {
			return nil, fmt.Errorf("outbox: cannot serialize %s: %w", e.Event.EventType(), err)
		}
		msgs[i] = Message{
			ID: e.ID, OccurredAt: e.OccurredAt, AggregateType: of.AggregateType, AggregateID: of.AggregateID, EventType: e.Event.EventType(),
			Payload: payload, ContentType: contentType, Headers: of.Headers,
		}
	}
	return msgs, nil
}
