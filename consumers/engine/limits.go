package engine

import (
	"strings"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
)

// Whoever may publish a command chooses its headers and its body, and both find their way into answers, events, letters
// and the memory of the entity. What does not fit there would fail again and again, so it is bounded when it comes in.
const (
	maxActor   = 256 // of who asks, and of why
	maxWords   = 512 // of the message of a refusal
	maxFields  = 32  // of a refusal
	maxCommand = 256 // of the id of a command
)

// traceparent is a trace context that looks like one (W3C Trace Context, 3.2: 55 characters in version 00), or empty.
func traceparent(s string) string {
	if len(s) < 55 || len(s) > 128 || strings.Trim(s, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return s
}

// clipRefusal bounds a refusal. The one that came in stays as it is.
func clipRefusal(r *machines.Refusal) *machines.Refusal {
	c := *r
	c.Message = consumers.Clip(r.Message, maxWords)
	if len(r.Fields) == 0 {
		return &c
	}
	c.Fields = make([]machines.FieldError, min(len(r.Fields), maxFields))
	for i := range c.Fields {
		c.Fields[i] = machines.FieldError{Field: consumers.Clip(r.Fields[i].Field, consumers.MaxField), Message: consumers.Clip(r.Fields[i].Message, consumers.MaxField)}
	}
	return &c
}
