package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Structured reports whether a content type says that the payload is a whole CloudEvent (structured mode).
func Structured(contentType string) bool {
	const prefix = "application/cloudevents"
	return len(contentType) >= len(prefix) && strings.EqualFold(contentType[:len(prefix)], prefix)
}

// cloudEvent is what is looked at of an event in structured mode.
type cloudEvent struct {
	Version string `json:"specversion"`
	ID      string `json:"id"`
	Source  string `json:"source"`
	Type    string `json:"type"`
}

// checkStructured makes sure that the payload is one CloudEvent, and the one that the message says: id and type are the same,
// so that whoever looks at the message and whoever looks into it speak of the same event. outbox_cloudevent does it in the
// database.
func (m *Message) checkStructured() error {
	media, _, _ := strings.Cut(m.ContentType, ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/cloudevents+json") {
		return fmt.Errorf("the content type %q: of structured CloudEvents only application/cloudevents+json is taken, one event at a time", m.ContentType)
	}
	var e cloudEvent
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return fmt.Errorf("the payload is no CloudEvent: %w", err)
	}
	switch {
	case e.Version != "1.0":
		return fmt.Errorf("the CloudEvent has specversion %q, not 1.0", e.Version)
	case e.Source == "":
		return errors.New("the CloudEvent has no source")
	case e.Type != m.EventType:
		return fmt.Errorf("the CloudEvent has the type %.300q, the message %q", e.Type, m.EventType)
	case e.ID != m.ID.String():
		return fmt.Errorf("the CloudEvent has the id %.200q, the message %s", e.ID, m.ID)
	}
	return nil
}

// newID is the id of a message that has none: that of its CloudEvent, or a new one.
func (m *Message) newID() (uuid.UUID, error) {
	if Structured(m.ContentType) {
		var e cloudEvent
		if json.Unmarshal(m.Payload, &e) == nil {
			if id, err := uuid.Parse(e.ID); err == nil {
				return id, nil
			}
		}
	}
	return uuid.NewV7()
}
