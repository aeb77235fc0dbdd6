package tasks

// POST /v1/repositories/{id}/run-all and POST /v1/tasks/clean-up: one command for many tasks, whose answer says what became of each. They send one after the other, in order; more than
// mostAtOnce are for a batch (/v1/batches).

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// RunAll is the body of run-all.
type RunAll struct {
	OnFailure string   `json:"onFailure,omitempty" enum:"continue,stop" doc:"stop: when one of them fails, those that are still queued are canceled; continue by default"`
	Types     []string `json:"types,omitempty" maxItems:"64" doc:"Only tasks of these types"`
	Again     bool     `json:"again,omitempty" doc:"Also those that have succeeded"`
	DryRun    bool     `json:"dryRun,omitempty" doc:"Say what would be queued, and queue nothing"`
}

// Enqueued is the answer to run-all.
type Enqueued struct {
	Enqueued   int       `json:"enqueued"`
	Jobs       []string  `json:"jobs" nullable:"false" doc:"In the order in which they were queued: by sortOrder"`
	Skipped    []Skipped `json:"skipped" nullable:"false"`
	More       int       `json:"skippedMore,omitempty" doc:"So many more were skipped for their state, beyond the 1,000 that are listed"`
	Batch      string    `json:"batch,omitempty" doc:"Name of this run; the tasks have it as data.batch"`
	Incomplete bool      `json:"incomplete,omitempty" doc:"One of the tasks brought no answer, and those behind it were not asked: send the request again for the rest"`
}

// Skipped is a task that was left as it is.
type Skipped struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// CleanedUp is the answer to a clean-up.
type CleanedUp struct {
	Failed     []string  `json:"failed" nullable:"false" doc:"Jobs that are failed now, as stuck"`
	Skipped    []Skipped `json:"skipped" nullable:"false"`
	Incomplete bool      `json:"incomplete,omitempty" doc:"One of them brought no answer, and those behind it were not asked: send the request again for the rest"`
}

const mostAtOnce = 1000

func (s *Service) runAllRoute(r *rest.Router) *rest.Route {
	schema := r.Registry().Schema(reflect.TypeFor[RunAll](), true, "")
	return &rest.Route{Role: auth.Operate, Serve: func(q *rest.Request) error { return s.runAll(q, schema) }, Op: huma.Operation{
		OperationID: "repositories-run-all", Method: http.MethodPost, Path: "/v1/repositories/{id}/run-all", Tags: []string{"repository"}, Summary: "Queue all tasks of a repository",
		Description: "By their sortOrder. Tasks that are pending, failed or canceled are queued; the others are skipped, with the reason. Where one of them brings no answer, the answer is incomplete: it and those behind it are among the skipped, with the reason, and sending it again queues the rest.",
		Errors:      []int{400, 404, 409, 413, 415, 422, 429, 503}, Parameters: []*huma.Param{rest.NamespaceParam(), rest.QueryParam("dryRun", "As dryRun of the body", rest.Boolean()), rest.HeaderParam("Instar-Reason", "Why; shown in the timelines", "nightly")},
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
		Responses:   map[string]*huma.Response{"200": {Description: "What was queued", Content: r.BodyOf(reflect.TypeFor[Enqueued]())}},
	}}
}

func (s *Service) runAll(q *rest.Request, schema *huma.Schema) error {
	var b RunAll
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &b); err != nil {
			return problem.Invalid("body", "has a value of another type")
		}
	}
	b.DryRun = b.DryRun || q.Flag("dryRun")
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return p
	}
	reason, p := rest.Reason(q.R)
	if p != nil {
		return p
	}
	e, err := s.store.Load(q, s.store.Machines.Get(task.Machine.Parent), machines.Key(ns, "", q.PathValue("id")))
	if err != nil {
		return err
	}
	if err := s.made(q, e); err != nil {
		return err
	}
	if err := s.store.Indexed(task.Machine.Name); err != nil {
		return err
	}
	items, more, err := b.tasks(s.store.Index(task.Machine.Name).List, index.Query{Namespace: ns, Parent: q.PathValue("id")})
	if err != nil {
		return err
	}
	out, err := b.run(items, &publish.Command{Actor: q.Who.Name, Reason: reason, Trace: rest.Traceparent(q.Context())}, ways{s.sender.Admit, s.sender.Place, s.ask})
	if err != nil {
		return err
	}
	out.More = more
	return q.JSON(http.StatusOK, out)
}

// ways are those of a command into the engine.
type ways struct {
	admit func(publish.Command) *problem.Problem
	place func(publish.Command) (commands.Left, *problem.Problem)
	ask   func(publish.Command) (machines.Answer, error)
}

