package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// OperationStatus is what is known of something that was asked for and takes its time: one command, or a batch of them.
type OperationStatus struct {
	Name     string            `json:"name" doc:"Under /v1/operations/"`
	Kind     string            `json:"kind" enum:"command,batch"`
	Done     bool              `json:"done" doc:"It has come to its end: then there is an error or a response"`
	Metadata OperationMetadata `json:"metadata"`
	Error    *OperationError   `json:"error,omitempty" doc:"Why it failed: a refusal, the failed state that the entity came to, another command that took its place (superseded), or what ended a batch"`
	Response any               `json:"response,omitempty" doc:"What came of it: the answer of the command, or the counts of the batch"`
}

// OperationMetadata says how far an operation is.
type OperationMetadata struct {
	Machine   string         `json:"machine"`
	Namespace string         `json:"namespace"`
	Parent    string         `json:"parent,omitempty"`
	ID        string         `json:"id,omitempty" doc:"Of the entity"`
	Target    string         `json:"target,omitempty" doc:"The path of the entity"`
	Command   string         `json:"command,omitempty" doc:"Of a batch: the command that it sends"`
	CommandID string         `json:"commandId,omitempty"`
	Step      string         `json:"step" doc:"Of a command: stored while the engine has not decided, then the state of the entity, as far as the command led it, or superseded. Of a batch: running, stalled, cancelling, cancelled, expired or done"`
	StartedAt *time.Time     `json:"startedAt,omitempty"`
	UpdatedAt *time.Time     `json:"updatedAt,omitempty"`
	Progress  *BatchProgress `json:"progress,omitempty" doc:"Of a batch"`
}

// OperationError is why an operation failed.
type OperationError struct {
	Code            string   `json:"code" doc:"Of the refusal, or of the failure of the entity"`
	Message         string   `json:"message"`
	CurrentState    string   `json:"currentState,omitempty"`
	AllowedCommands []string `json:"allowedCommands,omitempty"`
	SupersededBy    string   `json:"supersededBy,omitempty" doc:"The id of the command that took its place before it had come to its end"`
}

func (s *Server) operationRoutes() []*route {
	name := func() *huma.Param {
		return &huma.Param{Name: "operation", In: "path", Required: true, Schema: text(512), Example: "service.default.web.7f1c2a"}
	}
	answer := map[string]*huma.Response{"200": {Description: "How far it is", Content: s.bodyOf(reflect.TypeFor[OperationStatus]()), Headers: map[string]*huma.Param{"Preference-Applied": {Schema: text(64)}}}}
	return []*route{
		{role: Read, serve: (*request).operation, op: huma.Operation{
			OperationID: "get-operation", Method: http.MethodGet, Path: "/v1/operations/{operation}", Tags: []string{"operations"}, Summary: "How far something is that was asked for",
			Description: "The Location of an answer 202. An operation of a command is known as long as the key of the command is remembered, one of a batch for 7 days after its last change. What came of a command stays as it is, whatever happens to the entity later.",
			Errors:      []int{404, 503}, Parameters: []*huma.Param{name(), header("Prefer", "wait=N: answer when it is done, or after N seconds, at most 30", "wait=10")}, Responses: answer,
		}},
		{role: Operate, serve: (*request).cancel, op: huma.Operation{
			OperationID: "cancel-operation", Method: http.MethodPost, Path: "/v1/operations/{operation}/cancel", Tags: []string{"operations"}, Summary: "Send no more commands of a batch",
			Description: "What was sent is not taken back. A single command that was accepted runs to its end: that is refused with 409 and the commands that the entity takes.",
			Errors:      []int{404, 409, 503}, Parameters: []*huma.Param{name()}, Responses: answer,
		}},
		s.batchRoute(),
	}
}

// batchKind begins the names of operations that are batches; no machine can have it as its name.
const batchKind = "batch"

