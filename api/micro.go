package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// serviceName is what `nats micro ls` shows.
const serviceName = "instar"

// queueGroup shares the requests between processes.
const queueGroup = "instar"

// Micro starts the NATS micro service. Its subjects are guarded by the permissions of NATS: whoever may publish to
// <prefix>.api.cmd.> may send commands that are not for admins only, in every namespace that the permission names.
func (s *Server) Micro(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.micro != nil {
		return errors.New("api: the micro service runs already")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	svc, err := micro.AddService(s.o.NC, micro.Config{
		Name: serviceName, Version: semver(s.o.Version.Version), Description: "Commands and reads of durable state machines", QueueGroup: queueGroup,
		Metadata: map[string]string{"machines": s.machineNames(), "prefix": strings.TrimSuffix(s.o.Names.API(), ".api")},
	})
	if err != nil {
		return fmt.Errorf("api: cannot start the micro service: %w", err)
	}
	type endpoint struct {
		name, tail, request, response string
		handle                        func(micro.Request)
	}
	endpoints := []endpoint{
		{"cmd", ">", "the body of the command", "machines.Answer", s.askedOf(s.microCommand)},
		{"get", ">", "none", "Entity", s.beside(s.microGet)},
		{"list", "*", "ListRequest", "Page", s.beside(s.microList)},
	}
	if s.o.Discovery != nil {
		endpoints = append(endpoints, endpoint{"discover", "*.*", "DiscoverRequest", "Discovered", s.beside(s.microDiscover)})
	}
	for _, e := range endpoints {
		if err = svc.AddEndpoint(e.name, micro.HandlerFunc(e.handle), micro.WithEndpointSubject(s.o.Names.API(e.name, e.tail)), micro.WithEndpointMetadata(map[string]string{
			"request": e.request, "response": e.response, "schema": "/asyncapi.json#/channels/api." + e.name,
		})); err != nil {
			return errors.Join(fmt.Errorf("api: cannot add endpoint %s: %w", e.name, err), svc.Stop())
		}
	}
	s.micro = svc
	return nil
}

// askedOf is a handler of what clients ask, each as often as its rate allows.
func (s *Server) askedOf(handle func(r micro.Request, client string)) func(micro.Request) {
	return s.guarded(func(r micro.Request) {
		client := natsClient(r)
		if p := s.paced(client); p != nil {
			s.deny(r, p)
			return
		}
		handle(r, client)
	})
}

// beside runs reads beside one another, those of each client in turn: micro calls one handler at a time.
func (s *Server) beside(handle func(micro.Request)) func(micro.Request) {
	return s.askedOf(func(r micro.Request, client string) { s.microInTurn(s.limits.questions, r, client, handle) })
}

// later goes on with a request when its wait is over, which keeps none of the workers from others meanwhile.
func (s *Server) later(r micro.Request, wait func() *Problem, then func(micro.Request)) {
	leave, err := s.limits.waits.Take(natsClient(r))
	if err != nil {
		s.deny(r, tooMany(err, time.Second))
		return
	}
	s.aside(r, leave, func(r micro.Request) {
		if p := wait(); p != nil {
			s.deny(r, p)
			return
		}
		then(r)
	})
}

// aside runs a handler beside those that micro calls one at a time. The server waits for it when it is closed.
func (s *Server) aside(r micro.Request, leave func(), handle func(micro.Request)) {
	handle = s.guarded(handle)
	s.asked.Begin()
	go func() {
		defer s.asked.End()
		defer leave()
		handle(r)
	}()
}

// guarded answers for a handler that panicked.
func (s *Server) guarded(handle func(micro.Request)) func(micro.Request) {
	return func(r micro.Request) {
		defer func() {
			if p := recover(); p != nil {
				panics.Caught(s.o.Log, "nats", p, "subject", r.Subject())
				s.deny(r, unexpected())
			}
		}()
		handle(r)
	}
}

func (s *Server) machineNames() string {
	var names []string
	for _, m := range s.o.Machines {
		names = append(names, m.Name)
	}
	return strings.Join(names, ",")
}

// semver is a version as micro demands it; a build without one is 0.0.0.
func semver(v string) string {
	v = strings.TrimPrefix(v, "v")
	numbers, _, _ := strings.Cut(strings.ReplaceAll(v, "+", "-"), "-")
	parts := strings.Split(numbers, ".")
	for _, p := range parts {
		if n, err := strconv.Atoi(p); err != nil || n < 0 || strconv.Itoa(n) != p {
			return "0.0.0"
		}
	}
	if len(parts) != 3 {
		return "0.0.0"
	}
	return numbers
}

// split reads <machine>.<key>[.<last>] behind a verb.
func (s *Server) split(verb, subject string, last bool) (m *machines.Machine, key, tail string, p *Problem) {
	rest := strings.TrimPrefix(subject, s.o.Names.API(verb)+".")
	name, rest, _ := strings.Cut(rest, ".")
	for _, one := range s.o.Machines {
		if one.Name == name {
			m = one
		}
	}
	if m == nil {
		return nil, "", "", problem(machines.CodeNotFound, "there is no such machine")
	}
	if last {
		i := strings.LastIndexByte(rest, '.')
		if i < 0 {
			return nil, "", "", invalid("subject", "lacks a key or a command")
		}
		rest, tail = rest[:i], rest[i+1:]
	}
	_, parent, _, err := streams.SplitKey(rest)
	if err != nil || (parent == "") != (m.Parent == "") {
		return nil, "", "", invalid("subject", "the key must be <namespace>.<id>, with a parent between exactly for machines that have one; each "+labelRule)
	}
	return m, rest, tail, nil
}

// microCommand checks a command, which is sent to the engine when its client's turn comes.
func (s *Server) microCommand(r micro.Request, client string) {
	m, key, name, p := s.split("cmd", r.Subject(), true)
	if p != nil {
		s.deny(r, p)
		return
	}
	if c, ok := m.Input(name); !ok || c.Report || c.Admin {
		s.deny(r, problem(machines.CodeNotFound, "there is no such command here"))
		return
	}
	h := nats.Header(r.Headers())
	cmd := streams.Command{
		Machine: m.Name, Key: key, Name: name, Body: r.Data(), ID: streams.UnscopeID(m.Name, key, streams.Header(h, streams.HeaderID)),
		Actor: orDefault(streams.Header(h, streams.HeaderActor), "nats"), Reason: streams.Header(h, streams.HeaderReason),
		Expect: streams.Header(h, streams.HeaderExpect), Trace: streams.Header(h, streams.HeaderTrace), Wait: streams.WaitOf(h),
	}
	if p := checkHeaders(cmd); p != nil {
		s.deny(r, p)
		return
	}
	if depth(cmd.Body) > maxDepth {
		s.deny(r, problem(codeMalformed, "the body is nested too deeply"))
		return
	}
	if p := s.admit(cmd); p != nil {
		s.deny(r, p)
		return
	}
	s.microAsk(r, client, cmd)
}

func checkHeaders(cmd streams.Command) *Problem {
	for _, h := range []struct {
		name, value string
		most        int
	}{{streams.HeaderID, cmd.ID, maxKey}, {streams.HeaderActor, cmd.Actor, maxKey}, {streams.HeaderReason, cmd.Reason, maxReason}, {streams.HeaderTrace, cmd.Trace, 64}} {
		if len(h.value) > h.most || !printable(h.value) {
			return invalid("header."+h.name, "is too long or has control characters")
		}
	}
	if streams.MadeUp(cmd.ID) {
		return invalid("header."+streams.HeaderID, "must not begin with ~, as the ids of commands without a key do")
	}
	if _, ok := streams.ParseExpected(cmd.Expect); cmd.Expect != "" && !ok {
		return invalid("header."+streams.HeaderExpect, "must be a revision, revisions with commas between them, or *")
	}
	return nil
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func (s *Server) microFailed(r micro.Request, err error) {
	var p *Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, streams.ErrGated):
		p = gated()
	default:
		s.o.Log.Warn("a request over NATS failed", "subject", r.Subject(), "error", err)
		p = unavailable("storage does not answer")
	}
	s.deny(r, p)
}