// run queues tasks, one after the other, by commands like the one given. Where one brings no answer, what is queued is told all the same, and no other is asked: each could take as long to fail. An
// error is of a run that has stored nothing.
func (b *RunAll) run(items []index.Item, like *publish.Command, to ways) (*Enqueued, error) {
	out := &Enqueued{Jobs: []string{}, Skipped: []Skipped{}, Batch: task.NewBatch(rand.Text())}
	body, err := json.Marshal(task.RunBody{Again: b.Again, Order: task.Order{Batch: out.Batch, StopBatch: b.OnFailure == "stop"}})
	if err != nil {
		return nil, err
	}
	skip := func(id, reason string) { out.Skipped = append(out.Skipped, Skipped{id, reason}) }
	for _, item := range items {
		id := jobOf(item.Key)
		cmd := publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: task.CommandRun, Actor: like.Actor, Reason: like.Reason, Trace: like.Trace, Body: body}
		switch {
		case !b.asks(item.State):
			skip(id, "it is "+item.State)
			continue
		case err != nil:
			skip(id, notAsked)
			continue
		}
		p := to.admit(cmd)
		if p == nil && b.DryRun { // it has its place until all are counted
			var left commands.Left
			if left, p = to.place(cmd); left != nil {
				defer left(nil, nil)
			}
		}
		if p != nil {
			if p.Status == http.StatusTooManyRequests && len(out.Jobs) == 0 {
				return nil, p
			}
			skip(id, p.Detail)
			continue
		}
		if b.DryRun {
			out.Jobs = append(out.Jobs, id)
			continue
		}
		var a machines.Answer
		switch a, err = to.ask(cmd); {
		case err != nil && len(out.Jobs) == 0 && notStored(err):
			return nil, err
		case err != nil:
			out.Incomplete = true
			skip(id, unanswered(err))
		case a.Refusal != nil:
			skip(id, a.Refusal.Message)
		case a.Outcome == machines.Unchanged:
			skip(id, "it is "+a.State)
		default:
			out.Jobs = append(out.Jobs, id)
		}
	}
	if out.Enqueued = len(out.Jobs); b.DryRun {
		out.Batch = ""
	}
	return out, nil
}

// notAsked is why a task was skipped that comes behind one which brought no answer.
const notAsked = "it was not asked, since one before it brought no answer; send the request again"

// notStored reports whether a command without an answer was certainly not stored: it was refused before it was sent, or no stream took it.
func notStored(err error) bool {
	var p *problem.Problem
	return errors.As(err, &p) || publish.NotStored(err)
}

// unanswered is why the one was skipped that brought no answer.
func unanswered(err error) string {
	var p *problem.Problem
	var accepted *publish.AcceptedError
	switch {
	case errors.As(err, &accepted):
		return "it is asked for, and brought no answer in time"
	case errors.As(err, &p) && p.Detail != "":
		return p.Detail
	case notStored(err):
		return "it could not be asked for: " + err.Error()
	}
	return "it brought no answer, and may be asked for all the same: " + err.Error()
}

const making = 5 * time.Second // in which the tasks of a repository are made, unless nobody schedules

// made waits for the tasks that a repository asks for, where it has just been created or configured: until they are there, there would be less to run than it says.
func (s *Service) made(q *rest.Request, e *entities.Entity) error {
	if err := s.store.Indexed(task.Machine.Name); err != nil {
		return err
	}
	var d struct {
		Analyses []string `json:"analyses"`
		Applied  uint64   `json:"applied"` // the generation whose tasks were made
	}
	if err := json.Unmarshal(e.Data, &d); err != nil || d.Applied >= e.Generation && time.Since(e.UpdatedAt) > making { // what is missing now was deleted
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), making)
	defer cancel()
	for _, typ := range d.Analyses {
		_, err := s.store.Index(task.Machine.Name).WaitFor(ctx, machines.Key(e.Namespace, e.ID, typ), func(index.Item) bool { return true })
		if err != nil && d.Applied < e.Generation {
			return problem.Unavailable("the tasks of this repository are still being made, such as " + typ + "; nothing was queued")
		}
	}
	return nil
}

// there are the states of a task that is not gone.
var there = []string{task.Pending, task.Queued, task.Running, task.Succeeded, task.Failed, task.Canceled, task.Deleting}

