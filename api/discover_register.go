package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Registered is the answer to a registration.
type Registered struct {
	InstanceID string `json:"instanceId"`
	Service    string `json:"service"`
	Namespace  string `json:"namespace"`
	Outcome    string `json:"outcome" enum:"applied,unchanged,ignored,stored" doc:"stored: the engine has not answered yet; the rest of the answer is missing then"`
	State      string `json:"state,omitempty"`
	Revision   uint64 `json:"revision,omitempty" doc:"Use it as minRevision of discover"`
	Generation uint64 `json:"generation,omitempty" doc:"Of the registration: heartbeats and the end of an older one are refused"`
	CommandID  string `json:"commandId" doc:"The Idempotency-Key, or the id that was made up"`
}

// Deregistered is the answer to the end of one.
type Deregistered struct {
	Message string `json:"message"`
	Registered
}

func (s *Server) registrationRoutes() []*route {
	tags := []string{"discovery"}
	key := func() *huma.Param {
		return header("Idempotency-Key", "Makes the request repeatable: it is applied at most once under a key of this instance", "7f1c2a")
	}
	why := func() *huma.Param { return header("Instar-Reason", "Why; shown in the timeline", "planned upgrade") }
	schema := s.registry().Schema(reflect.TypeFor[discovery.Registration](), true, "")
	register := &route{role: Operate, serve: func(q *request) error { return q.registerInstance(schema) }, op: huma.Operation{
		OperationID: "register", Method: http.MethodPost, Path: "/v1/register", Tags: tags, Summary: "Register an instance of a service",
		Description: "202 with the id of the instance. Registered again it is the next generation of the same instance. It is found as soon as its checks say so; without a check, at once.",
		Errors:      []int{400, 404, 409, 413, 415, 422, 503}, Parameters: []*huma.Param{namespaceParam(), key(), why()},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
		Responses:   map[string]*huma.Response{"202": {Description: "It is registered, or will be", Content: s.bodyOf(reflect.TypeFor[Registered]()), Headers: map[string]*huma.Param{headerReplayed: replayedHeader()}}},
	}}
	deregister := &route{role: Operate, serve: (*request).deregisterInstance, op: huma.Operation{
		OperationID: "deregister", Method: http.MethodPost, Path: "/v1/deregister/{instanceId}", Tags: tags, Summary: "End an instance",
		Description: "Gracefully: it is not found any more and gets the time of its policy to end what it does. With force at once. One that has ended already is ended.",
		Errors:      []int{404, 409, 422, 503},
		Parameters: []*huma.Param{
			namespaceParam(), query("force", "At once", boolean()), query("service", "Its service; needed only where several have an instance of this id", text(63)),
			query("generation", "Refuse unless the instance is of this generation", number(1)), key(), why(),
		},
		Responses: map[string]*huma.Response{"202": {Description: "It ends", Content: s.bodyOf(reflect.TypeFor[Deregistered]()), Headers: map[string]*huma.Param{headerReplayed: replayedHeader()}}},
	}}
	return append([]*route{register, deregister}, s.beatRoutes()...)
}

// registerInstance takes a registration from the door to its answer.
func (q *request) registerInstance(schema *huma.Schema) error {
	raw, p := q.read()
	if p != nil {
		return p
	}
	if p := jsonType(q.r.Header.Get("Content-Type")); p != nil {
		return p
	}
	reg, rest, err := q.registration(schema, raw)
	if err != nil {
		return err
	}
	asked := q.query.Get("namespace")
	if reg.Namespace != "" && asked != "" && reg.Namespace != asked {
		return invalid("body.namespace", "is not that of ?namespace=")
	}
	ns, p := q.who.in(orDefault(reg.Namespace, asked), false)
	if p != nil {
		return p
	}
	id := reg.InstanceID
	if id == "" {
		id = discovery.InstanceID(ns, reg.ServiceName, reg.NodeAddress)
	}
	out, err := q.tellInstance(ns, reg.ServiceName, id, discovery.CommandRegister, rest)
	if err != nil {
		return err
	}
	return q.json(http.StatusAccepted, out)
}

// registrant is what names the instance of a registration.
type registrant struct{ ServiceName, NodeAddress, InstanceID, Namespace string }

// registration checks a registration and takes it apart: what names the instance, and the rest, which is the command.
func (s *Server) registration(schema *huma.Schema, raw []byte) (registrant, []byte, error) {
	if reg, rest, ok := plainRegistration(s.shape(schema), raw); ok {
		return reg, rest, nil
	}
	if depth(raw) > maxDepth {
		return registrant{}, nil, problem(codeMalformed, "the body is nested too deeply")
	}
	var body map[string]json.RawMessage
	if json.Unmarshal(raw, &body) != nil {
		return registrant{}, nil, problem(codeMalformed, "the body is not a JSON object")
	}
	for _, name := range []string{"serviceName", "nodeAddress"} {
		if v := string(body[name]); v == "" || v == "null" || v == `""` {
			return registrant{}, nil, problem(codeIncomplete, "serviceName and nodeAddress are needed; "+name+" is missing")
		}
	}
	if p := s.checkBody(schema, raw); p != nil {
		return registrant{}, nil, p
	}
	var reg discovery.Registration
	if err := json.Unmarshal(raw, &reg); err != nil {
		return registrant{}, nil, invalid("body", "has a value of another type")
	}
	for _, name := range naming {
		delete(body, name)
	}
	rest, err := json.Marshal(body)
	return registrant{reg.ServiceName, reg.NodeAddress, reg.InstanceID, reg.Namespace}, rest, err
}

// naming are the members that name an instance and are not of its registration.
var naming = []string{"serviceName", "instanceId", "namespace"}

