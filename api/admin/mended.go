package admin

// What is done about dead letters that would fail again as they are: one is put back with another body, or some are dropped.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// Edited is another body for a command that is redriven.
type Edited struct {
	Body json.RawMessage `json:"body,omitempty" doc:"Instead of the body of the letter, which must be of a command; absent or null leaves that"`
}

// Drop says which letters are given up, and why.
type Drop struct {
	Seqs   []uint64 `json:"seqs" minItems:"1" maxItems:"500" doc:"Sequences of the dead letters"`
	Reason string   `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it is recorded with what was dropped"`
}

// Dropped says what became of each letter.
type Dropped struct {
	Dropped []uint64         `json:"dropped" nullable:"false" doc:"Sequences of letters that are gone"`
	Failed  []RedriveFailure `json:"failed" nullable:"false" doc:"Letters that are not: still stored, or not found"`
}

func (s *Service) redriveRoute(r *rest.Router, tags []string, seq *huma.Param, redriven map[string]*huma.Response) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[Edited](), true, "")
	return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.redriveOne(q, schema) }, Op: huma.Operation{
		OperationID: "redrive-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{seq}/redrive", Tags: tags, Summary: "Redrive one dead letter, as it is or with another body", Errors: []int{404, 409, 413, 415, 422, 429, 503},
		Description: "As it is, it is put back, and gone from here. With another body the command is sent as one of who edits it, and the letter is gone when that was applied or had nothing to do; refused, the answer is that of the command, and the letter stays. The same edit sent again is the same command.",
		Parameters:  []*huma.Param{seq, rest.HeaderParam("Instar-Reason", "Why; it is recorded with the letter, and with a body also shown in the timeline, beside which letter and whose it was", "typo in the size")},
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}, Responses: redriven,
	}}
}

func (s *Service) dropRoute(r *rest.Router, tags []string) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[Drop](), true, "")
	r.Registry().SchemaFromRef(schema.Ref).Properties["seqs"].Items = rest.Number(1)
	return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.drop(q, schema) }, Op: huma.Operation{
		OperationID: "drop-dead-letters", Method: http.MethodPost, Path: "/v1/dead-letters/drop", Tags: tags, Summary: "Drop dead letters", Description: "Their messages are gone, and nobody handles them. Who, why and which is recorded before (see /v1/dead-letters/settled).", Errors: []int{400, 413, 415, 422, 503},
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
	why, p := rest.Reason(q.R)
	if p != nil {
		return p
	}
	if as.Body == nil || bytes.Equal(as.Body, []byte("null")) {
		out := s.redrive(q, []DeadLetter{l}, why)
		if len(out.Failed) > 0 {
			return problem.Unavailable("the letter could not be put back: " + out.Failed[0].Detail)
		}
		return q.JSON(http.StatusOK, out)
	}
	return s.edit(q, l, as.Body, why)
}

// edit sends the command of a letter with another body. The letter is removed only when the engine has applied it, or had nothing to do: what it refuses has no letter of its own.
func (s *Service) edit(q *rest.Request, l DeadLetter, body []byte, why string) error {
	m, cmd, err := s.edited(q, l, body, why)
	if err != nil {
		return err
	}
	told := []any{"request", q.Id, "actor", cmd.Actor, "reason", cmd.Reason, "sequence", l.Seq, "machine", l.Machine, "key", l.Key, "command", cmd.Name, "id", cmd.ID}
	s.rest.Log.Info("a dead letter is redriven with another body", told...)
	sent, err := s.sender.Send(q, cmd, false)
	if err != nil {
		return commands.Problem(err)
	}
	answer, err := sent.Answer(q, 0)
	var accepted *publish.AcceptedError
	switch {
	case errors.As(err, &accepted):
		return commands.InProgress(cmd.ID)
	case err != nil:
		return commands.Problem(err)
	}
	if p := commands.Denied(m, answer); p != nil {
		s.rest.Log.Info("a dead letter stays, as its edit was refused", append(told, "code", p.Code)...)
		return p
	}
	if err := s.settle(q, l, edited, why); err != nil {
		s.unrecorded(q, l, edited, why, err)
	}
	if err := s.dropOne(q, l); err != nil && !errors.Is(err, ErrNoLetter) {
		return fmt.Errorf("the edit of dead letter %d is applied, but the letter is not removed; the same edit sent again does that: %w", l.Seq, err)
	}
	return q.JSON(http.StatusOK, Redriven{Redriven: []uint64{l.Seq}, Failed: []RedriveFailure{}})
}

