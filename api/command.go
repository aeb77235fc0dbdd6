package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// CommandResult is the answer to a command that was applied, or that had nothing to do.
type CommandResult struct {
	Outcome    string `json:"outcome" enum:"applied,unchanged,ignored" doc:"applied: a transition happened; unchanged: there was nothing to do"`
	State      string `json:"state" doc:"The state of the entity; with ?settle, the one that it came to"`
	Version    uint64 `json:"version" doc:"Rises by one with every transition"`
	Revision   uint64 `json:"revision" doc:"Of the value in the bucket; also the ETag. Use it for minRevision and If-Match"`
	Generation uint64 `json:"generation" doc:"Rises with every accepted specification"`
	CommandID  string `json:"commandId" doc:"The Idempotency-Key, or the id that was made up"`

	DryRun *Rehearsal `json:"dryRun,omitempty" doc:"With ?dryRun: nothing was stored, revision is the one of now, and the rest is what would become of it"`
}

// CommandStored is the answer to a command that is stored and not decided yet.
type CommandStored struct {
	Outcome   string `json:"outcome" enum:"stored,applied,unchanged" doc:"stored: the engine has not answered yet; else its answer, while the entity has not settled yet"`
	CommandID string `json:"commandId" doc:"The Idempotency-Key, or the id that was made up"`
	Operation string `json:"operation,omitempty" doc:"Where to ask what has become of it: under /v1/operations/. None for a command without a key that was to be answered at once: its events carry the commandId"`
	Sequence  uint64 `json:"sequence,omitempty" doc:"Of the command in its stream"`
	State     string `json:"state,omitempty" doc:"The state of the entity as far as it is known"`
	Revision  uint64 `json:"revision,omitempty"`
}

// commandRoute is the operation of one command.
func (s *Server) commandRoute(m *machines.Machine, c machines.Command, base string) *route {
	rt := &route{role: Operate, op: huma.Operation{
		OperationID: m.Name + "-" + c.Name, Method: http.MethodPost, Path: base + "/{id}/" + c.Name, Tags: []string{m.Name},
		Summary: c.Name, Description: c.Doc, Errors: []int{400, 404, 409, 412, 413, 415, 422, 428, 429, 503},
		Extensions: map[string]any{"x-destructive": c.Destructive, "x-birth": c.Birth},
		Parameters: []*huma.Param{
			namespaceParam(),
			query("dryRun", "Say what the command would do now, and store nothing", boolean()),
			query("settle", "Wait until the entity has left its transitional state, up to this long and at most 5m: 200 with the state that it came to, or 202", text(32)),
			header("Idempotency-Key", "Makes the command repeatable: it is applied at most once under a key of this entity", "7f1c2a"),
			header("If-Match", "Refuse the command unless the entity is at this ETag; * is any that exists", `"42"`),
			header("Prefer", "respond-async: answer 202 as soon as the command is stored. wait=N: wait up to N seconds, at most 30, as with ?settle. With both, 202 comes after N seconds only", "wait=10"),
			header("Instar-Reason", "Why; shown in the timeline", "planned upgrade"),
			header("Instar-Wait", "How long the sender waits for what comes of it, where it does so by other means than this request; events tell of it, and nothing depends on it", "30s"),
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "The engine has answered", Content: s.bodyOf(reflect.TypeFor[CommandResult]()), Headers: map[string]*huma.Param{"ETag": {Schema: text(32)}, "Preference-Applied": {Schema: text(64)}, headerReplayed: replayedHeader()}},
			"202": {Description: "The command is stored; Location is the operation, if the command has a key or was sent with Prefer or ?settle", Content: s.bodyOf(reflect.TypeFor[CommandStored]()), Headers: map[string]*huma.Param{"Location": {Schema: text(512)}, "Preference-Applied": {Schema: text(64)}, headerReplayed: replayedHeader()}},
		},
	}}
	if c.Admin {
		rt.role = Admin
	}
	var schema *huma.Schema
	if c.Body != nil {
		schema = s.registry().Schema(reflect.TypeOf(c.Body), true, "")
		full := schema
		if full.Ref != "" {
			full = s.registry().SchemaFromRef(full.Ref)
		}
		rt.op.RequestBody = &huma.RequestBody{Required: len(full.Required) > 0, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	rt.serve = func(q *request) error { return q.command(m, c.Name, schema) }
	return rt
}

// command takes one command from the door to its answer.
func (q *request) command(m *machines.Machine, name string, schema *huma.Schema) error {
	start := time.Now()
	cmd, wait, err := q.readCommand(m, name, schema)
	if err != nil {
		return err
	}
	if q.flag("dryRun") && name == machines.CommandRepair {
		return invalid("query.dryRun", "a repair cannot be rehearsed")
	}
	if q.flag("dryRun") {
		return q.rehearse(m, cmd)
	}
	asked := q.inTurn(cmd)
	if wait.not() && !q.answeredBefore(cmd) {
		var r streams.Result
		if r, asked, err = q.sendInTurn(q.ctx(), q.client(), cmd); err != nil {
			return storing(err)
		}
		if !r.Duplicate { // else the answer says whether it is the same command as then
			wait.applied(q.w, true)
			q.metrics.commands.WithLabelValues(m.Name, name, "stored").Observe(time.Since(start).Seconds())
			return q.stored(m, cmd, CommandStored{Outcome: "stored", CommandID: cmd.ID, Sequence: r.Seq})
		}
	}
	if wait.settle > 0 {
		leave, err := q.mayWait()
		if err != nil {
			return err // before it is stored
		}
		defer leave()
	}
	answer, err := q.answerOf(asked, wait.preferred())
	var accepted *streams.AcceptedError
	if errors.As(err, &accepted) {
		q.metrics.commands.WithLabelValues(m.Name, name, "unanswered").Observe(time.Since(start).Seconds())
		if accepted.Seen {
			return inProgress(cmd.ID)
		}
		wait.applied(q.w, true)
		return q.stored(m, cmd, CommandStored{Outcome: "stored", CommandID: cmd.ID, Sequence: accepted.Seq})
	}
	if err != nil {
		return storing(err)
	}
	q.metrics.commands.WithLabelValues(m.Name, name, answer.Outcome).Observe(time.Since(start).Seconds())
	return q.answer(m, cmd, answer, wait)
}

// answeredBefore reports that there is an answer to a command under this key of its sender: then the engine says which,
// also to a sender who does not wait. The stream knows keys for two minutes only.
func (q *request) answeredBefore(cmd streams.Command) bool {
	if len(q.r.Header["Idempotency-Key"]) == 0 {
		return false
	}
	_, err := q.answers.Get(q.ctx(), streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID))
	return err == nil // else it is stored, and the engine finds out
}

