package rest

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

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/schema"
	"github.com/bcc94042/instar/machines"
)

// maxBody is how long a body may be.
const maxBody = 256 << 10 // as the engine

// Body reads a JSON body and checks it against a schema; nil takes none. The text is given back as it was sent.
func (q *Request) Body(schema *huma.Schema) ([]byte, *problem.Problem) {
	raw, p := q.Read()
	if p != nil {
		return nil, p
	}
	if len(raw) > 0 {
		if p := CheckType(q.R.Header.Get("Content-Type")); p != nil {
			return nil, p
		}
	}
	return raw, q.Router().CheckBody(schema, raw)
}

// Read reads a body of less than 256 KiB as it was sent, within the time of [Timeouts].
func (q *Request) Read() ([]byte, *problem.Problem) {
	if q.R.ContentLength == 0 && len(q.R.TransferEncoding) == 0 {
		return nil, nil
	}
	if q.R.ContentLength >= maxBody {
		return nil, problem.New(problem.CodeTooLarge, "the body has 256 KiB or more")
	}
	raw, err := readBody(q.R)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			q.server.metrics.timeouts.WithLabelValues("body").Inc()
		}
		return nil, problem.New(problem.CodeMalformed, "the body could not be read to its end in time")
	}
	_ = http.NewResponseController(q.W).SetReadDeadline(time.Time{}) // what comes of the request may take longer
	if len(raw) >= maxBody {
		return nil, problem.New(problem.CodeTooLarge, "the body has 256 KiB or more")
	}
	return bytes.TrimSpace(raw), nil
}

// readBody reads a body, or as much of it as is too much.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, maxBody))
	}
	raw := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, raw)
	return raw, err
}

// CheckType refuses another media type. None is taken for JSON.
func CheckType(contentType string) *problem.Problem {
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil || t != "application/json" && !strings.HasSuffix(t, "+json") || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return problem.New(problem.CodeMediaType, "the body must be application/json in UTF-8")
	}
	return nil
}

// CheckBody checks a body against a schema. An empty one counts as {}; no schema allows nothing else.
func (r *Router) CheckBody(of *huma.Schema, raw []byte) *problem.Problem {
	if of == nil {
		switch {
		case len(raw) == 0, bytes.Equal(raw, []byte("{}")), bytes.Equal(raw, []byte("null")):
			return nil
		case !json.Valid(raw):
			return problem.New(problem.CodeMalformed, "the body is not JSON")
		}
		return problem.Invalid("body", "this takes no body")
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	details, err := r.Schemas.Check(of, "body", raw)
	switch {
	case errors.Is(err, schema.ErrNumber):
		return problem.Invalid("body", err.Error())
	case err != nil:
		return problem.New(problem.CodeMalformed, "the body "+err.Error())
	case len(details) == 0:
		return nil
	}
	p := problem.New(machines.CodeValidation, details[0].Location+": "+details[0].Message)
	p.Errors = details
	return p
}