// deny answers with the status in Nats-Service-Error-Code and the problem as the body.
func (s *Server) deny(r micro.Request, p *Problem) {
	body, err := json.Marshal(p)
	if err == nil {
		h := nats.Header{micro.ErrorHeader: {p.Detail}, micro.ErrorCodeHeader: {strconv.Itoa(p.Status)}}
		if after := p.header.Get("Retry-After"); after != "" {
			h["Retry-After"] = []string{after}
		}
		s.reply(r, &nats.Msg{Header: h, Data: body})
	}
}

// reply publishes an answer itself: what [micro.Request] notes of one is read when the handler has returned, which is before
// those that run beside it have answered. And it goes to inboxes only.
func (s *Server) reply(r micro.Request, m *nats.Msg) {
	if m.Subject = streams.Inbox(r.Reply()); m.Subject == "" {
		return // nobody waits, or not there
	}
	if err := s.o.NC.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		s.o.Log.Debug("cannot answer a request over NATS", "subject", r.Subject(), "error", err)
	}
}

func (s *Server) respond(r micro.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.microFailed(r, err)
		return
	}
	s.say(r, body)
}

// say answers, if NATS passes on what is as large as that: else it says so, because silence looks as if nobody were there.
func (s *Server) say(r micro.Request, body []byte) {
	if most := s.o.NC.MaxPayload(); int64(len(body)) > most {
		s.deny(r, problem(codeAnswer, fmt.Sprintf("the answer has %d bytes, and NATS passes on %d", len(body), most)))
		return
	}
	s.reply(r, &nats.Msg{Data: body})
}

