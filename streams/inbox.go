package streams

import "strings"

// maxInbox bounds the subject that an answer goes to.
const maxInbox = 255

// Inbox is where an answer may go that somebody asks for, or empty if that is no inbox. Anything else would let him publish
// with the rights of the one who answers: NATS checks what a client publishes to, and not what it names as the reply.
//
// An inbox begins with _INBOX. A request from another account comes with a reply that the server made up (_R_), one from
// beyond a gateway with one that leads there (_GR_.<cluster>.<server>.<inbox>); no client may name these itself.
func Inbox(subject string) string {
	inner := subject
	if rest, ok := strings.CutPrefix(inner, "_GR_."); ok {
		if parts := strings.SplitN(rest, ".", 3); len(parts) == 3 {
			inner = parts[2]
		}
	}
	if len(subject) > maxInbox || !strings.HasPrefix(inner, "_INBOX") && !strings.HasPrefix(inner, "_R_.") || strings.ContainsAny(subject, "*>\x00") || !Storable(subject) {
		return ""
	}
	return subject
}

// Traceparent is a trace context that looks like one (W3C Trace Context, 3.2: 55 characters in version 00), or empty.
func Traceparent(s string) string {
	if len(s) < 55 || len(s) > 128 || strings.Trim(s, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return s
}
