package api

// Requests over NATS: commands, single entities and lists, below <prefix>.api. Package rpc, to which server.go gives these handlers,
// calls one per request. split reads machine, key and command from the subject; then the same parts answer as over HTTP (commands.Sender,
// entities.Store, the indexes). There are no tokens: the permissions of NATS decide who may ask, and commands for admins are refused.

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/schema"
	"github.com/bcc94042/instar/internal/strictjson"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// split reads <machine>.<key>[.<last>] after a verb.
func (s *Server) split(verb, subject string, last bool) (m *machines.Machine, key, tail string, p *problem.Problem) {
	rest := strings.TrimPrefix(subject, s.store.Names.API(verb)+".")
	name, rest, _ := strings.Cut(rest, ".")
	if m = s.store.Machines.Get(name); m == nil {
		return nil, "", "", problem.New(machines.CodeNotFound, "there is no such machine")
	}
	if last {
		i := strings.LastIndexByte(rest, '.')
		if i < 0 {
			return nil, "", "", problem.Invalid("subject", "lacks a key or a command")
		}
		rest, tail = rest[:i], rest[i+1:]
	}
	_, parent, _, err := streams.SplitKey(rest)
	if err != nil || (parent == "") != (m.Parent == "") {
		return nil, "", "", problem.Invalid("subject", "the key must be <namespace>.<id>, with a parent between exactly for machines that have one; each "+problem.LabelRule)
	}
	return m, rest, tail, nil
}

// microCommand checks a command, which is sent to the engine when its client's turn comes. If it is stored and not decided in time, there is no reply.
func (s *Server) microCommand(r micro.Request, client string) {
	m, key, name, p := s.split("cmd", r.Subject(), true)
	if p != nil {
		s.rpc.Deny(r, p)
		return
	}
	if c, ok := m.Input(name); !ok || c.Report || c.Admin {
		s.rpc.Deny(r, problem.New(machines.CodeNotFound, "there is no such command here"))
		return
	}
	h := nats.Header(r.Headers())
	cmd := publish.Command{
		Machine: m.Name, Key: key, Name: name, Body: r.Data(), ID: streams.UnscopeID(m.Name, key, streams.Header(h, streams.HeaderID)),
		Actor: microActor(r), Reason: streams.Header(h, streams.HeaderReason),
		Expect: streams.Header(h, streams.HeaderExpect), Trace: streams.Header(h, streams.HeaderTrace), Wait: streams.WaitOf(h),
	}
	if p := checkHeaders(cmd); p != nil {
		s.rpc.Deny(r, p)
		return
	}
	if schema.Depth(cmd.Body) > schema.MaxDepth {
		s.rpc.Deny(r, problem.New(problem.CodeMalformed, "the body is nested too deeply"))
		return
	}
	if p := s.sender.Admit(cmd); p != nil {
		s.rpc.Deny(r, p)
		return
	}
	arrived := time.Now()
	s.rpc.InTurn(s.sender.Turns, r, client, func(r micro.Request) {
		answer, err := s.sender.AskUntil(arrived.Add(s.sender.AnswerWithin), cmd)
		var accepted *publish.AcceptedError
		switch {
		case errors.As(err, &accepted): // no reply: the engine is still to decide it
		case err != nil:
			s.rpc.Fail(r, err)
		default:
			s.rpc.Reply(r, &nats.Msg{Header: answer.Header, Data: answer.Data})
		}
	})
}

// microActor is who sends a request, as it says itself.
func microActor(r micro.Request) string {
	return cmp.Or(streams.Header(nats.Header(r.Headers()), streams.HeaderActor), "nats")
}

