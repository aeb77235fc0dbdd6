package api

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/machines"
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

func (req DiscoverRequest) query(namespace, service string) (discovery.Query, *Problem) {
	switch {
	case len(req.Tags) > maxFilters || len(req.Meta) > maxFilters:
		return discovery.Query{}, invalid("body", fmt.Sprintf("tags and meta may have up to %d members", maxFilters))
	case req.Choose < 0 || req.Choose > 1<<20:
		return discovery.Query{}, invalid("body.choose", "must be up to 1048576")
	case req.Key != "" && req.Choose == 0:
		return discovery.Query{}, invalid("body.key", "needs choose")
	}
	return discovery.Query{
		Namespace: namespace, Service: service, Draining: req.Draining, Zone: req.Zone, Version: req.Version, Tags: req.Tags, Meta: req.Meta,
		Prefer: req.Prefer, Choose: req.Choose, Key: req.Key,
	}, nil
}

// microDiscover answers as GET /v1/discover/{service} does.
func (s *Server) microDiscover(r micro.Request) {
	namespace, service, whole := strings.Cut(strings.TrimPrefix(r.Subject(), s.o.Names.API("discover")+"."), ".")
	if !whole || streams.CheckLabel(namespace) != nil || streams.CheckLabel(service) != nil {
		s.deny(r, invalid("subject", "must end in <namespace>.<service>; each "+labelRule))
		return
	}
	var req DiscoverRequest
	if len(r.Data()) > 0 {
		if err := machines.Unmarshal(r.Data(), &req); err != nil {
			s.deny(r, problem(codeMalformed, "the body is not a query in JSON"))
			return
		}
	}
	dq, p := req.query(namespace, service)
	if p != nil {
		s.deny(r, p)
		return
	}
	select {
	case <-s.o.Discovery.Ready():
	default:
		s.deny(r, unavailable("the instances are still being read"))
		return
	}
	answer := func(r micro.Request) {
		found := s.o.Discovery.Find(dq)
		body := append(head(dq, found, s.o.Discovery.Stale()), discovery.List(found.Endpoints)...)
		s.say(r, append(body, '}'))
	}
	if s.has(dq, req.MinRevision) {
		answer(r)
		return
	}
	s.later(r, func() *Problem {
		ctx, cancel := context.WithTimeout(s.closing, minRevisionWait)
		defer cancel()
		return s.await(ctx, dq, req.MinRevision)
	}, answer)
}

// discovery documents what goes over NATS about instances besides their commands and events.
func (a *async) discovery() {
	if a.s.o.Discovery == nil {
		return
	}
	names := a.s.o.Names
	of := func(more ...string) doc {
		params := doc{"namespace": doc{"description": "A DNS label", "default": defaultNamespace}, "service": doc{"description": "A DNS label: the name of the service"}}
		for _, name := range more {
			params[name] = doc{"description": "A DNS label"}
		}
		return params
	}
	a.channel("api.discover", "receive", "Find the instances of a service; the answer is that of GET /v1/discover/{service}", names.API("discover", "{namespace}", "{service}"), of(),
		doc{"name": "api.discover", "payload": a.schema(reflect.TypeFor[DiscoverRequest]())}, doc{"x-nats-micro-service": serviceName, "x-nats-queue": queueGroup})
	a.operations["api.discover"].(doc)["reply"] = doc{"address": doc{"location": "$message.header#/reply"}}
	a.messages["discovered"] = doc{"name": "discovered", "title": "What is found", "payload": a.schema(reflect.TypeFor[Discovered]())}
	a.channel("heartbeat", "receive", "An instance says that it is alive; never stored", names.Heartbeat("{namespace}", "{service}", "{instanceId}"), of("instanceId"),
		doc{"name": "heartbeat", "payload": a.schema(reflect.TypeFor[discovery.Heartbeat]())}, doc{"x-nats-core": true})
	a.channel("acknowledgement", "receive", "A watcher says up to which index it acts on what it was told; never stored", names.Acknowledge("{namespace}", "{service}"), of(),
		doc{"name": "acknowledgement", "payload": a.schema(reflect.TypeFor[discovery.Acknowledgement]())}, doc{"x-nats-core": true})
	m := a.s.instances()
	bucket := names.Bucket(m.Plural)
	a.channel("live", "send", "The newest value of every instance as it is stored, without a consumer", names.Live(bucket, "{namespace}.{service}.{instanceId}"), of("instanceId"),
		doc{"name": "live", "payload": a.s.entitySchema(m)}, doc{"x-nats-core": true, "x-nats-republished-from": "KV_" + bucket})
}
