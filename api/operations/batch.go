package operations

// A batch as requests see it. POST /v1/batches comes to startBatch, which reads and checks it, claims it (claimBatch in run.go) and runs it in the background;
// operations.go passes reads and cancellations of it to batchOperation and cancelBatch. What is stored of it is the type batch, in the bucket of operations.

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// BatchRequest is one command for all entities that match.
type BatchRequest struct {
	Machine string          `json:"machine" minLength:"1" maxLength:"63" example:"service"`
	Filter  BatchFilter     `json:"filter,omitzero" doc:"Selects the entities; each is matched again when its turn comes"`
	Command string          `json:"command" minLength:"1" maxLength:"63" example:"refresh"`
	Body    json.RawMessage `json:"body,omitempty" doc:"Body of the command, the same for all entities"`
	DryRun  bool            `json:"dryRun,omitempty" doc:"Return the matching entities without sending anything"`
}

// BatchFilter is that of a list.
type BatchFilter struct {
	Namespace string   `json:"namespace,omitempty" maxLength:"63" doc:"* is all that the token may see; that of the token, or default"`
	Parent    string   `json:"parent,omitempty" maxLength:"63"`
	States    []string `json:"states,omitempty" maxItems:"64" nullable:"false"`
	Labels    []string `json:"labels,omitempty" maxItems:"16" nullable:"false" example:"[\"team=web\"]" doc:"k=v, k!=v, k in (a,b), or k; all must hold"`
	Keys      []string `json:"keys,omitempty" minItems:"1" maxItems:"500" nullable:"false" doc:"Only these: namespace.id, with the parent between where there is one"`
	IDPrefix  string   `json:"idPrefix,omitempty" maxLength:"63" doc:"Only those whose ids begin with it"`

	SinceBefore time.Time `json:"sinceBefore,omitzero" doc:"Only those that have been in their state since before then"`
}

// BatchProgress counts what became of the commands of a batch.
type BatchProgress struct {
	Matched   int            `json:"matched" doc:"Entities processed so far"`
	Applied   int            `json:"applied"`
	Unchanged int            `json:"unchanged" doc:"Entities whose command changed nothing"`
	Stored    int            `json:"stored" doc:"Commands that are stored but were not answered in time; they will be applied or refused"`
	Refused   int            `json:"refused"`
	Failed    int            `json:"failed" doc:"Commands of a stalled batch that were not stored, or may not have been; see the failures. Sent again with its Idempotency-Key, the batch continues with them"`
	Failures  []BatchFailure `json:"failures" nullable:"false" doc:"The first 100 refusals and failures"`
}