// tasks are those of a repository in the order in which they are queued: of the types that are meant, and no more than mostAtOnce that are to be asked. Of those that are skipped it has as many, and how many more
// there are: there may be very many. The one that clones has its own command.
func (b *RunAll) tasks(list func(index.Query) index.Page, of index.Query) (items []index.Item, more int, err error) {
	var types []string // that there are
	asked := 0
	for of.States, of.Limit = there, mostAtOnce; ; {
		page := list(of)
		for _, i := range page.Items {
			brief, _ := i.Value.(*task.Brief)
			if brief != nil && !slices.Contains(types, brief.Type) {
				types = append(types, brief.Type)
			}
			if brief == nil || len(b.Types) > 0 && !slices.Contains(b.Types, brief.Type) || strings.HasSuffix(i.Key, ".clone") && i.State == task.Succeeded {
				continue
			}
			if b.asks(i.State) {
				asked++
			} else if len(items)-asked == mostAtOnce {
				more++
				continue
			}
			items = append(items, i)
		}
		if asked > mostAtOnce {
			return nil, 0, problem.Invalid("path.id", "has more than 1000 tasks that would be queued: name types, or send a batch with the filter parent to /v1/batches")
		}
		if of.After = page.Next; of.After == "" {
			break
		}
	}
	for _, typ := range b.Types {
		if !slices.Contains(types, typ) {
			slices.Sort(types)
			return nil, 0, problem.Invalid("body.types", fmt.Sprintf("no task of the repository has the type %.64q; there are %s", typ, cmp.Or(strings.Join(types, ", "), "no tasks")))
		}
	}
	slices.SortStableFunc(items, func(a, b index.Item) int {
		return cmp.Or(cmp.Compare(a.Value.(*task.Brief).SortOrder, b.Value.(*task.Brief).SortOrder), cmp.Compare(a.Key, b.Key))
	})
	return items, more, nil
}

// asks reports whether a task in a state is to be asked; the others are skipped.
func (b *RunAll) asks(state string) bool {
	return state != task.Queued && state != task.Running && state != task.Deleting && (state != task.Succeeded || b.Again)
}

// jobOf is <repository>.<task>.
func jobOf(key string) string {
	_, job, _ := strings.Cut(key, ".")
	return job
}

func (s *Service) cleanUpRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Operate, Serve: s.cleanUp, Op: huma.Operation{
		OperationID: "tasks-clean-up", Method: http.MethodPost, Path: "/v1/tasks/clean-up", Tags: tags, Summary: "Fail tasks that are stuck",
		Description: "Tasks whose attempt has been running for longer than olderThan fail as stuck, and may be retried. A worker that is alive keeps its attempt until the timeout of the task without this.",
		Errors:      []int{404, 422, 429, 503}, Extensions: map[string]any{"x-destructive": true},
		Parameters: []*huma.Param{rest.NamespaceParam(), rest.QueryParam("olderThan", "A duration; 1h by default, at least 1s", rest.Text(32)), rest.QueryParam("dryRun", "Say which, and fail none", rest.Boolean())},
		Responses:  map[string]*huma.Response{"200": {Description: "What was done", Content: r.BodyOf(reflect.TypeFor[CleanedUp]())}},
	}}
}

// running are the tasks of a namespace that run: as many as there are slots.
func (s *Service) running(namespace string) (all []index.Item) {
	for after := ""; ; {
		page := s.store.Index(task.Machine.Name).List(index.Query{Namespace: namespace, States: []string{task.Running}, After: after, Limit: mostAtOnce})
		all = append(all, page.Items...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

func (s *Service) cleanUp(q *rest.Request) error {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return p
	}
	older := time.Hour
	if text := q.Query.Get("olderThan"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second {
			return problem.Invalid("query.olderThan", "is not a duration of at least 1s, such as 1h")
		}
		older = d
	}
	if err := s.store.Indexed(task.Machine.Name); err != nil {
		return err
	}
	out, broken := CleanedUp{Failed: []string{}, Skipped: []Skipped{}}, ""
	for _, item := range s.running(ns) {
		brief, _ := item.Value.(*task.Brief)
		if brief == nil || time.Since(brief.StartedAt) < older {
			continue
		}
		if broken != "" {
			out.Skipped = append(out.Skipped, Skipped{jobOf(item.Key), broken})
			continue
		}
		if q.Flag("dryRun") {
			out.Failed = append(out.Failed, jobOf(item.Key))
			continue
		}
		data, err := json.Marshal(task.Stuck{Reason: "running for longer than " + older.String(), Attempt: brief.AttemptID})
		if err != nil {
			return err
		}
		body, err := json.Marshal(machines.Report{Data: data})
		if err != nil {
			return err
		}
		a, err := s.ask(publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: task.ReportStuck, Actor: q.Who.Name, Trace: rest.Traceparent(q.Context()), Body: body})
		switch {
		case err != nil && len(out.Failed) == 0 && notStored(err):
			return err
		case err != nil:
			broken, out.Incomplete = notAsked, true
			out.Skipped = append(out.Skipped, Skipped{jobOf(item.Key), unanswered(err)})
		case a.Refusal != nil:
			out.Skipped = append(out.Skipped, Skipped{jobOf(item.Key), a.Refusal.Message})
		default:
			out.Failed = append(out.Failed, jobOf(item.Key))
		}
	}
	return q.JSON(http.StatusOK, out)
}
