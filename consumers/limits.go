package consumers

import (
	"strings"

	"github.com/bcc94042/instar/machines"
)

// Whoever may publish a command chooses its headers and its body, and both find their way into answers, events, letters
// and the memory of the entity. What does not fit there would fail again and again, so it is bounded when it comes in.
const (
	maxActor   = 256     // of who asks, and of why
	maxWords   = 512     // of the message of a refusal
	maxFields  = 32      // of a refusal
	maxField   = 256     // of the name and the message of one of them
	maxReason  = 1024    // of why a command is a dead letter
	maxCommand = 256     // of the id of a command
	maxEvent   = 900_000 // of the body of an event; a stream takes 1 MiB with the headers
)

// traceparent is a trace context that looks like one (W3C Trace Context, 3.2: 55 characters in version 00), or empty.
func traceparent(s string) string {
	if len(s) < 55 || len(s) > 128 || strings.Trim(s, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return s
}

// clip cuts a text to n bytes and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// clipRefusal bounds a refusal. The one that came in stays as it is.
func clipRefusal(r *machines.Refusal) *machines.Refusal {
	c := *r
	c.Message = clip(r.Message, maxWords)
	if len(r.Fields) == 0 {
		return &c
	}
	c.Fields = make([]machines.FieldError, min(len(r.Fields), maxFields))
	for i := range c.Fields {
		c.Fields[i] = machines.FieldError{Field: clip(r.Fields[i].Field, maxField), Message: clip(r.Fields[i].Message, maxField)}
	}
	return &c
}