// readCommand reads everything that makes up a command, and refuses what cannot be right.
func (q *request) readCommand(m *machines.Machine, name string, schema *huma.Schema) (cmd streams.Command, wait waitOptions, err error) {
	_, key, err := q.key(m)
	if err != nil {
		return cmd, wait, err
	}
	cmd = streams.Command{Machine: m.Name, Key: key, Name: name, Actor: q.who.name, Trace: traceparent(q.ctx())}
	var p *Problem
	if cmd.ID, p = idempotencyKey(q.r); p != nil {
		return cmd, wait, p
	}
	if cmd.Reason, p = reason(q.r); p != nil {
		return cmd, wait, p
	}
	if wait, p = q.waiting(); p != nil {
		return cmd, wait, p
	}
	if cmd.Wait, p = waits(q.r, wait.settle); p != nil {
		return cmd, wait, p
	}
	if cmd.Body, p = q.body(schema); p != nil {
		return cmd, wait, p
	}
	if p := q.admit(cmd); p != nil {
		return cmd, wait, p
	}
	if cmd.ID == "" && (wait.not() || wait.settle > 0) {
		cmd.ID = rand.Text() // it may be answered with an operation, which is known as long as a key is
	}
	if cmd.ID == "" {
		cmd.ID = streams.MadeUpID(rand.Text())
	}
	if cmd.Expect, p = q.expect(m, name); p != nil {
		return cmd, wait, p
	}
	return cmd, wait, nil
}

// expect turns If-Match into what the engine checks, after it has looked at the key of the command.
func (q *request) expect(m *machines.Machine, command string) (string, *Problem) {
	lines := q.r.Header["If-Match"]
	if len(lines) == 0 {
		if c, _ := m.Input(command); !c.Birth && command != machines.CommandRepair && slices.Contains(q.o.RequireIfMatch, m.Name) {
			return "", problem(codePreconditionRequired, "send If-Match with the ETag of the "+m.Name+" that you have seen")
		}
		return "", nil
	}
	list, all, ok := tags(lines)
	if !ok {
		return "", invalid("header.If-Match", "must be * or entity tags in quotes")
	}
	var strong []string
	for _, t := range list {
		if n, err := strconv.ParseUint(t.value, 10, 64); err == nil && n > 0 && !t.weak && strconv.FormatUint(n, 10) == t.value {
			strong = append(strong, t.value)
		}
	}
	switch {
	case all:
		return "*", nil
	case len(strong) == 0:
		return "", problem(machines.CodePrecondition, "If-Match names no ETag that an entity can have")
	}
	return strings.Join(strong, ","), nil
}

// inTurn stores a command and waits for its answer.
func (q *request) inTurn(cmd streams.Command) asking {
	return func(ctx context.Context, preferred time.Duration) (*nats.Msg, error) {
		return q.askInTurn(ctx, q.client(), cmd, preferred)
	}
}

