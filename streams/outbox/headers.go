package outbox

import "encoding/json"

// ReadHeaders are the headers of a row. It takes any object of JSON, as outbox_append does: what is not a string is passed on
// as it is written. An empty object, and what is no object, is nil.
func ReadHeaders(data []byte) map[string]string {
	if len(data) <= len("{}") {
		return nil
	}
	var headers map[string]string
	if json.Unmarshal(data, &headers) == nil {
		return headers
	}
	var mixed map[string]json.RawMessage
	if json.Unmarshal(data, &mixed) != nil {
		return nil // the table takes objects only
	}
	headers = make(map[string]string, len(mixed))
	for name, raw := range mixed {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		headers[name] = s
	}
	return headers
}
