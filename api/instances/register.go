package instances

// POST /v1/register and POST /v1/deregister/{instanceId}. A registration is checked and taken apart into what names the
// instance and the body of the command (registration); a deregistration finds the service of the id in the catalog (serviceOf).
// Both become a command to the instance machine (sendCommand, through commands.Sender), whose outcome is answered with 202.

import (
	"bytes"
	"cmp"
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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/schema"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Registered is the answer to a registration.
type Registered struct {
	InstanceID string `json:"instanceId"`
	Service    string `json:"service"`
	Namespace  string `json:"namespace"`
	Outcome    string `json:"outcome" enum:"applied,unchanged,ignored,stored" doc:"stored: the engine has not answered yet; the rest of the answer is missing then"`
	State      string `json:"state,omitempty"`
	Revision   uint64 `json:"revision,omitempty" doc:"Use it as minRevision of discover"`
	Generation uint64 `json:"generation,omitempty" doc:"Generation of the registration: heartbeats and deregistrations of older generations are refused"`
	CommandID  string `json:"commandId" doc:"The Idempotency-Key, or a generated id"`
}

// Deregistered is the answer to a deregistration.
type Deregistered struct {
	Message string `json:"message"`
	Registered
}

func (s *Service) registrationRoutes(r *rest.Router) []*rest.Route {
	tags := []string{"discovery"}
	key := func() *huma.Param {
		return rest.HeaderParam("Idempotency-Key", "Makes the request repeatable: it is applied at most once under a key of this instance", "7f1c2a")
	}
	why := func() *huma.Param {
		return rest.HeaderParam("Instar-Reason", "Why; shown in the timeline", "planned upgrade")
	}
	schema := r.Registry().Schema(reflect.TypeFor[discovery.Registration](), true, "")
	register := &rest.Route{Role: auth.Operate, Serve: func(q *rest.Request) error { return s.registerInstance(q, schema) }, Op: huma.Operation{
		OperationID: "register", Method: http.MethodPost, Path: "/v1/register", Tags: tags, Summary: "Register an instance of a service",
		Description: "The answer is 202 with the id of the instance. Registering it again makes the next generation of the same instance. It is discovered once its checks pass; without a check, at once.",
		Errors:      []int{400, 404, 409, 413, 415, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam(), key(), why()},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
		Responses:   map[string]*huma.Response{"202": {Description: "The registration is stored", Content: r.BodyOf(reflect.TypeFor[Registered]()), Headers: map[string]*huma.Param{rest.HeaderReplayed: rest.ReplayedHeader()}}},
	}}
	deregister := &rest.Route{Role: auth.Operate, Serve: s.deregisterInstance, Op: huma.Operation{
		OperationID: "deregister", Method: http.MethodPost, Path: "/v1/deregister/{instanceId}", Tags: tags, Summary: "End an instance",
		Description: "The instance is no longer discovered, and has the drain time of its policy to finish. With force it ends at once. Deregistering an ended instance succeeds.",
		Errors:      []int{404, 409, 422, 503},
		Parameters: []*huma.Param{
			rest.NamespaceParam(), rest.QueryParam("force", "At once", rest.Boolean()), rest.QueryParam("service", "Its service; needed only where several have an instance of this id", rest.Text(63)),
			rest.QueryParam("generation", "Refuse unless the instance is of this generation", rest.Number(1)), key(), why(),
		},
		Responses: map[string]*huma.Response{"202": {Description: "The deregistration is stored", Content: r.BodyOf(reflect.TypeFor[Deregistered]()), Headers: map[string]*huma.Param{rest.HeaderReplayed: rest.ReplayedHeader()}}},
	}}
	return append([]*rest.Route{register, deregister}, s.heartbeatRoutes(r)...)
}

// registerInstance takes a registration from its request to its answer.
func (s *Service) registerInstance(q *rest.Request, schema *huma.Schema) error {
	raw, p := q.Read()
	if p != nil {
		return p
	}
	if p := rest.CheckType(q.R.Header.Get("Content-Type")); p != nil {
		return p
	}
	reg, rest, err := s.registration(q.Router(), schema, raw)
	if err != nil {
		return err
	}
	asked := q.Query.Get("namespace")
	if reg.Namespace != "" && asked != "" && reg.Namespace != asked {
		return problem.Invalid("body.namespace", "is not that of ?namespace=")
	}
	ns, p := q.Who.Resolve(cmp.Or(reg.Namespace, asked), false)
	if p != nil {
		return p
	}
	id := reg.InstanceID
	if id == "" {
		id = discovery.InstanceID(ns, reg.ServiceName, reg.NodeAddress)
	}
	out, err := s.sendCommand(q, ns, reg.ServiceName, id, discovery.CommandRegister, rest)
	if err != nil {
		return err
	}
	return q.JSON(http.StatusAccepted, out)
}

// registrant is what names the instance of a registration.
type registrant struct{ ServiceName, NodeAddress, InstanceID, Namespace string }

// registration checks a registration and takes it apart: what names the instance, and the rest, which is the command.
func (s *Service) registration(r *rest.Router, of *huma.Schema, raw []byte) (registrant, []byte, error) {
	if members, ok := r.Schemas.Members(of, raw); ok {
		if reg, rest, ok := plainRegistration(members, len(raw)); ok {
			return reg, rest, nil
		}
	}
	if schema.Depth(raw) > schema.MaxDepth {
		return registrant{}, nil, problem.New(problem.CodeMalformed, "the body is nested too deeply")
	}
	var body map[string]json.RawMessage
	if json.Unmarshal(raw, &body) != nil {
		return registrant{}, nil, problem.New(problem.CodeMalformed, "the body is not a JSON object")
	}
	for _, name := range []string{"serviceName", "nodeAddress"} {
		if v := string(body[name]); v == "" || v == "null" || v == `""` {
			return registrant{}, nil, problem.New(problem.CodeIncomplete, "serviceName and nodeAddress are needed; "+name+" is missing")
		}
	}
	if p := r.CheckBody(of, raw); p != nil {
		return registrant{}, nil, p
	}
	var reg discovery.Registration
	if err := json.Unmarshal(raw, &reg); err != nil {
		return registrant{}, nil, problem.Invalid("body", "has a value of another type")
	}
	for _, name := range naming {
		delete(body, name)
	}
	rest, err := json.Marshal(body)
	return registrant{reg.ServiceName, reg.NodeAddress, reg.InstanceID, reg.Namespace}, rest, err
}

// naming are the members that name an instance and are not of its registration.
var naming = []string{"serviceName", "instanceId", "namespace"}

// plainRegistration is registration for the form that most of them have, with the same result, in a tenth of the time.
func plainRegistration(members []schema.Member, size int) (reg registrant, rest []byte, ok bool) {
	slices.SortFunc(members, func(a, b schema.Member) int { return bytes.Compare(a.Name, b.Name) })
	rest = append(make([]byte, 0, size), '{')
	for _, m := range members {
		switch name := string(m.Name); name {
		case "serviceName":
			reg.ServiceName = string(m.Value[1 : len(m.Value)-1])
		case "instanceId":
			reg.InstanceID = string(m.Value[1 : len(m.Value)-1])
		case "namespace":
			reg.Namespace = string(m.Value[1 : len(m.Value)-1])
		case "nodeAddress":
			reg.NodeAddress = string(m.Value[1 : len(m.Value)-1])
		}
		if slices.Contains(naming, string(m.Name)) {
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(append(rest, '"'), m.Name...), '"', ':'), m.Value...)
	}
	return reg, append(rest, '}'), reg.ServiceName != "" && reg.NodeAddress != ""
}