// operationName names the operation of a command.
func operationName(machine, key, id string) string {
	if !plainID.MatchString(id) {
		id = "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
	}
	return machine + "." + key + "." + id
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// asked is what an operation's name names.
type asked struct {
	m       *machines.Machine
	key, id string
	batch   string
}

// named reads the name of an operation that the caller may know of.
func (q *request) namedOperation() (a asked, ok bool) {
	first, rest, _ := strings.Cut(q.path("operation"), ".")
	if first == batchKind {
		namespace, id, _ := strings.Cut(rest, ".")
		known := namespace == allTogether || streams.CheckLabel(namespace) == nil
		return asked{batch: rest}, known && plainID.MatchString(id) && q.who.sees(rest)
	}
	i := slices.IndexFunc(q.o.Machines, func(m *machines.Machine) bool { return m.Name == first })
	if i < 0 {
		return a, false
	}
	parts := 3
	if a.m = q.o.Machines[i]; a.m.Parent != "" {
		parts = 4
	}
	tokens := strings.Split(rest, ".")
	if len(tokens) != parts {
		return a, false
	}
	a.key, a.id = strings.Join(tokens[:parts-1], "."), tokens[parts-1]
	if coded, odd := strings.CutPrefix(a.id, "~"); odd {
		raw, err := base64.RawURLEncoding.DecodeString(coded)
		if a.id = string(raw); err != nil {
			return a, false
		}
	}
	_, _, _, err := streams.SplitKey(a.key)
	return a, err == nil && a.id != "" && len(a.id) <= maxKey && printable(a.id) && q.who.sees(a.key)
}

func noOperation() *Problem {
	return problem(machines.CodeNotFound, "there is no such operation, or it was so long ago that its outcome is forgotten")
}

func (q *request) operation() error {
	a, ok := q.namedOperation()
	if !ok {
		return noOperation()
	}
	prefs := preferred(q.r)
	if prefs.wait > 0 {
		leave, err := q.mayWait()
		if err != nil {
			return err
		}
		defer leave()
	}
	until := time.Now().Add(prefs.wait)
	var op *OperationStatus
	var err error
	if a.batch != "" {
		op, err = q.batchOperation(a.batch, until)
	} else {
		op, err = q.commandOperation(a, until)
	}
	if err != nil {
		return err
	}
	prefs.async = false
	prefs.applied(q.w, false)
	return q.json(http.StatusOK, op)
}

// commandOperation reads what was answered to a command, and where the entity stands.
func (q *request) commandOperation(a asked, until time.Time) (*OperationStatus, error) {
	namespace, parent, id, _ := streams.SplitKey(a.key) // namedOperation has done it
	op := &OperationStatus{Name: q.path("operation"), Kind: "command", Metadata: OperationMetadata{
		Machine: a.m.Name, Namespace: namespace, Parent: parent, ID: id, Target: q.pathOf(a.m, namespace, parent, id), CommandID: a.id, Step: "stored",
	}}
	answer, kept, err := q.decided(a, until)
	if err != nil || answer == nil {
		return op, err
	}
	if p := denied(a.m, answer); p != nil {
		op.Done, op.Metadata.Step = true, answer.State
		op.Error = &OperationError{Code: p.Code, Message: p.Detail, CurrentState: p.CurrentState, AllowedCommands: p.AllowedCommands}
		return op, nil
	}
	return op, q.arrived(op, a, answer, kept, until)
}

// decided is the answer to a command and when it was kept; none while it waits to be decided, until the time has come.
func (q *request) decided(a asked, until time.Time) (*machines.Answer, time.Time, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		waits, err := streams.Holds(q.ctx(), q.commands, q.o.Names.StoredOf(a.m.Name, a.key))
		if err != nil {
			return nil, time.Time{}, err
		}
		answer, at, err := q.kept(a) // after the question above: a command is answered before it is gone
		if err != nil || answer != nil {
			return answer, at, err
		}
		if !waits {
			return nil, at, noOperation()
		}
		if time.Now().After(until) {
			return nil, at, nil
		}
		select {
		case <-time.After(pause):
		case <-q.closing.Done():
			return nil, at, nil
		case <-q.ctx().Done():
			return nil, at, q.ctx().Err()
		}
	}
}

// kept reads what was answered: under the key of a sender as long as the key is remembered, else as long as the entity
// has the outcome in its value; and when that was stored.
func (q *request) kept(a asked) (answer *machines.Answer, at time.Time, err error) {
	e, err := q.answers.Get(q.ctx(), streams.AnswerKey(a.m.Name, a.key, a.id))
	if err == nil && e.Value.ID == a.id {
		return &e.Value.Answer, e.Created, nil
	}
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return nil, at, err
	}
	stored, err := q.buckets[a.m.Name].Get(q.ctx(), a.key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, at, nil
	}
	if err != nil {
		return nil, at, err
	}
	entity, err := a.m.Decode(stored.Value)
	if err != nil {
		return nil, at, problem(machines.CodeParked, "the stored value of this "+a.m.Name+" cannot be read by this version of the program")
	}
	for _, o := range entity.Commands {
		if o.ID == a.id {
			return &machines.Answer{Outcome: o.Result, State: o.State, Version: o.Version, Generation: o.Generation, Revision: o.Revision, Refusal: o.Refusal}, stored.Created, nil
		}
	}
	return nil, at, nil
}

// keptAnswer is what the engine keeps of an answer.
type keptAnswer struct {
	ID     string          `json:"id"`
	Answer machines.Answer `json:"answer"`
}

func (q *request) cancel() error {
	if _, p := q.body(nil); p != nil {
		return p
	}
	a, ok := q.namedOperation()
	if !ok {
		return noOperation()
	}
	if a.batch != "" {
		return q.cancelBatch(a.batch)
	}
	op, err := q.commandOperation(a, time.Now())
	if err != nil {
		return err
	}
	p := problem(machines.CodeTransition, "a command that was accepted runs to its end; what the entity takes now may end it")
	if op.Done {
		p.Detail = "the operation is done"
	}
	if e, err := q.load(a.m, a.key); err == nil {
		p.CurrentState, p.AllowedCommands = e.State, e.AllowedCommands
	}
	return p
}