func (s *Server) microGet(r micro.Request) {
	m, key, _, p := s.split("get", r.Subject(), false)
	if p != nil {
		s.deny(r, p)
		return
	}
	ctx, cancel := context.WithTimeout(s.closing, 5*time.Second)
	defer cancel()
	stored, err := s.buckets[m.Name].Get(ctx, key)
	if errors.Is(err, kv.ErrNotFound) {
		s.deny(r, notFound(m))
		return
	}
	var e *Entity
	if err == nil {
		if e, err = s.decode(m, key, stored.Value, stored.Revision); err == nil {
			s.respond(r, e)
			return
		}
	}
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, errParked) {
		err = problem(machines.CodeParked, "the stored value cannot be read by this version of the program")
	}
	s.microFailed(r, err)
}

// ListRequest is the body of a request to <prefix>.api.list.<machine>.
type ListRequest struct {
	Namespace string   `json:"namespace,omitempty"` // "*" is all; default if empty
	Parent    string   `json:"parent,omitempty"`
	States    []string `json:"states,omitempty"`
	Label     string   `json:"label,omitempty"` // k=v,k!=v,k in (a,b),k
	Limit     int      `json:"limit,omitempty"`
	Cursor    string   `json:"cursor,omitempty"`
}

func (s *Server) microList(r micro.Request) {
	name := strings.TrimPrefix(r.Subject(), s.o.Names.API("list")+".")
	ix := s.o.Indexes[name]
	if ix == nil {
		s.deny(r, problem(machines.CodeNotFound, "there is no such machine"))
		return
	}
	if err := s.indexed(name); err != nil {
		s.microFailed(r, err)
		return
	}
	var req ListRequest
	if len(r.Data()) > 0 {
		if err := machines.Unmarshal(r.Data(), &req); err != nil {
			s.deny(r, problem(codeMalformed, "the body is not a query in JSON"))
			return
		}
	}
	l, p := req.query(name)
	if p != nil {
		s.deny(r, p)
		return
	}
	stale := s.stale(s.machineNamed(name))
	page := ix.List(l.Query)
	out := Page{Items: make([]Item, 0, len(page.Items)), Revision: page.Revision, Stale: stale.Seconds()}
	if page.Next != "" {
		out.NextCursor = writeCursor(page, l.hash())
	}
	for _, it := range page.Items {
		out.Items = append(out.Items, itemOf(it))
	}
	s.respond(r, out)
}

func (req ListRequest) query(machine string) (*listing, *Problem) {
	ns, p := anonymous.in(req.Namespace, true)
	if p != nil {
		return nil, p
	}
	if ns == anyNamespace {
		ns = ""
	}
	if req.Parent != "" && streams.CheckLabel(req.Parent) != nil {
		return nil, invalid("body.parent", labelRule)
	}
	selectors, err := kv.ParseSelectors(req.Label)
	if err != nil || len(selectors) > 16 {
		return nil, invalid("body.label", "must be up to 16 of k=v, k!=v, k in (a,b) or k")
	}
	l := &listing{Query: kv.Query{Namespace: ns, Parent: req.Parent, States: req.States, Labels: selectors, Limit: min(max(req.Limit, 0), maxPage)}, machine: machine}
	l.filters = append(append(l.filters, req.States...), req.Label)
	if req.Cursor != "" {
		if l.After, l.AfterTime, err = readCursor(req.Cursor, l.hash()); err != nil {
			var p *Problem
			errors.As(err, &p)
			return nil, p
		}
	}
	return l, nil
}
