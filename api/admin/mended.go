package admin

// What is done about dead letters that would fail again as they are: one is put back with another body, or some are dropped.

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Edited is another body for a command that is redriven.
type Edited struct {
	Body json.RawMessage `json:"body,omitempty" doc:"Instead of the body of the letter, which must be of a command; absent leaves that"`
}

// Drop says which letters are given up, and why.
type Drop struct {
	Seqs   []uint64 `json:"seqs" minItems:"1" maxItems:"500" doc:"Sequences of the dead letters"`
	Reason string   `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it is logged with what was dropped"`
}

// Dropped says what became of each letter.
type Dropped struct {
	Dropped []uint64         `json:"dropped" nullable:"false" doc:"Sequences of letters that are gone"`
	Failed  []RedriveFailure `json:"failed" nullable:"false" doc:"Letters that are not: still stored, or not found"`
}

func (s *Service) redriveRoute(r *rest.Router, tags []string, seq *huma.Param, redriven map[string]*huma.Response) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[Edited](), true, "")
	return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.redriveOne(q, schema) }, Op: huma.Operation{
		OperationID: "redrive-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{seq}/redrive", Tags: tags, Summary: "Redrive one dead letter, as it is or with another body", Errors: []int{404, 409, 413, 415, 422, 503},
		Parameters: []*huma.Param{seq}, RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}, Responses: redriven,
	}}
}

func (s *Service) dropRoute(r *rest.Router, tags []string) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[Drop](), true, "")
	r.Registry().SchemaFromRef(schema.Ref).Properties["seqs"].Items = rest.Number(1)
	return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.drop(q, schema) }, Op: huma.Operation{
		OperationID: "drop-dead-letters", Method: http.MethodPost, Path: "/v1/dead-letters/drop", Tags: tags, Summary: "Drop dead letters", Description: "Their messages are gone, and nobody handles them. Who, why and what is logged.", Errors: []int{400, 413, 415, 422, 503},
		Extensions:  map[string]any{"x-destructive": true},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}, Responses: map[string]*huma.Response{"200": {Description: "Dropped and failed dead letters", Content: r.BodyOf(reflect.TypeFor[Dropped]())}},
	}}
}

func (s *Service) redriveOne(q *rest.Request, schema *huma.Schema) error {
	var as Edited
	raw, err := q.Read() // the body may be absent, which no schema says
	if err != nil {
		return err
	}
	if len(raw) > 0 {
		if p := rest.CheckType(q.R.Header.Get("Content-Type")); p != nil {
			return p
		}
		if p := q.Router().CheckBody(schema, raw); p != nil {
			return p
		}
		if err := json.Unmarshal(raw, &as); err != nil {
			return problem.Invalid("body", "is no object with a body in it")
		}
	}
	l, failed := s.oneLetter(q)
	if failed != nil {
		return failed
	}
	if as.Body == nil {
		out := s.redrive(q, []DeadLetter{l})
		if len(out.Failed) > 0 {
			return problem.Unavailable("the letter could not be put back: " + out.Failed[0].Detail)
		}
		return q.JSON(http.StatusOK, out)
	}
	switch err := s.o.DeadLetters.Redrive(q.Context(), l.Seq, as.Body); {
	case errors.Is(err, ErrNoLetter):
		return problem.New(machines.CodeNotFound, "there is no such dead letter")
	case errors.Is(err, streams.ErrSubject):
		return problem.Invalid("body.body", "only a command that is whole can be edited, and this letter holds none")
	case errors.Is(err, publish.ErrPutBack):
		return problem.New(machines.CodeUnknown, "the letter was put back before, as it was then; look at the entity, and drop the letter")
	case err != nil:
		return err
	}
	s.rest.Log.Info("a dead letter was redriven with another body", "request", q.Id, "actor", q.Who.Name, "sequence", l.Seq, "machine", l.Machine, "key", l.Key)
	return q.JSON(http.StatusOK, Redriven{Redriven: []uint64{l.Seq}, Failed: []RedriveFailure{}})
}

func (s *Service) drop(q *rest.Request, schema *huma.Schema) error {
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var want Drop
	if err := json.Unmarshal(raw, &want); err != nil {
		return problem.Invalid("body", "has a number that is too large")
	}
	out := Dropped{Dropped: []uint64{}, Failed: []RedriveFailure{}}
	for _, seq := range want.Seqs {
		l, err := s.read(q, seq)
		if err == nil && !q.Who.Sees(l.Key) {
			err = ErrNoLetter
		}
		if err == nil {
			err = s.o.DeadLetters.Drop(q.Context(), seq)
		}
		switch {
		case err == nil:
			out.Dropped = append(out.Dropped, seq)
			s.rest.Log.Info("a dead letter was dropped", "request", q.Id, "actor", q.Who.Name, "reason", want.Reason, "sequence", seq, "machine", l.Machine, "key", l.Key, "subject", l.Subject)
		case errors.Is(err, ErrNoLetter):
			out.Failed = append(out.Failed, RedriveFailure{seq, "there is no such dead letter"})
		default:
			s.rest.Log.Warn("a dead letter could not be dropped", "request", q.Id, "sequence", seq, "error", err)
			out.Failed = append(out.Failed, RedriveFailure{seq, "storage does not answer"})
		}
	}
	return q.JSON(http.StatusOK, out)
}
