package instances

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/documents"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/internal/strictjson"
	"github.com/bcc94042/instar/streams"
)

// DiscoverRequest is the body of a request to <prefix>.api.discover.<namespace>.<service>; none asks for all that is
// found.
type DiscoverRequest struct {
	Draining    bool              `json:"draining,omitempty"`
	Zone        string            `json:"zone,omitempty"`
	Version     string            `json:"version,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Prefer      string            `json:"prefer,omitempty"`
	Choose      int               `json:"choose,omitempty"`
	Key         string            `json:"key,omitempty"`
	MinRevision uint64            `json:"minRevision,omitempty"`
}

func (req DiscoverRequest) query(namespace, service string) (discovery.Query, *problem.Problem) {
	switch {
	case len(req.Tags) > maxFilters || len(req.Meta) > maxFilters:
		return discovery.Query{}, problem.Invalid("body", fmt.Sprintf("tags and meta may have up to %d members", maxFilters))
	case req.Choose < 0 || req.Choose > 1<<20:
		return discovery.Query{}, problem.Invalid("body.choose", "must be up to 1048576")
	case req.Key != "" && req.Choose == 0:
		return discovery.Query{}, problem.Invalid("body.key", "needs choose")
	}
	return discovery.Query{
		Namespace: namespace, Service: service, Draining: req.Draining, Zone: req.Zone, Version: req.Version, Tags: req.Tags, Meta: req.Meta,
		Prefer: req.Prefer, Choose: req.Choose, Key: req.Key,
	}, nil
}

// Endpoint is where it is asked over NATS.
func (s *Service) Endpoint() rpc.Endpoint {
	return rpc.Endpoint{Name: "discover", Tail: "*.*", Request: "DiscoverRequest", Response: "Discovered", Handle: s.rpc.Beside(s.microDiscover)}
}

// microDiscover answers as GET /v1/discover/{service} does.
func (s *Service) microDiscover(r micro.Request) {
	namespace, service, whole := strings.Cut(strings.TrimPrefix(r.Subject(), s.store.Names.API("discover")+"."), ".")
	if !whole || streams.CheckLabel(namespace) != nil || streams.CheckLabel(service) != nil {
		s.rpc.Deny(r, problem.Invalid("subject", "must end in <namespace>.<service>; each "+problem.LabelRule))
		return
	}
	var req DiscoverRequest
	if len(r.Data()) > 0 {
		if err := strictjson.Unmarshal(r.Data(), &req); err != nil {
			s.rpc.Deny(r, problem.New(problem.CodeMalformed, "the body is not a query in JSON"))
			return
		}
	}
	dq, p := req.query(namespace, service)
	if p != nil {
		s.rpc.Deny(r, p)
		return
	}
	select {
	case <-s.catalog.Ready():
	default:
		s.rpc.Deny(r, problem.Unavailable("the instances are still being read"))
		return
	}
	answer := func(r micro.Request) {
		found := s.catalog.Find(dq)
		body := append(head(dq, found, s.catalog.Stale()), discovery.List(found.Endpoints)...)
		s.rpc.RespondRaw(r, append(body, '}'))
	}
	if s.has(dq, req.MinRevision) {
		answer(r)
		return
	}
	s.rpc.Later(r, func() *problem.Problem {
		ctx, cancel := context.WithTimeout(s.rest.Closing(), rest.MinRevisionWait)
		defer cancel()
		return s.await(ctx, dq, req.MinRevision)
	}, answer)
}

// Describe documents what goes over NATS about instances besides their commands and events.
func (s *Service) Describe(a *documents.Async) {
	names := s.store.Names
	of := func(more ...string) documents.Object {
		params := documents.Object{"namespace": documents.Object{"description": "A DNS label", "default": auth.DefaultNamespace}, "service": documents.Object{"description": "A DNS label: the name of the service"}}
		for _, name := range more {
			params[name] = documents.Object{"description": "A DNS label"}
		}
		return params
	}
	a.Channel("api.discover", "receive", "Find the instances of a service; the answer is that of GET /v1/discover/{service}", names.API("discover", "{namespace}", "{service}"), of(),
		documents.Object{"name": "api.discover", "payload": a.Schema(reflect.TypeFor[DiscoverRequest]())}, documents.Object{"x-nats-micro-service": rpc.ServiceName, "x-nats-queue": rpc.QueueGroup})
	a.Operations["api.discover"].(documents.Object)["reply"] = documents.Object{"address": documents.Object{"location": "$message.header#/reply"}}
	a.Messages["discovered"] = documents.Object{"name": "discovered", "title": "What is found", "payload": a.Schema(reflect.TypeFor[Discovered]())}
	a.Channel("heartbeat", "receive", "An instance says that it is alive; never stored", names.Heartbeat("{namespace}", "{service}", "{instanceId}"), of("instanceId"),
		documents.Object{"name": "heartbeat", "payload": a.Schema(reflect.TypeFor[discovery.Heartbeat]())}, documents.Object{"x-nats-core": true})
	a.Channel("acknowledgement", "receive", "A watcher says up to which index it acts on what it was told; never stored", names.Acknowledge("{namespace}", "{service}"), of(),
		documents.Object{"name": "acknowledgement", "payload": a.Schema(reflect.TypeFor[discovery.Acknowledgement]())}, documents.Object{"x-nats-core": true})
	m := s.instances()
	bucket := names.Bucket(m.Plural)
	a.Channel("live", "send", "The newest value of every instance as it is stored, without a consumer", names.Live(bucket, "{namespace}.{service}.{instanceId}"), of("instanceId"),
		documents.Object{"name": "live", "payload": a.Entity(m)}, documents.Object{"x-nats-core": true, "x-nats-republished-from": streams.BucketStream(bucket)})
}
