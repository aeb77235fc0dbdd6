package admin

// The routes under /v1/outbox: list the outboxes that this server relays with their status, redrive or discard failed
// rows. A filter is checked here (OutboxFilter.check) and passed to the interface Outbox, which server/relays implements.
// The answer is the status of each source, or the number of rows changed. Sources belong to the default namespace.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
)

// Outbox is what relays bring from databases into streams. Its errors are [ErrNoSource], an [*OutboxUnavailable], or
// unexpected.
type Outbox interface {
	// Sources are the databases that are relayed here, with the status of each.
	Sources(ctx context.Context) ([]OutboxSource, error)
	// Redrive makes rows that failed wait for their next try again, at once, and returns how many.
	Redrive(ctx context.Context, source string, f OutboxFilter, actor string) (int64, error)
	// Discard gives up rows that failed, so that the rows behind them are sent. It returns how many it gave up.
	Discard(ctx context.Context, source string, f OutboxFilter, actor string) (int64, error)
}

// ErrNoSource says that no source of that name is relayed here.
var ErrNoSource = errors.New("api: there is no such source")

// OutboxUnavailable says why the outbox, or one source, cannot be used now.
type OutboxUnavailable struct{ Reason string }

func (e *OutboxUnavailable) Error() string { return e.Reason }

// OutboxSource is one database with the status of its relay.
type OutboxSource struct {
	Name    string        `json:"name" doc:"Name of the source, and of its relay"`
	State   string        `json:"state,omitempty" doc:"State of its relay; see GET /v1/relays/{name}"`
	Status  *OutboxStatus `json:"status,omitempty" doc:"Status at the time of the request"`
	Problem string        `json:"problem,omitempty" doc:"Why the status could not be read"`
}

// OutboxStatus is the status of a relay.
type OutboxStatus struct {
	Mode      string           `json:"mode" enum:"claim,log"`
	Rows      map[string]int64 `json:"rows" doc:"Rows by state: NEW, SENDING, SENT (an estimate for large tables), FAILED, DEAD"`
	Oldest    float64          `json:"oldestSeconds" doc:"Age of the oldest row that is not sent"`
	Lag       int64            `json:"lag" doc:"Rows that are not published yet"`
	FenceWait float64          `json:"fenceWaitSeconds" doc:"Seconds for which the oldest open transaction has held the relay back"`
	Parked    []OutboxParked   `json:"parked,omitempty" doc:"Aggregates blocked by a failed row; at most 100"`
	Rate      float64          `json:"rate" doc:"Rows per second over the last minute"`
	Shards    []OutboxShard    `json:"shards"`
	Problem   string           `json:"problem,omitempty" doc:"Why the relay makes no progress"`
	At        time.Time        `json:"at"`
}

// OutboxParked is an aggregate that waits behind a row that cannot be published.
type OutboxParked struct {
	AggregateType string    `json:"aggregateType"`
	AggregateID   string    `json:"aggregateId"`
	EventID       string    `json:"eventId"`
	State         string    `json:"state" enum:"FAILED,DEAD"`
	Attempts      int       `json:"attempts"`
	NextTry       time.Time `json:"nextTry,omitzero"`
	Error         string    `json:"error"`
	Waiting       int64     `json:"waiting" doc:"Rows that wait behind it"`
}

// OutboxShard is a part of the aggregates.
type OutboxShard struct {
	Number   int    `json:"number"`
	Owner    string `json:"owner,omitempty" doc:"Node whose relay holds the shard"`
	Position string `json:"position,omitempty" doc:"Position of the last published row"`
}

// OutboxSources are all of them.
type OutboxSources struct {
	Items []OutboxSource `json:"items"`
}

// OutboxFilter says which failed rows are meant: ids alone, all alone, or those of an aggregate type (or one aggregate), of an event type, or of both.
type OutboxFilter struct {
	IDs           []string `json:"ids,omitempty" maxItems:"500" doc:"Ids of events"`
	AggregateType string   `json:"aggregateType,omitempty" maxLength:"128" doc:"Rows of aggregates of this type; with aggregateId, of this aggregate"`
	AggregateID   string   `json:"aggregateId,omitempty" maxLength:"128" doc:"Rows of this aggregate; needs aggregateType"`
	EventType     string   `json:"eventType,omitempty" maxLength:"256" doc:"Events of this type"`
	All           bool     `json:"all,omitempty" doc:"All failed rows"`
}

