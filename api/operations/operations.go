// Package operations reports what became of commands that were accepted, and runs batches of them.
//
// An operation of a command is read (operations.go) from its answer, and what came of it (outcome.go) from the events behind that. A batch is
// accepted (batch.go), run page by page (run.go), and stored after each page, so that any process can continue it.
package operations

// The service, and the routes under /v1/operations; list.go lists batches. The name of an operation says which command or batch it is (Name,
// namedOperation). For a command, decided reads the answer that is kept of it, and outcome.go adds what came of it;
// batches are answered in batch.go. Clients can wait for the end of an operation; only batches can be cancelled.

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
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

// OperationStatus is what is known of a command, or of a batch of commands, that was accepted.
type OperationStatus struct {
	Name     string            `json:"name" doc:"Name of the operation, see /v1/operations/"`
	Kind     string            `json:"kind" enum:"command,batch"`
	Done     bool              `json:"done" doc:"The operation has ended, with an error or a response"`
	Metadata OperationMetadata `json:"metadata"`
	Error    *OperationError   `json:"error,omitempty" doc:"Why the operation failed: a refusal, a failed state of the entity, another command that superseded it, or what ended a batch"`
	Response any               `json:"response,omitempty" doc:"Result: the answer of the command, or the counts of the batch"`
}

// OperationMetadata says how far an operation is.
type OperationMetadata struct {
	Machine   string         `json:"machine"`
	Namespace string         `json:"namespace"`
	Parent    string         `json:"parent,omitempty"`
	ID        string         `json:"id,omitempty" doc:"Id of the entity"`
	Target    string         `json:"target,omitempty" doc:"The path of the entity"`
	Command   string         `json:"command,omitempty" doc:"Command that the batch sends"`
	Actor     string         `json:"actor,omitempty" doc:"Who sent the batch"`
	Reason    string         `json:"reason,omitempty" doc:"Why, as who sent the batch said"`
	CommandID string         `json:"commandId,omitempty"`
	Step      string         `json:"step" doc:"Of a command: stored until the engine has decided, then the state that the command has led the entity to, or superseded. Of a batch: running, stalled, cancelling, cancelled, expired or done"`
	StartedAt *time.Time     `json:"startedAt,omitempty"`
	UpdatedAt *time.Time     `json:"updatedAt,omitempty"`
	Progress  *BatchProgress `json:"progress,omitempty" doc:"Progress of a batch"`
}

// OperationError is why an operation failed.
type OperationError struct {
	Code            string   `json:"code" doc:"Problem code of the refusal, or of the entity's failure"`
	Message         string   `json:"message"`
	CurrentState    string   `json:"currentState,omitempty"`
	AllowedCommands []string `json:"allowedCommands,omitempty"`
	SupersededBy    string   `json:"supersededBy,omitempty" doc:"Id of the command that superseded it"`
}

// Service reports what became of commands, and runs batches of them.
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
func (s *Service) Routes(r *rest.Router) []*rest.Route {
	name := func() *huma.Param {
		return &huma.Param{Name: "operation", In: "path", Required: true, Schema: rest.Text(512), Example: "service.default.web.7f1c2a"}
	}
	answer := map[string]*huma.Response{"200": {Description: "The operation", Content: r.BodyOf(reflect.TypeFor[OperationStatus]()), Headers: map[string]*huma.Param{"Preference-Applied": {Schema: rest.Text(64)}}}}
	return []*rest.Route{
		{Role: auth.Read, Serve: s.operation, Op: huma.Operation{
			OperationID: "get-operation", Method: http.MethodGet, Path: "/v1/operations/{operation}", Tags: []string{"operations"}, Summary: "Read an operation",
			Description: "The Location of an answer 202. The operation of a command is kept as long as the command's key, that of a batch for 7 days after its last change. The result of a command does not change when the entity does later.",
			Errors:      []int{404, 503}, Parameters: []*huma.Param{name(), rest.HeaderParam("Prefer", "wait=N: answer when it is done, or after N seconds, at most 30", "wait=10")}, Responses: answer,
		}},
		{Role: auth.Operate, Serve: s.cancel, Op: huma.Operation{
			OperationID: "cancel-operation", Method: http.MethodPost, Path: "/v1/operations/{operation}/cancel", Tags: []string{"operations"}, Summary: "Stop a batch from sending further commands",
			Description: "Commands that were already sent are not undone. A single accepted command cannot be cancelled: the answer is 409 with the commands that the entity allows.",
			Errors:      []int{404, 409, 503}, Parameters: []*huma.Param{name()}, Responses: answer,
		}},
		s.batchRoute(r), s.listRoute(r),
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

// namedOperation reads the name of an operation that the caller may know of.
func (s *Service) namedOperation(q *rest.Request) (a asked, ok bool) {
	first, tail, _ := strings.Cut(q.PathValue("operation"), ".")
	if first == batchKind {
		namespace, id, _ := strings.Cut(tail, ".")
		known := namespace == allTogether || streams.CheckLabel(namespace) == nil
		return asked{batch: tail}, known && plainID.MatchString(id) && q.Who.Sees(tail)
	}
	if a.m = s.store.Machines.Get(first); a.m == nil {
		return a, false
	}
	parts := 3
	if a.m.Parent != "" {
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

// commandOperation reads what was answered to a command, and what came of it.
func (s *Service) commandOperation(q *rest.Request, a asked, until time.Time) (*OperationStatus, error) {
	namespace, parent, id, _ := streams.SplitKey(a.key) // namedOperation has checked it
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

// decided waits for the answer to a command until the time has come. It returns the answer and when that was kept, or nil if there is none yet.
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
