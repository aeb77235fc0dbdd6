package consumers

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/bcc94042/instar/machines"
)

// MaxBody bounds the body of a command. It is checked by the machines as well as at the HTTP door, because anybody with the
// permission may publish a command.
const MaxBody = machines.MaxBody

// MaxTries is how often a command may fail by itself before it is given up. What lies in the environment, such as a full
// disk or a missing leader, is waited out and does not count.
const MaxTries = 10

// What is written into answers, events and letters is cut to these, in bytes.
const (
	MaxField  = 256     // of the name and the message of one field of a refusal, and of the code of a failure
	MaxWords  = 512     // of the message of a refusal
	maxFields = 32      // of a refusal
	MaxReason = 1024    // of why a command is a dead letter
	maxEvent  = 900_000 // of the body of an event; a stream takes 1 MiB with the headers
)

// Clip cuts a text to n bytes and says so.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// JSONOrBase64 is JSON as it is, and anything else as a text in base64.
func JSONOrBase64(value []byte) any {
	if json.Valid(value) {
		return json.RawMessage(value)
	}
	return base64.StdEncoding.EncodeToString(value)
}

// ClipRefusal bounds a refusal. The one that came in stays as it is.
func ClipRefusal(r *machines.Refusal) *machines.Refusal {
	c := *r
	c.Message = Clip(r.Message, MaxWords)
	if len(r.Fields) == 0 {
		return &c
	}
	c.Fields = make([]machines.FieldError, min(len(r.Fields), maxFields))
	for i := range c.Fields {
		c.Fields[i] = machines.FieldError{Field: Clip(r.Fields[i].Field, MaxField), Message: Clip(r.Fields[i].Message, MaxField)}
	}
	return &c
}
