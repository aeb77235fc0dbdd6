package api

// POST …/{id}/{command}, for every command of every machine: commandRoute makes the route, command serves it. The request becomes a publish.Command
// (readCommand), which commands.Sender gives to the engine. The engine's answer becomes a CommandResult (200) or a problem; without one in time, or
// while the entity has not settled, the client gets a CommandStored (202). With ?dryRun rehearse.go answers, and nothing is stored.

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/operations"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/jsonwrite"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// CommandResult is the answer to a command that was applied, or that had nothing to do.
type CommandResult struct {
	Outcome    string `json:"outcome" enum:"applied,unchanged,ignored" doc:"applied: a transition happened; unchanged: there was nothing to do"`
	State      string `json:"state" doc:"The state of the entity; with ?settle, the one that it came to"`
	Version    uint64 `json:"version" doc:"Rises with every transition, by one as a rule"`
	Revision   uint64 `json:"revision" doc:"Revision of the stored value, and the ETag. Use it for minRevision and If-Match"`
	Generation uint64 `json:"generation" doc:"Rises with every accepted specification"`
	CommandID  string `json:"commandId" doc:"The Idempotency-Key, or a generated id"`

	DryRun *Rehearsal `json:"dryRun,omitempty" doc:"With ?dryRun: nothing was stored, revision is the one of now, and the rest is what would become of it"`
}

// CommandStored is the answer to a command that is stored and not decided yet.
type CommandStored struct {
	Outcome   string `json:"outcome" enum:"stored,applied,unchanged" doc:"stored: the engine has not answered yet; else its answer, while the entity has not settled yet"`
	CommandID string `json:"commandId" doc:"The Idempotency-Key, or a generated id"`
	Operation string `json:"operation,omitempty" doc:"Name of the operation, see /v1/operations/. Absent for a command without a key that is answered directly; its events carry the commandId"`
	Sequence  uint64 `json:"sequence,omitempty" doc:"Sequence of the command in its stream"`
	State     string `json:"state,omitempty" doc:"The state of the entity as far as it is known"`
	Revision  uint64 `json:"revision,omitempty"`
}

