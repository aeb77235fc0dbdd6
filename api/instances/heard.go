package instances

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// heardWithin is how long the owner of a service may take to answer.
const heardWithin = 2 * time.Second

// HeardInstances says when instances of a service sent their last heartbeat.
type HeardInstances struct {
	Service   string          `json:"service"`
	Namespace string          `json:"namespace"`
	Instances []HeardInstance `json:"instances" nullable:"false" doc:"Those of the page that were heard since a node looks after them, in the order of their ids"`
	Next      string          `json:"nextCursor,omitempty" doc:"There are more instances behind this page"`
}

// HeardInstance says when an instance was heard.
type HeardInstance struct {
	InstanceID string `json:"instanceId"`
	AgeMillis  int64  `json:"ageMillis" doc:"So long ago it sent its last heartbeat"`
}

func (s *Service) heardRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.heard, Op: huma.Operation{
		OperationID: "heartbeats", Method: http.MethodGet, Path: "/v1/services/{service}/heartbeats", Tags: []string{"discovery"}, Summary: "When instances of a service sent their last heartbeat",
		Description: "Heartbeats are stored nowhere: the node that looks after the service is asked, and knows those of instances with a ttl check that it has heard itself. A page is of so many instances of the service, heard or not.",
		Errors:      []int{400, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam(), rest.LimitParam(), rest.QueryParam("cursor", "nextCursor of the page before", rest.Text(63))},
		Responses: map[string]*huma.Response{"200": {Description: "The instances that were heard", Content: r.BodyOf(reflect.TypeFor[HeardInstances]())}},
	}}
}

func (s *Service) heard(q *rest.Request) error {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return p
	}
	service := q.PathValue("service")
	if streams.CheckLabel(service) != nil {
		return problem.Invalid("path.service", problem.LabelRule)
	}
	answer := HeardInstances{Service: service, Namespace: ns, Instances: []HeardInstance{}}
	m := s.instances()
	of := index.Query{Namespace: ns, Parent: service, States: living(m), Limit: q.PageSize()}
	if c := q.Query.Get("cursor"); c != "" {
		if streams.CheckLabel(c) != nil {
			return problem.Invalid("query.cursor", "must be the nextCursor of a page")
		}
		of.After = ns + "." + service + "." + c
	}
	if err := s.store.Indexed(m.Name); err != nil {
		return err
	}
	page := s.store.Index(m.Name).List(of)
	ids := make([]string, len(page.Items))
	for i, it := range page.Items {
		ids[i] = it.Key[strings.LastIndexByte(it.Key, '.')+1:]
	}
	heard, err := s.askOwner(q, ns+"."+service, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if age, ok := heard[id]; ok {
			answer.Instances = append(answer.Instances, HeardInstance{id, age})
		}
	}
	if page.Next != "" {
		answer.Next = ids[len(ids)-1]
	}
	return q.JSON(http.StatusOK, answer)
}

// living are the states of a machine that have not ended.
func living(m *machines.Machine) (names []string) {
	for _, st := range m.States {
		if !st.Terminal {
			names = append(names, st.Name)
		}
	}
	return names
}

// askOwner asks the node that looks after a service for milliseconds since instances were heard, by id (package consumers/prober/heartbeat). All nodes listen, and the owner answers.
func (s *Service) askOwner(q *rest.Request, service string, ids []string) (heard map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(q.Context(), heardWithin)
	defer cancel()
	m, err := s.rest.Nc.RequestWithContext(ctx, s.store.Names.Heard(), []byte(service+" "+strings.Join(ids, " ")))
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return nil, problem.Unavailable("no node looks after this service now; ask again in some seconds")
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &heard)
	}
	return heard, err
}
