// Package operations tells what has become of commands that were accepted, and runs batches of them.
//
// An operation of a command is read (operations.go) from its answer, and what came of it (outcome.go) from the events behind that. A batch is
// taken (batch.go), run page by page (run.go), and stored after each page, so that any process can go on with it.
package operations

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
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

// Service tells what has become of commands, and runs batches of them.
type Service struct {
	batches *kv.Bucket[batch]
	Running *limits.Pool  // of batches
	keysFor time.Duration // how long the answer to a key is kept

	rest   *rest.Server
	store  *entities.Store
	sender *commands.Sender
}

// New opens the bucket of batches. keysFor is how long the answer to a key is kept.
func New(ctx context.Context, d *rest.Server, st *entities.Store, se *commands.Sender, keysFor time.Duration) (*Service, error) {
	b, err := kv.Open(ctx, st.JS, st.Names.Bucket(streams.OperationsBucket), kv.JSON[batch]())
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return &Service{batches: b, Running: limits.NewPool("batches", batchesAtOnce), keysFor: keysFor, rest: d, store: st, sender: se}, nil
}

// Routes are the operations on operations and batches.
func (s *Service) Routes() []*rest.Route {
	name := func() *huma.Param {
		return &huma.Param{Name: "operation", In: "path", Required: true, Schema: rest.Text(512), Example: "service.default.web.7f1c2a"}
	}
	answer := map[string]*huma.Response{"200": {Description: "How far it is", Content: s.rest.BodyOf(reflect.TypeFor[OperationStatus]()), Headers: map[string]*huma.Param{"Preference-Applied": {Schema: rest.Text(64)}}}}
	return []*rest.Route{
		{Role: auth.Read, Serve: s.operation, Op: huma.Operation{
			OperationID: "get-operation", Method: http.MethodGet, Path: "/v1/operations/{operation}", Tags: []string{"operations"}, Summary: "How far something is that was asked for",
			Description: "The Location of an answer 202. An operation of a command is known as long as the key of the command is remembered, one of a batch for 7 days after its last change. What came of a command stays as it is, whatever happens to the entity later.",
			Errors:      []int{404, 503}, Parameters: []*huma.Param{name(), rest.HeaderParam("Prefer", "wait=N: answer when it is done, or after N seconds, at most 30", "wait=10")}, Responses: answer,
		}},
		{Role: auth.Operate, Serve: s.cancel, Op: huma.Operation{
			OperationID: "cancel-operation", Method: http.MethodPost, Path: "/v1/operations/{operation}/cancel", Tags: []string{"operations"}, Summary: "Send no more commands of a batch",
			Description: "What was sent is not taken back. A single command that was accepted runs to its end: that is refused with 409 and the commands that the entity takes.",
			Errors:      []int{404, 409, 503}, Parameters: []*huma.Param{name()}, Responses: answer,
		}},
		s.batchRoute(),
	}
}

// batchKind begins the names of operations that are batches; no machine can have it as its name.
const batchKind = "batch"

// Name names the operation of a command.
func Name(machine, key, id string) string {
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
func (s *Service) namedOperation(q *rest.Request) (a asked, ok bool) {
	first, tail, _ := strings.Cut(q.PathValue("operation"), ".")
	if first == batchKind {
		namespace, id, _ := strings.Cut(tail, ".")
		known := namespace == allTogether || streams.CheckLabel(namespace) == nil
		return asked{batch: tail}, known && plainID.MatchString(id) && q.Who.Sees(tail)
	}
	i := slices.IndexFunc(s.store.Machines, func(m *machines.Machine) bool { return m.Name == first })
	if i < 0 {
		return a, false
	}
	parts := 3
	if a.m = s.store.Machines[i]; a.m.Parent != "" {
		parts = 4
	}
	tokens := strings.Split(tail, ".")
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
	return a, err == nil && a.id != "" && len(a.id) <= rest.MaxKey && problem.Printable(a.id) && q.Who.Sees(a.key)
}

func noOperation() *problem.Problem {
	return problem.New(machines.CodeNotFound, "there is no such operation, or it was so long ago that its outcome is forgotten")
}

func (s *Service) operation(q *rest.Request) error {
	a, ok := s.namedOperation(q)
	if !ok {
		return noOperation()
	}
	prefs := rest.Preferred(q.R)
	if prefs.Wait > 0 {
		leave, err := q.TakeWait()
		if err != nil {
			return err
		}
		defer leave()
	}
	until := time.Now().Add(prefs.Wait)
	var op *OperationStatus
	var err error
	if a.batch != "" {
		op, err = s.batchOperation(q, a.batch, until)
	} else {
		op, err = s.commandOperation(q, a, until)
	}
	if err != nil {
		return err
	}
	prefs.Async = false
	prefs.Applied(q.W, false)
	return q.JSON(http.StatusOK, op)
}

// commandOperation reads what was answered to a command, and where the entity stands.
func (s *Service) commandOperation(q *rest.Request, a asked, until time.Time) (*OperationStatus, error) {
	namespace, parent, id, _ := streams.SplitKey(a.key) // namedOperation has done it
	op := &OperationStatus{Name: q.PathValue("operation"), Kind: "command", Metadata: OperationMetadata{
		Machine: a.m.Name, Namespace: namespace, Parent: parent, ID: id, Target: s.store.PathOf(a.m, namespace, parent, id), CommandID: a.id, Step: "stored",
	}}
	answer, kept, err := s.decided(q, a, until)
	if err != nil || answer == nil {
		return op, err
	}
	if p := commands.Denied(a.m, answer); p != nil {
		op.Done, op.Metadata.Step = true, answer.State
		op.Error = &OperationError{Code: p.Code, Message: p.Detail, CurrentState: p.CurrentState, AllowedCommands: p.AllowedCommands}
		return op, nil
	}
	return op, s.arrived(q, op, a, answer, kept, until)
}

// decided is the answer to a command and when it was kept; none while it waits to be decided, until the time has come.
func (s *Service) decided(q *rest.Request, a asked, until time.Time) (*machines.Answer, time.Time, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		var waits bool
		var answer *machines.Answer
		var at time.Time
		err := q.InTurn(func() (err error) {
			if waits, err = s.sender.Waiting(q.Context(), a.m, a.key); err != nil {
				return err
			}
			answer, at, err = s.sender.Kept(q.Context(), a.m, a.key, a.id) // after the question above: a command is answered before it is gone
			return err
		})
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
		case <-s.rest.Closing().Done():
			return nil, at, nil
		case <-q.Context().Done():
			return nil, at, q.Context().Err()
		}
	}
}

func (s *Service) cancel(q *rest.Request) error {
	if _, p := q.Body(nil); p != nil {
		return p
	}
	a, ok := s.namedOperation(q)
	if !ok {
		return noOperation()
	}
	if a.batch != "" {
		return s.cancelBatch(q, a.batch)
	}
	op, err := s.commandOperation(q, a, time.Now())
	if err != nil {
		return err
	}
	p := problem.New(machines.CodeTransition, "a command that was accepted runs to its end; what the entity takes now may end it")
	if op.Done {
		p.Detail = "the operation is done"
	}
	if e, err := s.store.Load(q, a.m, a.key); err == nil {
		p.CurrentState, p.AllowedCommands = e.State, e.AllowedCommands
	}
	return p
}
