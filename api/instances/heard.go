package instances

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
)

// heardWithin is how long the owner of a service may take to answer.
const heardWithin = 2 * time.Second

// HeardInstances says when instances of a service sent their last heartbeat.
type HeardInstances struct {
	Service   string          `json:"service"`
	Namespace string          `json:"namespace"`
	Instances []HeardInstance `json:"instances" doc:"Those that were heard since a node looks after them, in the order of their ids; any 10,000 of more"`
}

// HeardInstance says when an instance was heard.
type HeardInstance struct {
	InstanceID string `json:"instanceId"`
	AgeMillis  int64  `json:"ageMillis" doc:"So long ago it sent its last heartbeat"`
}

func (s *Service) heardRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.heard, Op: huma.Operation{
		OperationID: "heartbeats", Method: http.MethodGet, Path: "/v1/services/{service}/heartbeats", Tags: []string{"discovery"}, Summary: "When instances of a service sent their last heartbeat",
		Description: "Heartbeats are stored nowhere: the node that looks after the service is asked, and knows those of instances with a ttl check that it has heard itself.",
		Errors:      []int{400, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam()},
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
	ctx, cancel := context.WithTimeout(q.Context(), heardWithin)
	defer cancel()
	m, err := s.rest.Nc.RequestWithContext(ctx, s.store.Names.Heard(), []byte(ns+"."+service)) // all nodes listen, and the owner answers
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return problem.Unavailable("no node looks after this service now; ask again in some seconds")
	}
	if err != nil {
		return err
	}
	var heard map[string]int64 // as package consumers/prober/heartbeat writes it
	if err := json.Unmarshal(m.Data, &heard); err != nil {
		return err
	}
	answer := HeardInstances{Service: service, Namespace: ns, Instances: make([]HeardInstance, 0, len(heard))}
	for id, age := range heard {
		answer.Instances = append(answer.Instances, HeardInstance{id, age})
	}
	slices.SortFunc(answer.Instances, func(a, b HeardInstance) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return q.JSON(http.StatusOK, answer)
}
