package outbox

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Limits of a message, the same in outbox_check of the database. With names, content type and headers as long as they may be,
// a payload of MaxPayload and what a relay adds are together a message of at most 1 MiB, the limit of NATS.
const (
	MaxPayload     = 1<<20 - 8192 // bytes
	MaxHeaders     = 3000         // bytes of all names and values, and 4 for each header
	MaxContentType = 256          // bytes
)

var (
	token      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	dotted     = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
)

// Check says what is wrong with a message, before a relay stumbles over it.
func (m *Message) Check() error {
	switch {
	case !token.MatchString(m.AggregateType):
		return fmt.Errorf("the aggregate's type %.200q must be 1 to 128 letters, digits, - or _", m.AggregateType)
	case !token.MatchString(m.AggregateID):
		return fmt.Errorf("the aggregate's id %.200q must be 1 to 128 letters, digits, - or _", m.AggregateID)
	case len(m.EventType) > 256 || !dotted.MatchString(m.EventType):
		return fmt.Errorf("the event's type %.300q must be at most 256 letters, digits, -, _ and dots between them, such as order.paid", m.EventType)
	case len(m.Payload) > MaxPayload:
		return fmt.Errorf("the payload has %d bytes, more than %d: put it elsewhere and refer to it", len(m.Payload), MaxPayload)
	case strings.ContainsAny(m.ContentType, "\r\n\x00") || len(m.ContentType) > MaxContentType:
		return fmt.Errorf("the content type %.300q is none", m.ContentType)
	}
	size := 0
	for name, value := range m.Headers {
		size += len(name) + len(value) + 4
		if !headerName.MatchString(name) {
			return fmt.Errorf("the header %.200q has characters that a header's name may not have", name)
		}
		if len(name) >= 5 && strings.EqualFold(name[:5], "Nats-") {
			return fmt.Errorf("the header %.200q is for NATS", name)
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("the header %.200q has a value of several lines", name)
		}
	}
	if size > MaxHeaders {
		return fmt.Errorf("the headers have %d bytes, more than %d", size, MaxHeaders)
	}
	if Structured(m.ContentType) {
		return m.checkStructured()
	}
	return nil
}

// ErrUnknownType says that an event has a type that the application does not know.
var ErrUnknownType = errors.New("the type of the event is unknown")

// Policy is what happens to events of an unknown type.
type Policy string

// The policies.
const (
	PublishUnknown Policy = "publish" // the default: as they are
	ParkUnknown    Policy = "park"    // a relay parks them as DEAD; an operator redrives or discards them
	RefuseUnknown  Policy = "refuse"  // they cannot be appended; a relay parks them
)

// Types are the events that an application has. A nil *Types knows all.
type Types struct {
	Names   []string // dotted; one that ends in ".>" stands for all that begin with it
	Unknown Policy   // PublishUnknown
}

// Known reports whether there is such an event.
func (t *Types) Known(eventType string) bool {
	if t == nil {
		return true
	}
	for _, name := range t.Names {
		if all, ok := strings.CutSuffix(name, ">"); name == eventType || ok && strings.HasPrefix(eventType, all) {
			return true
		}
	}
	return false
}

// Park reports whether a relay parks an event of that type.
func (t *Types) Park(eventType string) bool {
	p := t.of(eventType)
	return p == ParkUnknown || p == RefuseUnknown
}

// of is the policy for an event; empty for a known one.
func (t *Types) of(eventType string) Policy {
	switch {
	case t.Known(eventType):
		return ""
	case t.Unknown == "":
		return PublishUnknown
	}
	return t.Unknown
}