// commandRoute is the operation of one command.
func (s *Server) commandRoute(r *rest.Router, m *machines.Machine, c machines.Command, base string) *rest.Route {
	rt := &rest.Route{Role: auth.Operate, Machine: m.Name, Command: c.Name, Op: huma.Operation{
		OperationID: m.Name + "-" + c.Name, Method: http.MethodPost, Path: base + "/{id}/" + c.Name, Tags: []string{m.Name},
		Summary: c.Name, Description: c.Doc, Errors: []int{400, 404, 409, 412, 413, 415, 422, 428, 429, 503},
		Extensions: map[string]any{"x-destructive": c.Destructive, "x-birth": c.Birth, "x-replaces": c.Replaces},
		Parameters: []*huma.Param{
			rest.NamespaceParam(),
			rest.QueryParam("dryRun", "Say what the command would do now, and store nothing", rest.Boolean()),
			rest.QueryParam("settle", "Wait until the entity has left its transitional state, up to this long and at most 5m: 200 with the state that it came to, or 202", rest.Text(32)),
			rest.HeaderParam("Idempotency-Key", "Makes the command repeatable: it is applied at most once under a key of this entity", "7f1c2a"),
			rest.HeaderParam("If-Match", "Refuse the command unless the entity is at this ETag; * is any that exists", `"42"`),
			rest.HeaderParam("Prefer", "respond-async: answer 202 as soon as the command is stored. wait=N: wait up to N seconds, at most 30, as with ?settle. With both, 202 comes after N seconds only", "wait=10"),
			rest.HeaderParam("Instar-Reason", "Why; shown in the timeline", "planned upgrade"),
			rest.HeaderParam("Instar-Wait", "How long the sender waits for what comes of it, where it does so by other means than this request; events tell of it, and nothing depends on it", "30s"),
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "The command was applied, or changed nothing", Content: r.BodyOf(reflect.TypeFor[CommandResult]()), Headers: map[string]*huma.Param{"ETag": {Schema: rest.Text(32)}, "Preference-Applied": {Schema: rest.Text(64)}, rest.HeaderReplayed: rest.ReplayedHeader()}},
			"202": {Description: "The command is stored; Location is its operation, if it has a key or was sent with Prefer or ?settle", Content: r.BodyOf(reflect.TypeFor[CommandStored]()), Headers: map[string]*huma.Param{"Location": {Schema: rest.Text(512)}, "Preference-Applied": {Schema: rest.Text(64)}, rest.HeaderReplayed: rest.ReplayedHeader()}},
		},
	}}
	if c.Admin {
		rt.Role = auth.Admin
	}
	var schema *huma.Schema
	if c.Body != nil {
		schema = r.Registry().Schema(reflect.TypeOf(c.Body), true, "")
		full := schema
		if full.Ref != "" {
			full = r.Registry().SchemaFromRef(full.Ref)
		}
		rt.Op.RequestBody = &huma.RequestBody{Required: len(full.Required) > 0, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	rt.Serve = func(q *rest.Request) error { return s.command(q, m, c.Name, schema) }
	return rt
}

// command takes one command from its request to its answer.
func (s *Server) command(q *rest.Request, m *machines.Machine, name string, schema *huma.Schema) error {
	start := time.Now()
	cmd, wait, err := s.readCommand(q, m, name, schema)
	if err != nil {
		return err
	}
	if q.Flag("dryRun") && name == machines.CommandRepair {
		return problem.Invalid("query.dryRun", "a repair cannot be rehearsed")
	}
	if q.Flag("dryRun") {
		s.sender.Withdraw(cmd)
		return s.rehearse(q, m, cmd)
	}
	if wait.Settle > 0 {
		leave, err := q.TakeWait()
		if err != nil {
			return err // before it is stored
		}
		defer leave()
	}
	sent, err := s.sender.Send(q, cmd, wait.Not())
	if err != nil {
		return commands.Problem(err)
	}
	if wait.Not() {
		if seq, ok := sent.Stored(); ok { // else the answer says, as whether it is the same command as an earlier one
			wait.Applied(q.W, true)
			s.sender.Observe(m.Name, name, "stored", start)
			return s.stored(q, m, cmd, CommandStored{Outcome: "stored", CommandID: cmd.ID, Sequence: seq})
		}
	}
	answer, err := sent.Answer(q, wait.Preferred())
	var accepted *publish.AcceptedError
	if errors.As(err, &accepted) {
		s.sender.Observe(m.Name, name, "unanswered", start)
		if accepted.Seen {
			return commands.InProgress(cmd.ID)
		}
		wait.Applied(q.W, true)
		return s.stored(q, m, cmd, CommandStored{Outcome: "stored", CommandID: cmd.ID, Sequence: accepted.Seq})
	}
	if err != nil {
		return commands.Problem(err)
	}
	s.sender.Observe(m.Name, name, answer.Outcome, start)
	return s.answer(q, m, cmd, answer, wait)
}

// readCommand reads everything that makes up a command, and refuses what cannot be right.
func (s *Server) readCommand(q *rest.Request, m *machines.Machine, name string, schema *huma.Schema) (cmd publish.Command, wait rest.WaitOptions, err error) {
	_, key, err := q.Key(m)
	if err != nil {
		return cmd, wait, err
	}
	cmd = publish.Command{Machine: m.Name, Key: key, Name: name, Actor: q.Who.Name, Trace: rest.Traceparent(q.Context())}
	var p *problem.Problem
	if cmd.ID, p = rest.IdempotencyKey(q.R); p != nil {
		return cmd, wait, p
	}
	if cmd.Reason, p = rest.Reason(q.R); p != nil {
		return cmd, wait, p
	}
	if wait, p = q.Waiting(); p != nil {
		return cmd, wait, p
	}
	if cmd.Wait, p = rest.Waits(q.R, wait.Settle); p != nil {
		return cmd, wait, p
	}
	if cmd.Body, p = q.Body(schema); p != nil {
		return cmd, wait, p
	}
	if p := s.sender.Admit(cmd); p != nil {
		return cmd, wait, p
	}
	if cmd.ID == "" && (wait.Not() || wait.Settle > 0) {
		cmd.ID = rand.Text() // it may be answered with an operation, which is known as long as a key is
	}
	if cmd.ID == "" {
		cmd.ID = streams.MadeUpID(rand.Text())
	}
	if cmd.Expect, p = s.expect(q, m, name); p != nil {
		return cmd, wait, p
	}
	return cmd, wait, nil
}

// expect turns If-Match into what the engine checks, after it has looked at the key of the command.
func (s *Server) expect(q *rest.Request, m *machines.Machine, command string) (string, *problem.Problem) {
	lines := q.R.Header["If-Match"]
	if len(lines) == 0 {
		if c, _ := m.Input(command); !c.Birth && command != machines.CommandRepair && slices.Contains(s.requireIfMatch, m.Name) {
			return "", problem.New(problem.CodePreconditionRequired, "send If-Match with the ETag of the "+m.Name+" that you have seen")
		}
		return "", nil
	}
	list, all, ok := rest.EntityTags(lines)
	if !ok {
		return "", problem.Invalid("header.If-Match", "must be * or entity tags in quotes")
	}
	var strong []string
	for _, t := range list {
		if n, err := strconv.ParseUint(t.Value, 10, 64); err == nil && n > 0 && !t.Weak && strconv.FormatUint(n, 10) == t.Value {
			strong = append(strong, t.Value)
		}
	}
	switch {
	case all:
		return "*", nil
	case len(strong) == 0:
		return "", problem.New(machines.CodePrecondition, "If-Match names no ETag that an entity can have")
	}
	return strings.Join(strong, ","), nil
}

// stored answers 202.
func (s *Server) stored(q *rest.Request, m *machines.Machine, cmd publish.Command, body CommandStored) error {
	if !streams.MadeUp(cmd.ID) { // else no answer is kept that could be looked up
		body.Operation = operations.Name(m.Name, cmd.Key, cmd.ID)
		q.W.Header().Set("Location", "/v1/operations/"+body.Operation)
	}
	return q.JSON(http.StatusAccepted, body)
}

// answer answers with what the engine has decided.
func (s *Server) answer(q *rest.Request, m *machines.Machine, cmd publish.Command, a *machines.Answer, wait rest.WaitOptions) error {
	if p := commands.Denied(m, a); p != nil {
		return p
	}
	result := CommandResult{Outcome: a.Outcome, State: a.State, Version: a.Version, Revision: a.Revision, Generation: a.Generation, CommandID: cmd.ID}
	if st, _ := m.State(a.State); wait.Settle > 0 && st.Transitional {
		item, err := s.settled(q, m, cmd.Key, a.Revision, wait.Began.Add(wait.Settle))
		if err != nil {
			wait.Applied(q.W, true)
			return s.stored(q, m, cmd, CommandStored{Outcome: a.Outcome, CommandID: cmd.ID, State: a.State, Revision: a.Revision})
		}
		result.State, result.Version, result.Revision, result.Generation = item.State, item.Version, item.Revision, item.Generation
	}
	wait.Applied(q.W, false)
	if result.Revision != 0 {
		q.W.Header()["Etag"] = []string{rest.ETag(result.Revision)}
	}
	return q.Appended(http.StatusOK, result.appendJSON(make([]byte, 0, 256)))
}

// appendJSON appends what encoding/json would write of a result that is no rehearsal.
func (r *CommandResult) appendJSON(b []byte) []byte {
	b = jsonwrite.Text(append(b, `{"outcome":`...), r.Outcome)
	b = jsonwrite.Text(append(b, `,"state":`...), r.State)
	b = strconv.AppendUint(append(b, `,"version":`...), r.Version, 10)
	b = strconv.AppendUint(append(b, `,"revision":`...), r.Revision, 10)
	b = strconv.AppendUint(append(b, `,"generation":`...), r.Generation, 10)
	b = jsonwrite.Text(append(b, `,"commandId":`...), r.CommandID)
	return append(b, '}')
}

// settled waits until the entity is in a state that is not transitional, at the revision of the command or later.
func (s *Server) settled(q *rest.Request, m *machines.Machine, key string, revision uint64, until time.Time) (index.Item, error) {
	ctx, cancel := context.WithDeadline(q.Context(), until)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	return s.store.Index(m.Name).WaitFor(ctx, key, func(it index.Item) bool {
		st, known := m.State(it.State)
		return it.Revision >= revision && it.Problem == "" && known && !st.Transitional
	})
}
