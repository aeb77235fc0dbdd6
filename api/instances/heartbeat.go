package instances

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
)

// heartbeatRoutes are what instances and watchers say all the time: it goes over core NATS to whoever owns the service, and
// is never stored.
func (s *Service) heartbeatRoutes(r *rest.Router) []*rest.Route {
	tags := []string{"discovery"}
	beats := r.Registry().Schema(reflect.TypeFor[discovery.Heartbeat](), true, "")
	acks := r.Registry().Schema(reflect.TypeFor[discovery.Acknowledgement](), true, "")
	taken := map[string]*huma.Response{"204": {Description: "The message was forwarded"}}
	beat := &rest.Route{Role: auth.Operate, Serve: func(q *rest.Request) error { return s.heartbeat(q, beats) }, Op: huma.Operation{
		OperationID: "heartbeat", Method: http.MethodPut, Path: "/v1/services/{service}/instances/{instanceId}/heartbeat", Tags: tags, Summary: "Send a heartbeat of an instance",
		Description: "For instances with a ttl check. Heartbeats are forwarded, not stored: only a change becomes a transition. 409 means that the instance was registered again by another process, 410 that it is deregistered or its generation unknown: register again.",
		Errors:      []int{400, 404, 409, 410, 413, 415, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam()}, Responses: taken,
		RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": {Schema: beats}}},
	}}
	// Whoever may look may say what it has seen, but for nobody else: its watchers are told apart by the token.
	ack := &rest.Route{Role: auth.Read, Serve: func(q *rest.Request) error { return s.acknowledge(q, acks) }, Op: huma.Operation{
		OperationID: "acknowledge", Method: http.MethodPost, Path: "/v1/services/{service}/watchers/{watcher}", Tags: tags, Summary: "Acknowledge a change as a watcher",
		Description: "Lets a drain end as soon as all recent watchers have applied it, instead of after its full time. A watcher belongs to the token that acknowledges for it; tokens cannot acknowledge for each other's watchers.",
		Errors:      []int{400, 404, 413, 415, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam()}, Responses: taken,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: acks}}},
	}}
	return []*rest.Route{beat, ack, s.heardRoute(r)}
}

// readReport reads the namespace and the body of what is passed on. A body that may be left out leaves into as it is.
func (s *Service) readReport(q *rest.Request, schema *huma.Schema, into any) (ns string, err error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return "", p
	}
	raw, p := q.Body(schema)
	if p != nil {
		return "", p
	}
	if len(raw) > 0 && json.Unmarshal(raw, into) != nil {
		return "", problem.Invalid("body", "has a value of another type")
	}
	return ns, nil
}

func (s *Service) heartbeat(q *rest.Request, schema *huma.Schema) error {
	var b discovery.Heartbeat
	ns, err := s.readReport(q, schema, &b)
	if err != nil {
		return err
	}
	if b.Status == "failing" { // what owners listen to has one word for it
		b.Status = "critical"
	}
	service, id := q.PathValue("service"), q.PathValue("instanceId")
	state, generation, err := s.standing(q, machines.Key(ns, service, id), b.Generation)
	switch {
	case err != nil:
		return err
	case state == discovery.Deregistered:
		p := problem.New(problem.CodeGone, "the instance is deregistered; register again to go on")
		p.CurrentState = state
		return p
	case b.Generation > generation: // a backup was restored, or nobody has it yet
		p := problem.New(problem.CodeGone, fmt.Sprintf("generation %d is not registered, the instance is of generation %d; register again to go on", b.Generation, generation))
		p.CurrentState = state
		return p
	case b.Generation != 0 && b.Generation < generation:
		p := problem.New(machines.CodeGuard, fmt.Sprintf("the heartbeat is of generation %d, and the instance of generation %d", b.Generation, generation))
		p.CurrentState = state
		return p
	}
	return s.pass204(q, s.store.Names.Heartbeat(ns, service, id), b)
}

// standing is how an instance stands. The index may not have one yet that was registered a moment ago, or still the life
// before that of the one who asks.
func (s *Service) standing(q *rest.Request, key string, asks uint64) (state string, generation uint64, err error) {
	if it, ok := s.store.Index(discovery.Machine).Get(key); ok && it.Problem == "" && asks <= it.Generation {
		return it.State, it.Generation, nil
	}
	e, err := s.store.Read(q, s.instances(), key)
	if errors.Is(err, kv.ErrNotFound) {
		return "", 0, entities.NotFound(s.instances())
	}
	if err != nil {
		return "", 0, err
	}
	meta, err := index.DescribeJSON(e.Value)
	if err != nil {
		return "", 0, problem.New(machines.CodeParked, "the stored value of this instance cannot be read by this version of the program")
	}
	return meta.State, meta.Generation, nil
}

func (s *Service) acknowledge(q *rest.Request, schema *huma.Schema) error {
	var a discovery.Acknowledgement
	ns, err := s.readReport(q, schema, &a)
	if err != nil {
		return err
	}
	if watcher := q.PathValue("watcher"); a.Watcher != "" && a.Watcher != watcher {
		return problem.Invalid("body.watcher", "is not that of the path")
	} else {
		a.Watcher = watcherName(q.Who.Name, watcher)
	}
	return s.pass204(q, s.store.Names.Acknowledge(ns, q.PathValue("service")), a)
}

// watcherName is the name of a watcher among those of all tokens, and of Envoys (xds:…) and clients of NATS.
func watcherName(token, name string) string { return "http:" + url.PathEscape(token) + "/" + name }

// pass204 publishes over core NATS.
func (s *Service) pass204(q *rest.Request, subject string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := s.rest.Nc.Publish(subject, body); err != nil {
		return err
	}
	q.W.WriteHeader(http.StatusNoContent)
	return nil
}