// edited is the command of a letter with another body, checked as one that is sent to its route: as a command of who edits, expecting no revision, under an id of its own.
func (s *Service) edited(q *rest.Request, l DeadLetter, body []byte, why string) (*machines.Machine, publish.Command, error) {
	var cmd publish.Command
	addr, err := s.store.Names.ParseStored(l.Subject)
	if err != nil || l.Partial || addr.Machine != l.Machine || addr.Key != l.Key {
		return nil, cmd, problem.Invalid("body.body", "only a command that is whole can be edited, and this letter holds none")
	}
	m := s.store.Machines.Get(addr.Machine)
	if m == nil {
		return nil, cmd, problem.Invalid("body.body", fmt.Sprintf("there is no machine %q here that could take a command", addr.Machine))
	}
	all := m.Commands()
	i := slices.IndexFunc(all, func(c machines.Command) bool { return c.Name == addr.Last })
	if i < 0 {
		return nil, cmd, problem.Invalid("body.body", fmt.Sprintf("%s is no command that users send: what the engine, its workers or its clock have reported is not edited", addr.Last))
	}
	var schema *huma.Schema
	if all[i].Body != nil {
		schema = q.Router().Registry().Schema(reflect.TypeOf(all[i].Body), true, "") // its route has registered it
	}
	if p := q.Router().CheckBody(schema, body); p != nil {
		return nil, cmd, p
	}
	cmd = publish.Command{Machine: m.Name, Key: addr.Key, Name: addr.Last, Actor: q.Who.Name, Trace: rest.Traceparent(q.Context()), Body: body}
	cmd.Reason = fmt.Sprintf("edit of dead letter %d of %s", l.Seq, cmp.Or(l.Actor, "somebody unknown"))
	if why != "" {
		cmd.Reason += ": " + why
	}
	if p := s.sender.Admit(cmd); p != nil {
		return nil, cmd, p
	}
	cmd.ID, err = s.editID(q, m, l, body)
	return m, cmd, err
}

// editID is the id of an edit: the same for the same body, until that was refused, as the entity may take it another time. A letter that was put back as it is, and left by a crash, is not edited: both would be applied.
func (s *Service) editID(q *rest.Request, m *machines.Machine, l DeadLetter, body []byte) (id string, err error) {
	ctx, cancel := context.WithTimeout(q.Context(), rest.StoredWithin)
	defer cancel()
	err = q.InTurn(func() error {
		before, _, err := s.sender.Kept(ctx, m, l.Key, l.RedriveID)
		if err == nil && before != nil && done(before) {
			return problem.New(machines.CodeUnknown, "the letter was put back before, as it was then, and carried out; look at the entity, and drop the letter")
		}
		for n := 1; err == nil; n++ {
			id = fmt.Sprintf("edit-%d-%d-%x-%d", l.Seq, l.Time.UnixNano(), sha256.Sum256(body), n)
			if before, _, err = s.sender.Kept(ctx, m, l.Key, id); err == nil && (before == nil || done(before)) {
				return nil
			}
		}
		return err
	})
	return id, err
}

// done reports whether a command was carried out, or had nothing to do.
func done(a *machines.Answer) bool { return a.Refusal == nil && a.Outcome != machines.Dead }

// lasting is the context of a write that is not left in the middle because the client hangs up.
func lasting(q *rest.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(q.Context()), writtenWithin)
}

const writtenWithin = 10 * time.Second

func (s *Service) drop(q *rest.Request, schema *huma.Schema) error {
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var want Drop
	if err := json.Unmarshal(raw, &want); err != nil {
		return problem.Invalid("body", "has a number that is too large")
	}
	reason := strings.TrimSpace(want.Reason)
	if reason == "" || !problem.Printable(reason) {
		return problem.Invalid("body.reason", "must be text without control characters")
	}
	out := Dropped{Dropped: []uint64{}, Failed: []RedriveFailure{}}
	for _, seq := range want.Seqs {
		l, err := s.read(q, seq)
		if err == nil {
			s.rest.Log.Info("a dead letter is dropped", "request", q.Id, "actor", q.Who.Name, "reason", reason, "sequence", seq, "time", l.Time, "machine", l.Machine, "key", l.Key, "subject", l.Subject)
			if err = s.settle(q, l, dropped, reason); err == nil { // first: what is gone for good is known by this alone
				err = s.dropOne(q, l)
			}
		}
		switch {
		case err == nil:
			out.Dropped = append(out.Dropped, seq)
		case errors.Is(err, ErrNoLetter):
			out.Failed = append(out.Failed, RedriveFailure{seq, "there is no such dead letter"})
		default:
			s.rest.Log.Warn("a dead letter could not be dropped", "request", q.Id, "sequence", seq, "error", err)
			out.Failed = append(out.Failed, RedriveFailure{seq, "storage does not answer"})
		}
	}
	return q.JSON(http.StatusOK, out)
}

func (s *Service) dropOne(q *rest.Request, l DeadLetter) error {
	ctx, cancel := lasting(q)
	defer cancel()
	return s.o.DeadLetters.Drop(ctx, l.Seq, l.Time)
}