func checkHeaders(cmd publish.Command) *problem.Problem {
	for _, h := range []struct {
		name, value  string
		length, most int
	}{
		{streams.HeaderID, cmd.ID, len(cmd.ID), rest.MaxKey},
		{streams.HeaderActor, cmd.Actor, len(cmd.Actor), rest.MaxKey},
		{streams.HeaderReason, cmd.Reason, utf8.RuneCountInString(cmd.Reason), rest.MaxReason},
		{streams.HeaderTrace, cmd.Trace, len(cmd.Trace), 64},
	} {
		if h.length > h.most || !problem.Printable(h.value) {
			return problem.Invalid("header."+h.name, "is too long or has control characters")
		}
	}
	if streams.MadeUp(cmd.ID) {
		return problem.Invalid("header."+streams.HeaderID, "must not begin with ~, as the ids of commands without a key do")
	}
	if _, ok := streams.ParseExpected(cmd.Expect); cmd.Expect != "" && !ok {
		return problem.Invalid("header."+streams.HeaderExpect, "must be a revision, revisions with commas between them, or *")
	}
	return nil
}

func (s *Server) microGet(r micro.Request) {
	m, key, _, p := s.split("get", r.Subject(), false)
	if p != nil {
		s.rpc.Deny(r, p)
		return
	}
	ctx, cancel := context.WithTimeout(s.rest.Closing(), 5*time.Second)
	defer cancel()
	stored, err := s.store.Stored(ctx, m, key)
	if errors.Is(err, kv.ErrNotFound) {
		s.rpc.Deny(r, entities.NotFound(m))
		return
	}
	var e *entities.Entity
	if err == nil {
		if e, err = s.store.Decode(m, key, stored); err == nil {
			e.Forbid(m, stored, microActor(r))
			s.rpc.Respond(r, e)
			return
		}
	}
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, entities.ErrParked) {
		err = problem.New(machines.CodeParked, "the stored value cannot be read by this version of the program")
	}
	s.rpc.Fail(r, err)
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
	name := strings.TrimPrefix(r.Subject(), s.store.Names.API("list")+".")
	m, ix := s.store.Machines.Get(name), s.store.Index(name)
	if m == nil {
		s.rpc.Deny(r, problem.New(machines.CodeNotFound, "there is no such machine"))
		return
	}
	if err := s.store.Indexed(name); err != nil {
		s.rpc.Fail(r, err)
		return
	}
	var req ListRequest
	if len(r.Data()) > 0 {
		if err := strictjson.Unmarshal(r.Data(), &req); err != nil {
			s.rpc.Deny(r, problem.New(problem.CodeMalformed, "the body is not a query in JSON"))
			return
		}
	}
	l, p := req.query(m)
	if p != nil {
		s.rpc.Deny(r, p)
		return
	}
	stale := s.store.Stale(m)
	page := ix.List(l.Query)
	out := Page{Items: make([]entities.Item, 0, len(page.Items)), Revision: page.Revision, Stale: stale.Seconds()}
	if page.Next != "" {
		out.NextCursor = writeCursor(page, l.hash())
	}
	for _, it := range page.Items {
		out.Items = append(out.Items, entities.ItemOf(it))
	}
	s.rpc.Respond(r, out)
}

func (req ListRequest) query(m *machines.Machine) (*listing, *problem.Problem) {
	ns, p := auth.Anonymous.Resolve(req.Namespace, true)
	if p != nil {
		return nil, p
	}
	if req.Parent != "" && streams.CheckLabel(req.Parent) != nil {
		return nil, problem.Invalid("body.parent", problem.LabelRule)
	}
	selectors, p := entities.Selectors(m, "body.label", req.Label)
	if p != nil {
		return nil, p
	}
	l := &listing{Query: index.Query{Namespace: ns, Parent: req.Parent, States: req.States, Labels: selectors, Limit: min(max(req.Limit, 0), rest.MaxPage)}, machine: m.Name}
	l.filters = append(append(l.filters, req.States...), req.Label)
	if req.Cursor != "" {
		var err error
		if l.After, l.AfterTime, err = readCursor(req.Cursor, l.hash()); err != nil {
			var p *problem.Problem
			errors.As(err, &p)
			return nil, p
		}
	}
	return l, nil
}