// BatchFailure is an entity whose command was refused, or failed.
type BatchFailure struct {
	Key    string `json:"key" doc:"namespace.id, with the parent between where there is one"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// BatchPlan is what a batch would do now.
type BatchPlan struct {
	Matched int      `json:"matched"`
	Keys    []string `json:"keys" nullable:"false" doc:"The first 100"`
}

// batch is what is stored of a batch, from which any process can continue it.
type batch struct {
	Request   BatchRequest  `json:"request"`
	Namespace string        `json:"namespace"` // what the filter means; empty is all
	Actor     string        `json:"actor"`
	Reason    string        `json:"reason,omitempty"`
	StartedAt time.Time     `json:"startedAt"`
	UpdatedAt time.Time     `json:"updatedAt"`
	After     string        `json:"after,omitempty"` // the key of the last entity whose turn has come
	Since     time.Time     `json:"since,omitzero"`  // the entities behind it may have got the command since then
	Progress  BatchProgress `json:"progress"`
	Cancelled bool          `json:"cancelled,omitempty"`
	Done      bool          `json:"done,omitempty"`
	Stopped   bool          `json:"stopped,omitempty"` // commands failed: it continues with their page when it is sent again
	Expired   bool          `json:"expired,omitempty"` // it stalled for so long that it cannot continue

	unsure int    // how many of the entities behind After may have got the command already
	client string // who sent it, the last time: its commands are counted with their other requests
}

// batchesAtOnce are those that one process runs.
var batchesAtOnce = limits.Bound{All: 8, Each: 2}

const (
	batchPage    = 100 // entities in a page; the batch is stored after each
	batchAtOnce  = 16
	maxFailures  = 100
	batchStalled = 30 * time.Second // without a sign of its process
	batchBeat    = 5 * time.Second  // between two such signs, at which it also notices a cancellation

	batchPageWithin = 10 * time.Second // no command of a page begins later, so that progress is stored in time
)

func (s *Service) batchRoute(r *rest.Router) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[BatchRequest](), true, "")
	return &rest.Route{Role: auth.Operate, Serve: func(q *rest.Request) error { return s.startBatch(q, schema) }, Op: huma.Operation{
		OperationID: "create-batch", Method: http.MethodPost, Path: "/v1/batches", Tags: []string{"operations"}, Summary: "Send a command to all entities that match",
		Description: "Each entity receives the command once, however often the batch is sent with its Idempotency-Key; sending it again also continues a stalled batch. Entities receive it in the order of their keys, up to 16 at once. The operation shows the progress.",
		Errors:      []int{400, 404, 409, 413, 415, 422, 429, 503},
		Parameters:  []*huma.Param{rest.HeaderParam("Idempotency-Key", "Makes the batch repeatable", "7f1c2a"), rest.HeaderParam("Instar-Reason", "Why; shown in the timelines", "planned upgrade")},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
		Responses: map[string]*huma.Response{
			"200": {Description: "With dryRun: the entities that match now", Content: r.BodyOf(reflect.TypeFor[BatchPlan]())},
			"202": {Description: "The batch runs; Location is its operation", Content: r.BodyOf(reflect.TypeFor[OperationStatus]()), Headers: map[string]*huma.Param{"Location": {Schema: rest.Text(512)}, rest.HeaderReplayed: rest.ReplayedHeader(), rest.HeaderStale: rest.StaleHeader()}},
		},
	}}
}

// startBatch accepts a batch, or continues one that has stalled.
func (s *Service) startBatch(q *rest.Request, schema *huma.Schema) error {
	var b batch
	if err := s.readBatch(q, schema, &b); err != nil {
		return err
	}
	s.store.MarkStale(q, s.store.Machines.Get(b.Request.Machine))
	if b.Request.DryRun {
		return s.planBatch(q, &b)
	}
	key, p := rest.IdempotencyKey(q.R)
	if p != nil {
		return p
	}
	id := b.id(cmp.Or(key, rand.Text()))
	leave, rev, err := s.claimBatch(q, id, &b)
	if err != nil {
		return err
	}
	b.client = q.Client()
	if rev == 0 || !s.run(id, b, rev, leave) {
		leave()
	}
	q.W.Header().Set("Location", "/v1/operations/"+batchName(id))
	return q.JSON(http.StatusAccepted, operationOf(id, &b))
}

// run runs a batch in the background, and gives its place back at the end. It returns false when the server is being closed.
func (s *Service) run(id string, b batch, rev uint64, leave func()) bool {
	done, ok := s.rest.Enter()
	if !ok {
		return false
	}
	go func() {
		defer func() { leave(); done() }()
		defer panics.Recover(s.rest.Log, "batch", "batch", id) // it stalls, and continues when it is sent again
		s.runBatch(id, b, rev)
	}()
	return true
}

// id is the key of a batch in its bucket. It begins with the namespace of the batch, or stands for all.
func (b *batch) id(key string) string {
	if !plainID.MatchString(key) || len(key) > 50 {
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:16])
	}
	return cmp.Or(b.Namespace, allTogether) + "." + key
}

// allTogether stands for all namespaces in the id of a batch. No namespace can have that name.
const allTogether = "_all"

// batchName names the operation, and is the id under which its commands are sent.
func batchName(id string) string { return batchKind + "." + id }

// readBatch reads and checks what can be known before the first entity.
func (s *Service) readBatch(q *rest.Request, schema *huma.Schema, b *batch) error {
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	if err := json.Unmarshal(raw, &b.Request); err != nil {
		return problem.Invalid("body", "has a value of another type")
	}
	m := s.store.Machines.Get(b.Request.Machine)
	if m == nil {
		return problem.Invalid("body.machine", fmt.Sprintf("there is no machine %.64q; there are %s", b.Request.Machine, names(s.store.Machines.All(), func(m *machines.Machine) string { return m.Name })))
	}
	c, ok := m.Input(b.Request.Command)
	switch {
	case !ok || c.Report || c.Birth:
		there := slices.DeleteFunc(m.Commands(), func(c machines.Command) bool { return c.Birth })
		return problem.Invalid("body.command", fmt.Sprintf("%.64q is no command for entities of %s that are there; it has %s", b.Request.Command, m.Name, names(there, func(c machines.Command) string { return c.Name })))
	case c.Admin:
		if p := q.Who.May(auth.Admin); p != nil {
			return p
		}
	}
	one := q.Router().Command(m.Name, c.Name)
	if one == nil { // it has just been added
		return problem.Invalid("body.machine", "there is no such machine yet")
	}
	if p := q.Router().CheckBody(one.Body(), b.Request.Body); p != nil {
		return p
	}
	if p := s.sender.Admit(publish.Command{Machine: m.Name, Name: c.Name, Body: b.Request.Body}); p != nil {
		return p
	}
	if b.Namespace, p = q.Who.Resolve(b.Request.Filter.Namespace, true); p != nil {
		return p
	}
	if b.Reason, p = rest.Reason(q.R); p != nil {
		return p
	}
	b.Actor, b.StartedAt = q.Who.Name, wallClock()
	b.UpdatedAt, b.Since, b.Progress.Failures = b.StartedAt, b.StartedAt, []BatchFailure{}
	if _, p := b.query(m); p != nil {
		return p
	}
	return s.store.Indexed(m.Name)
}

// names are what could have been meant.
func names[T any](all []T, name func(T) string) string {
	var list []string
	for _, one := range all {
		list = append(list, name(one))
	}
	return strings.Join(list, ", ")
}

// query selects the entities that are still to come.
func (b *batch) query(m *machines.Machine) (index.Query, *problem.Problem) {
	kq := index.Query{Namespace: b.Namespace, Parent: b.Request.Filter.Parent, States: b.Request.Filter.States, IDPrefix: b.Request.Filter.IDPrefix, SinceBefore: b.Request.Filter.SinceBefore, After: b.After, Limit: batchPage}
	if keys := b.Request.Filter.Keys; keys != nil {
		if len(keys) == 0 { // of a selection that came out empty; without the member it would be all
			return kq, problem.Invalid("body.filter.keys", "must not be empty; leave it out for all that match")
		}
		kq.Keys = make(map[string]struct{}, len(keys))
		for _, key := range keys {
			kq.Keys[key] = struct{}{}
		}
	}
	if kq.Parent != "" && (m.Parent == "" || streams.CheckLabel(kq.Parent) != nil) {
		return kq, problem.Invalid("body.filter.parent", problem.LabelRule+", and only for machines that have a parent")
	}
	for _, state := range kq.States {
		if _, ok := m.State(state); !ok {
			return kq, problem.Invalid("body.filter.states", fmt.Sprintf("%.64q is no state of %s; it has %s", state, m.Name, names(m.States, func(s machines.StateInfo) string { return s.Name })))
		}
	}
	var p *problem.Problem
	kq.Labels, p = entities.Selectors(m, "body.filter.labels", b.Request.Filter.Labels...)
	return kq, p
}

func (s *Service) planBatch(q *rest.Request, b *batch) error {
	plan := BatchPlan{Keys: []string{}}
	kq, _ := b.query(s.store.Machines.Get(b.Request.Machine)) // checked before
	for kq.Limit = rest.MaxPage; ; {
		page := s.store.Index(b.Request.Machine).List(kq)
		for _, it := range page.Items {
			if plan.Matched++; len(plan.Keys) < maxFailures {
				plan.Keys = append(plan.Keys, it.Key)
			}
		}
		if kq.After = page.Next; page.Next == "" {
			return q.JSON(http.StatusOK, plan)
		}
	}
}

// late reports whether it is too late to send commands again to the next entities: answers to earlier ones may be forgotten by
// now, or before those that are sent now are decided, so that a command might be applied twice.
func (b *batch) late(keysFor time.Duration) bool {
	return time.Now().After(b.Since.Add(keysFor - min(keysFor/4, 10*time.Minute)))
}

// wallClock is the time without the reading of the monotonic clock, which stands still while the host is suspended.
func wallClock() time.Time { return time.Now().UTC().Round(0) }

func sameBatch(a, b *batch) bool {
	one, err := json.Marshal(a.Request)
	two, err2 := json.Marshal(b.Request)
	return err == nil && err2 == nil && bytes.Equal(one, two) && a.Namespace == b.Namespace && a.Actor == b.Actor
}

func (b *batch) stalled() bool {
	return !b.Done && (b.Stopped || time.Since(b.UpdatedAt) > batchStalled)
}

// resume forgets the commands that failed: they are sent again.
func (b *batch) resume() {
	b.Stopped, b.Progress.Failed = false, 0
	b.Progress.Failures = slices.DeleteFunc(b.Progress.Failures, func(f BatchFailure) bool { return f.Code == problem.CodeUnavailable })
}

// loadBatch reads one whose id the caller may know; see [Service.namedOperation].
func (s *Service) loadBatch(q *rest.Request, id string) (kv.Entry[batch], error) {
	e, err := entities.InTurn(q, s.batches, id)
	if errors.Is(err, kv.ErrNotFound) {
		err = noOperation()
	}
	return e, err
}

// batchOperation reads how far a batch is. It waits until the batch is done or has stalled, or until the time has come.
func (s *Service) batchOperation(q *rest.Request, id string, until time.Time) (*OperationStatus, error) {
	for {
		e, err := s.loadBatch(q, id)
		if err != nil {
			return nil, err
		}
		op := operationOf(id, &e.Value)
		left := time.Until(until)
		if op.Done || left <= 0 || e.Value.stalled() {
			return op, nil
		}
		select {
		case <-time.After(min(left, 500*time.Millisecond)):
		case <-s.rest.Closing().Done():
			return op, nil
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
}

// cancelBatch marks a batch as cancelled. The process that runs it ends it within seconds, after the answers to what was sent.
func (s *Service) cancelBatch(q *rest.Request, id string) error {
	for {
		e, err := s.loadBatch(q, id)
		if err != nil {
			return err
		}
		b := e.Value
		if b.Done && !b.Cancelled {
			return problem.New(machines.CodeTransition, "the operation is done")
		}
		if !b.Cancelled {
			b.Cancelled, b.Done = true, b.stalled()
			if _, err := s.batches.Put(q.Context(), id, b, e.Revision); kv.Conflict(err) {
				continue // it was stored meanwhile by the process that runs it
			} else if err != nil {
				return err
			}
		}
		return q.JSON(http.StatusOK, operationOf(id, &b))
	}
}

func operationOf(id string, b *batch) *OperationStatus {
	op := &OperationStatus{Name: batchName(id), Kind: "batch", Done: b.Done, Metadata: OperationMetadata{
		Machine: b.Request.Machine, Namespace: cmp.Or(b.Namespace, auth.AnyNamespace), Parent: b.Request.Filter.Parent, Command: b.Request.Command, CommandID: batchName(id), Actor: b.Actor, Reason: b.Reason,
		Step: "running", StartedAt: &b.StartedAt, UpdatedAt: &b.UpdatedAt, Progress: &b.Progress,
	}}
	switch {
	case b.Expired:
		op.Metadata.Step, op.Error = "expired", &OperationError{Code: "expired", Message: "it stalled for longer than answers to keys are kept: of the next 100 entities it is not known which have got the command; send what is left as a new batch"}
	case b.Done && b.Cancelled:
		op.Metadata.Step, op.Error = "cancelled", &OperationError{Code: "cancelled", Message: "it was cancelled; what was sent is not taken back"}
	case b.Done:
		op.Metadata.Step, op.Response = "done", b.Progress
	case b.Cancelled:
		op.Metadata.Step = "cancelling"
	case b.stalled():
		op.Metadata.Step = "stalled"
	}
	return op
}
