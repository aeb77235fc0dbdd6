package sink

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// structuredType is the content type of a CloudEvent in structured mode.
const structuredType = "application/cloudevents+json"

// wrap turns the event that is in the encoder's message into structured mode: one JSON object with the attributes and the data. One
// that would be too large then stays in binary mode; a reader tells the modes by the content type.
func (e *encoder) wrap(r *Row, content string) {
	b := append(e.body[:0], `{"specversion":"1.0"`...)
	for _, name := range []string{"id", "source", "type", "subject", "time", "datacontenttype"} {
		b = member(b, name, e.fixed["ce-"+name][0])
	}
	for _, name := range []string{"traceparent", "tracestate"} { // the extension for distributed tracing
		if value := r.Headers[name]; value != "" {
			b = member(b, name, value)
		}
	}
	switch {
	case len(r.Payload) == 0:
	case isJSON(content) && json.Valid(r.Payload):
		b = append(append(b, `,"data":`...), r.Payload...)
	default:
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"data_base64":"`...), r.Payload), '"')
	}
	b = append(b, '}')
	e.body = b
	if e.size(r)+len(b) > e.limit {
		return
	}
	e.msg.Data = b
	e.set("content-type", structuredType)
	e.mode(true)
}

func member(b []byte, name, value string) []byte {
	text, _ := json.Marshal(value) // a string
	return append(append(append(append(b, `,"`...), name...), `":`...), text...)
}

// isJSON says that data of that type is a JSON value.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}