// plainRegistration is registration for what most of them look like, with the same result, in a tenth of the time.
func plainRegistration(sh *shape, raw []byte) (reg registrant, rest []byte, ok bool) {
	parts, ok := sh.parts(raw)
	if !ok {
		return reg, nil, false
	}
	slices.SortFunc(parts, func(a, b part) int { return bytes.Compare(a.name, b.name) })
	rest = append(make([]byte, 0, len(raw)), '{')
	for _, p := range parts {
		switch name := string(p.name); name {
		case "serviceName":
			reg.ServiceName = string(p.value[1 : len(p.value)-1])
		case "instanceId":
			reg.InstanceID = string(p.value[1 : len(p.value)-1])
		case "namespace":
			reg.Namespace = string(p.value[1 : len(p.value)-1])
		case "nodeAddress":
			reg.NodeAddress = string(p.value[1 : len(p.value)-1])
		}
		if slices.Contains(naming, string(p.name)) {
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(append(rest, '"'), p.name...), '"', ':'), p.value...)
	}
	return reg, append(rest, '}'), reg.ServiceName != "" && reg.NodeAddress != ""
}

// tellInstance sends one command to an instance. An answer that does not come in time is no error: the command is
// stored.
func (q *request) tellInstance(ns, service, id, name string, body []byte) (Registered, error) {
	start := time.Now()
	out := Registered{InstanceID: id, Service: service, Namespace: ns}
	cmd := streams.Command{Machine: discovery.Machine, Key: machines.Key(ns, service, id), Name: name, Actor: q.who.name, Trace: traceparent(q.ctx()), Body: body}
	var p *Problem
	if cmd.ID, p = idempotencyKey(q.r); p != nil {
		return out, p
	}
	if cmd.Reason, p = reason(q.r); p != nil {
		return out, p
	}
	if p := q.admit(cmd); p != nil {
		return out, p
	}
	if cmd.ID == "" {
		cmd.ID = streams.MadeUpID(rand.Text())
	}
	out.CommandID = cmd.ID
	observe := func(outcome string) {
		q.metrics.commands.WithLabelValues(cmd.Machine, name, outcome).Observe(time.Since(start).Seconds())
	}
	a, err := q.answerOf(q.inTurn(cmd), 0)
	var accepted *streams.AcceptedError
	switch {
	case errors.As(err, &accepted):
		observe("unanswered")
		if accepted.Seen {
			return out, inProgress(cmd.ID)
		}
		out.Outcome = "stored"
		return out, nil
	case err != nil:
		return out, storing(err)
	}
	observe(a.Outcome)
	if p := denied(q.instances(), a); p != nil {
		return out, p
	}
	out.Outcome, out.State, out.Revision, out.Generation = a.Outcome, a.State, a.Revision, a.Generation
	return out, nil
}

func (q *request) deregisterInstance() error {
	ns, p := q.who.in(q.query.Get("namespace"), false)
	if p != nil {
		return p
	}
	id := q.path("instanceId")
	service, err := q.serviceOf(ns, id)
	if err != nil {
		return err
	}
	name, message := discovery.CommandShutdown, "it drains"
	if q.flag("force") {
		name, message = discovery.CommandForce, "it is deregistered"
	}
	var body struct {
		Generation uint64 `json:"generation,omitempty"`
	}
	body.Generation = q.number("generation")
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	out, err := q.tellInstance(ns, service, id, name, raw)
	if err != nil {
		return err
	}
	switch out.State {
	case "":
		message = "it will be told to end"
	case discovery.Deregistered:
		message = "it is deregistered"
	case discovery.Draining:
		message = "it drains"
	}
	return q.json(http.StatusAccepted, Deregistered{message, out})
}

// serviceOf finds the service of an instance. One that was registered a moment ago may not be in the catalog yet: the
// bucket says how far that has to come before nothing is said to be not there.
func (q *request) serviceOf(ns, id string) (string, error) {
	asked := q.query.Get("service")
	if asked != "" && streams.CheckLabel(asked) != nil {
		return "", invalid("query.service", labelRule)
	}
	names := q.o.Discovery.Locate(ns, id)
	if len(names) == 0 || asked != "" && !slices.Contains(names, asked) {
		if err := q.catchUp(); err != nil {
			return "", err
		}
		names = q.o.Discovery.Locate(ns, id)
	}
	switch {
	case asked != "" && slices.Contains(names, asked):
		return asked, nil
	case len(names) == 0 || asked != "":
		return "", problem(machines.CodeNotFound, "there is no such instance")
	case len(names) > 1:
		if living := q.living(ns, id, names); len(living) == 1 {
			return living[0], nil
		}
		slices.Sort(names)
		return "", invalid("query.service", "is needed: "+strings.Join(names, ", ")+" have an instance of this id")
	}
	return names[0], nil
}

// living are the services whose instance of that id has not ended. The index forgets those that have ended long ago.
func (q *request) living(ns, id string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(service string) bool {
		it, ok := q.o.Indexes[discovery.Machine].Get(machines.Key(ns, service, id))
		return !ok || it.State == discovery.Deregistered
	})
}

// catchUp waits until the catalog has everything that is in the bucket now.
func (q *request) catchUp() error {
	ctx, cancel := context.WithTimeout(q.ctx(), minRevisionWait)
	defer cancel()
	st, err := streams.Led(ctx, q.o.JS, "KV_"+q.o.Names.Bucket(q.instances().Plural))
	if err != nil {
		return err
	}
	if err := q.o.Discovery.Wait(ctx, st.CachedInfo().State.LastSeq); err != nil {
		return unavailable("the instances are still being read")
	}
	return nil
}