// sendCommand sends one command to an instance. An answer that does not come in time is no error: the command is
// stored.
func (s *Service) sendCommand(q *rest.Request, ns, service, id, name string, body []byte) (Registered, error) {
	start := time.Now()
	out := Registered{InstanceID: id, Service: service, Namespace: ns}
	cmd := publish.Command{Machine: discovery.Machine, Key: machines.Key(ns, service, id), Name: name, Actor: q.Who.Name, Trace: rest.Traceparent(q.Context()), Body: body}
	var p *problem.Problem
	if cmd.ID, p = rest.IdempotencyKey(q.R); p != nil {
		return out, p
	}
	if cmd.Reason, p = rest.Reason(q.R); p != nil {
		return out, p
	}
	if p := s.sender.Admit(cmd); p != nil {
		return out, p
	}
	if cmd.ID == "" {
		cmd.ID = streams.MadeUpID(rand.Text())
	}
	out.CommandID = cmd.ID
	observe := func(outcome string) {
		s.sender.Observe(cmd.Machine, name, outcome, start)
	}
	sent, err := s.sender.Send(q, cmd, false)
	if err != nil {
		return out, commands.Problem(err)
	}
	a, err := sent.Answer(q, 0)
	var accepted *publish.AcceptedError
	switch {
	case errors.As(err, &accepted):
		observe("unanswered")
		if accepted.Seen {
			return out, commands.InProgress(cmd.ID)
		}
		out.Outcome = "stored"
		return out, nil
	case err != nil:
		return out, commands.Problem(err)
	}
	observe(a.Outcome)
	if p := commands.Denied(s.instances(), a); p != nil {
		return out, p
	}
	out.Outcome, out.State, out.Revision, out.Generation = a.Outcome, a.State, a.Revision, a.Generation
	return out, nil
}