// OutboxChanged says how many rows were changed.
type OutboxChanged struct {
	Rows int64 `json:"rows" doc:"Number of rows changed"`
}

var eventID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (f *OutboxFilter) check() *problem.Problem {
	aggregate := f.AggregateType != ""
	given := 0
	for _, one := range []bool{len(f.IDs) > 0, aggregate, f.EventType != "", f.All} {
		if one {
			given++
		}
	}
	switch {
	case f.AggregateID != "" && !aggregate:
		return problem.Invalid("body.aggregateId", "needs aggregateType")
	case slices.ContainsFunc(f.IDs, func(id string) bool { return !eventID.MatchString(id) }):
		return problem.Invalid("body.ids", "must be ids of events (UUIDs)")
	case given == 0:
		return problem.Invalid("body", "must have ids, aggregateType, eventType or all")
	case f.All && given > 1, len(f.IDs) > 0 && given > 1:
		return problem.Invalid("body", "ids and all stand alone")
	}
	return nil
}

func (s *Service) outboxRoutes(r *rest.Router) []*rest.Route {
	if s.o.Outbox == nil {
		return nil
	}
	tags := []string{"outbox"}
	schema := r.Registry().Schema(reflect.TypeFor[OutboxFilter](), true, "")
	change := func(id, verb, summary string, do func(Outbox, context.Context, string, OutboxFilter, string) (int64, error)) *rest.Route {
		return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.changeOutbox(q, verb, schema, do) }, Op: huma.Operation{
			OperationID: id, Method: http.MethodPost, Path: "/v1/outbox/{source}/" + verb, Tags: tags, Summary: summary, Errors: []int{400, 404, 413, 415, 422, 503},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
			Responses:   map[string]*huma.Response{"200": {Description: "Number of rows changed", Content: r.BodyOf(reflect.TypeFor[OutboxChanged]())}},
		}}
	}
	return []*rest.Route{
		{Role: auth.Read, Serve: s.outboxes, Op: huma.Operation{
			OperationID: "list-outbox-sources", Method: http.MethodGet, Path: "/v1/outbox", Tags: tags, Summary: "List outboxes with their status", Errors: []int{503},
			Responses: map[string]*huma.Response{"200": {Description: "All outboxes of this server", Content: r.BodyOf(reflect.TypeFor[OutboxSources]())}},
		}},
		change("redrive-outbox", "redrive", "Let failed rows be tried again at once", Outbox.Redrive),
		change("discard-outbox", "discard", "Give failed rows up, so that what waits behind them goes on", Outbox.Discard),
	}
}

// outboxes shows the sources that the caller may see: relays live in the default namespace.
func (s *Service) outboxes(q *rest.Request) error {
	list, err := s.o.Outbox.Sources(q.Context())
	if err != nil {
		return outboxProblem(err)
	}
	out := OutboxSources{Items: []OutboxSource{}}
	for _, source := range list {
		if q.Who.Sees(machines.Key(auth.DefaultNamespace, "", source.Name)) {
			out.Items = append(out.Items, source)
		}
	}
	return q.JSON(http.StatusOK, out)
}

func (s *Service) changeOutbox(q *rest.Request, verb string, schema *huma.Schema, do func(Outbox, context.Context, string, OutboxFilter, string) (int64, error)) error {
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var f OutboxFilter
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &f); err != nil {
			return problem.Invalid("body", "is not a filter")
		}
	}
	if p := f.check(); p != nil {
		return p
	}
	source := q.PathValue("source")
	if !q.Who.Sees(machines.Key(auth.DefaultNamespace, "", source)) {
		return problem.New(machines.CodeNotFound, "there is no such source")
	}
	n, err := do(s.o.Outbox, q.Context(), source, f, q.Who.Name)
	if err != nil {
		return outboxProblem(err)
	}
	s.rest.Log.Info("rows of an outbox were changed", "request", q.Id, "actor", q.Who.Name, "source", source, "what", verb, "rows", n)
	return q.JSON(http.StatusOK, OutboxChanged{n})
}

func outboxProblem(err error) error {
	var away *OutboxUnavailable
	switch {
	case errors.As(err, &away):
		return problem.Unavailable(away.Reason)
	case errors.Is(err, ErrNoSource):
		return problem.New(machines.CodeNotFound, "there is no such source")
	}
	return fmt.Errorf("the outbox: %w", err)
}