func (q *request) answerOf(asked asking, preferred time.Duration) (*machines.Answer, error) {
	m, err := asked(q.ctx(), preferred)
	if err != nil {
		return nil, err
	}
	var a machines.Answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, err
	}
	if a.Replayed = streams.Replayed(m); a.Replayed {
		q.replayed()
	}
	return &a, nil
}

// replayed says that the answer is that of an earlier request under the same key.
func (q *request) replayed() { q.w.Header().Set(headerReplayed, "true") }

const headerReplayed = "Idempotent-Replayed"

// replayedHeader describes it.
func replayedHeader() *huma.Param {
	return &huma.Param{Schema: boolean(), Description: "true, and only on the answer to an earlier request under the same Idempotency-Key"}
}

// storing says what it means that a command could not be stored.
func storing(err error) error {
	var refused *streams.RefusedError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.As(err, &refused) && refused.Code == codeMessageTooLarge:
		return problem(codeTooLarge, "the body and the headers together are too large")
	case errors.Is(err, streams.ErrSubject):
		return invalid("path", labelRule)
	case errors.As(err, &refused) && refused.Code == codeTooManyRequests:
		return problem(codeRateLimited, "the stream of commands has more to take than it can; the command was not stored").with("Retry-After", "1")
	case errors.As(err, &refused) && slices.Contains(codesNoRoom, refused.Code):
		return problem(codeQueueFull, "the stream of commands may not grow any more; the command was not stored").with("Retry-After", "5")
	case errors.As(err, &refused):
		return errors.Join(streams.ErrUnanswered, err)
	}
	return err
}

// Error codes of the NATS server.
const (
	codeMessageTooLarge = 10054 // above the stream's limit
	codeTooManyRequests = 10167 // the inbound queue of the stream is full
)

// codesNoRoom say that a limit of the account or the server keeps the stream from growing.
var codesNoRoom = []int{10002, 10023, 10028, 10047}

// inProgress answers a request whose key is that of a command that is not decided yet.
func inProgress(id string) *Problem {
	return problem(codeInProgress, fmt.Sprintf("a command with the key %q is stored and not decided yet", id)).with("Retry-After", "1")
}

// stored answers 202.
func (q *request) stored(m *machines.Machine, cmd streams.Command, body CommandStored) error {
	if !streams.MadeUp(cmd.ID) { // else no answer is kept that could be looked up
		body.Operation = operationName(m.Name, cmd.Key, cmd.ID)
		q.w.Header().Set("Location", "/v1/operations/"+body.Operation)
	}
	return q.json(http.StatusAccepted, body)
}

// denied is the problem of an answer that is none of success.
func denied(m *machines.Machine, a *machines.Answer) *Problem {
	if a.Refusal != nil {
		p := refused(a.Refusal)
		if a.Refusal.State == "" {
			p.CurrentState = a.State
		}
		if a.Refusal.Allowed == nil && a.Refusal.Code != machines.CodeParked { // of that the state is not known
			p.AllowedCommands = m.Allowed(p.CurrentState)
		}
		if a.Refusal.Code == machines.CodePrecondition && a.Revision != 0 && !a.Replayed {
			p = p.with("ETag", etag(a.Revision))
		}
		return p
	}
	if a.Outcome == machines.Dead {
		return problem(machines.CodeDead, "the command could not be processed; it lies among the dead letters")
	}
	return nil
}

// answer answers with what the engine has decided.
func (q *request) answer(m *machines.Machine, cmd streams.Command, a *machines.Answer, wait waitOptions) error {
	if p := denied(m, a); p != nil {
		return p
	}
	result := CommandResult{Outcome: a.Outcome, State: a.State, Version: a.Version, Revision: a.Revision, Generation: a.Generation, CommandID: cmd.ID}
	if st, _ := m.State(a.State); wait.settle > 0 && st.Transitional {
		item, err := q.settled(m, cmd.Key, a.Revision, wait.began.Add(wait.settle))
		if err != nil {
			wait.applied(q.w, true)
			return q.stored(m, cmd, CommandStored{Outcome: a.Outcome, CommandID: cmd.ID, State: a.State, Revision: a.Revision})
		}
		result.State, result.Version, result.Revision, result.Generation = item.State, item.Version, item.Revision, item.Generation
	}
	wait.applied(q.w, false)
	if result.Revision != 0 {
		q.w.Header()["Etag"] = []string{etag(result.Revision)}
	}
	return q.json(http.StatusOK, result)
}

// settled waits until the entity is in a state that it can stay in, as of the command or later.
func (q *request) settled(m *machines.Machine, key string, revision uint64, until time.Time) (kv.Item, error) {
	ctx, cancel := context.WithDeadline(q.ctx(), until)
	defer cancel()
	defer context.AfterFunc(q.closing, cancel)()
	return q.o.Indexes[m.Name].WaitFor(ctx, key, func(it kv.Item) bool {
		st, known := m.State(it.State)
		return it.Revision >= revision && it.Problem == "" && known && !st.Transitional
	})
}
