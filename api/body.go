package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
)

// Bounds of a body.
const (
	maxBody  = 256 << 10 // as the engine
	maxDepth = 64
)

// body reads a JSON body and checks it against a schema; nil takes none. The text is given back as it was sent.
func (q *request) body(schema *huma.Schema) ([]byte, *Problem) {
	raw, p := q.read()
	if p != nil {
		return nil, p
	}
	if len(raw) > 0 {
		if p := jsonType(q.r.Header.Get("Content-Type")); p != nil {
			return nil, p
		}
	}
	return raw, q.checkBody(schema, raw)
}

func (q *request) read() ([]byte, *Problem) {
	if q.r.ContentLength == 0 && len(q.r.TransferEncoding) == 0 {
		return nil, nil
	}
	if q.r.ContentLength >= maxBody {
		return nil, problem(codeTooLarge, "the body has 256 KiB or more")
	}
	var b bytes.Buffer
	if n := q.r.ContentLength; n > 0 {
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(q.r.Body, maxBody)); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			q.metrics.timeouts.WithLabelValues("body").Inc()
		}
		return nil, problem(codeMalformed, "the body could not be read to its end in time")
	}
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{}) // what comes of the request may take longer
	if b.Len() >= maxBody {
		return nil, problem(codeTooLarge, "the body has 256 KiB or more")
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// jsonType refuses another media type. None is taken for JSON.
func jsonType(contentType string) *Problem {
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil || t != "application/json" && !strings.HasSuffix(t, "+json") || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return problem(codeMediaType, "the body must be application/json in UTF-8")
	}
	return nil
}

// checkBody checks a body against a schema. An empty one counts as {}.
func (s *Server) checkBody(schema *huma.Schema, raw []byte) *Problem {
	if schema == nil {
		if len(raw) > 0 && !bytes.Equal(raw, []byte("{}")) && !bytes.Equal(raw, []byte("null")) {
			if !json.Valid(raw) {
				return problem(codeMalformed, "the body is not JSON")
			}
			return invalid("body", "this takes no body")
		}
		return nil
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if s.shape(schema).takes(raw) {
		return nil
	}
	if depth(raw) > maxDepth {
		return problem(codeMalformed, "the body is nested too deeply")
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) {
			return invalid("body", "has a number that is too large")
		}
		return problem(codeMalformed, "the body is not JSON")
	}
	details := s.validate(schema, "body", value)
	if len(details) == 0 {
		return nil
	}
	p := problem(machines.CodeValidation, details[0].Location+": "+details[0].Message)
	p.Errors = details
	return p
}

// depth is how deep a text is nested, whether it is JSON or not, without decoding it.
func depth(raw []byte) int {
	most, now, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if now++; now > most {
				most = now
			}
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}