func (s *Service) deregisterInstance(q *rest.Request) error {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	if p != nil {
		return p
	}
	id := q.PathValue("instanceId")
	service, err := s.serviceOf(q, ns, id)
	if err != nil {
		return err
	}
	name, message := discovery.CommandShutdown, "it drains"
	if q.Flag("force") {
		name, message = discovery.CommandForce, "it is deregistered"
	}
	var body struct {
		Generation uint64 `json:"generation,omitempty"`
	}
	body.Generation = q.Number("generation")
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	out, err := s.sendCommand(q, ns, service, id, name, raw)
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
	return q.JSON(http.StatusAccepted, Deregistered{message, out})
}

// serviceOf finds the service of an instance. One that was registered a moment ago may not be in the catalog yet: before it
// is said not to exist, the catalog has to reach the last revision of the bucket.
func (s *Service) serviceOf(q *rest.Request, ns, id string) (string, error) {
	asked := q.Query.Get("service")
	if asked != "" && streams.CheckLabel(asked) != nil {
		return "", problem.Invalid("query.service", problem.LabelRule)
	}
	names := s.catalog.Locate(ns, id)
	if len(names) == 0 || asked != "" && !slices.Contains(names, asked) {
		if err := s.catchUp(q); err != nil {
			return "", err
		}
		names = s.catalog.Locate(ns, id)
	}
	switch {
	case asked != "" && slices.Contains(names, asked):
		return asked, nil
	case len(names) == 0 || asked != "":
		return "", problem.New(machines.CodeNotFound, "there is no such instance")
	case len(names) > 1:
		if living := s.living(q, ns, id, names); len(living) == 1 {
			return living[0], nil
		}
		slices.Sort(names)
		return "", problem.Invalid("query.service", "is needed: "+strings.Join(names, ", ")+" have an instance of this id")
	}
	return names[0], nil
}

// living are the services whose instance of that id has not ended. The index forgets those that have ended long ago.
func (s *Service) living(q *rest.Request, ns, id string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(service string) bool {
		it, ok := s.store.Index(discovery.Machine).Get(machines.Key(ns, service, id))
		return !ok || it.State == discovery.Deregistered
	})
}

// catchUp waits until the catalog has everything that is in the bucket now.
func (s *Service) catchUp(q *rest.Request) error {
	ctx, cancel := context.WithTimeout(q.Context(), rest.MinRevisionWait)
	defer cancel()
	var st jetstream.Stream
	if err := q.InTurn(func() (err error) {
		st, err = streams.Led(ctx, s.store.JS, streams.BucketStream(s.store.Names.Bucket(s.instances().Plural)))
		return err
	}); err != nil {
		return err
	}
	if err := s.catalog.Wait(ctx, st.CachedInfo().State.LastSeq); err != nil {
		return problem.Unavailable("the instances are still being read")
	}
	return nil
}
