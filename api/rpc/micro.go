// Package rpc answers requests over NATS, as a micro service: those of each client in turn. What fails is answered with a problem; only
// a command that is stored and not decided in time gets no reply.
package rpc

// The NATS micro service, whose endpoints come from api/server.go and package instances. micro hands over one request at a
// time: Asked checks the rate of its client, InTurn and Later continue on a goroutine when its turn comes or a wait is
// over. Handlers answer with Respond and Reply, or with a problem (Deny, Fail), to the inbox of the sender.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// ServiceName is what `nats micro ls` shows.
const ServiceName = "instar"

// QueueGroup shares the requests between processes.
const QueueGroup = "instar"

// Server answers requests over NATS, as a micro service.
type Server struct {
	rest       *rest.Server
	turnWithin time.Duration
	asked      limits.Jobs // what waits or is under way

	mu    sync.Mutex
	Micro micro.Service
	begin func([]*machines.Machine) (micro.Service, error) // another one of some machines
	older []micro.Service                                  // that others have replaced
}

// New makes a server that answers from [Server.Start] on. A request whose turn does not come within turnWithin is refused.
func New(d *rest.Server, turnWithin time.Duration) *Server {
	return &Server{rest: d, turnWithin: turnWithin}
}

// Endpoint is one kind of request: its subject is that of the API with name and tail, in which tokens may be wildcards.
type Endpoint struct {
	Name, Tail        string
	Request, Response string // what the bodies are, in the metadata of the service
	Handle            func(micro.Request)
}

// Start begins to answer. Subjects are guarded by the permissions of NATS alone.
func (s *Server) Start(names streams.Names, version string, ms []*machines.Machine, endpoints ...Endpoint) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Micro != nil {
		return errors.New("api: the micro service runs already")
	}
	s.begin = func(ms []*machines.Machine) (micro.Service, error) { return s.service(names, version, ms, endpoints) }
	s.Micro, err = s.begin(ms)
	return err
}

// Renew publishes which machines there are now: the metadata of a micro service cannot be changed, so another service takes its place. The one before
// ends only after a while: the NATS server may have chosen it for a request that is on its way, which nobody would answer.
func (s *Server) Renew(ms []*machines.Machine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Micro == nil {
		return nil
	}
	next, err := s.begin(ms)
	if err != nil {
		return err
	}
	before := s.Micro
	s.older, s.Micro = append(s.older, before), next
	time.AfterFunc(overlap, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.older, before); i >= 0 {
			s.older = slices.Delete(s.older, i, i+1)
			if err := stop(before); err != nil {
				s.rest.Log.Warn("a former micro service does not end", "error", err)
			}
		}
	})
	return nil
}

// overlap is how long both services answer.
const overlap = time.Second

func (s *Server) service(names streams.Names, version string, ms []*machines.Machine, endpoints []Endpoint) (micro.Service, error) {
	var list []string
	for _, m := range ms {
		list = append(list, m.Name)
	}
	svc, err := micro.AddService(s.rest.Nc, micro.Config{
		Name: ServiceName, Version: semver(version), Description: "Commands and reads of durable state machines", QueueGroup: QueueGroup,
		Metadata: map[string]string{"machines": strings.Join(list, ","), "prefix": strings.TrimSuffix(names.API(), ".api")},
	})
	if err != nil {
		return nil, fmt.Errorf("api: cannot start the micro service: %w", err)
	}
	for _, e := range endpoints {
		if err = svc.AddEndpoint(e.Name, micro.HandlerFunc(e.Handle), micro.WithEndpointSubject(names.API(e.Name, e.Tail)), micro.WithEndpointMetadata(map[string]string{
			"request": e.Request, "response": e.Response, "schema": "/asyncapi.json#/channels/api." + e.Name,
		})); err != nil {
			return nil, errors.Join(fmt.Errorf("api: cannot add endpoint %s: %w", e.Name, err), svc.Stop())
		}
	}
	return svc, nil
}

// Stop takes no more requests, so that other nodes take what comes.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Micro == nil {
		return nil
	}
	err := stop(s.Micro)
	for _, before := range s.older {
		err = errors.Join(err, stop(before))
	}
	s.Micro, s.older = nil, nil
	return err
}

func stop(svc micro.Service) error {
	if err := svc.Stop(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("api: cannot stop the micro service: %w", err)
	}
	return nil
}

// Wait returns when all requests are answered.
func (s *Server) Wait() { s.asked.Wait() }

// Asked is a handler that takes requests of each client as often as its rate allows.
func (s *Server) Asked(handle func(r micro.Request, client string)) func(micro.Request) {
	return s.guarded(func(r micro.Request) {
		client := Client(r)
		if p := s.rest.CheckRate(client); p != nil {
			s.Deny(r, p)
			return
		}
		handle(r, client)
	})
}

// Beside runs reads concurrently, those of each client in turn: micro calls one handler at a time.
func (s *Server) Beside(handle func(micro.Request)) func(micro.Request) {
	return s.Asked(func(r micro.Request, client string) { s.InTurn(s.rest.Reads, r, client, handle) })
}

// InTurn handles a request when its client's turn comes; the turn lasts until it is handled. One whose turn does not come in time is refused, while its
// sender may still listen.
func (s *Server) InTurn(q *limits.Queue, r micro.Request, client string, handle func(micro.Request)) {
	place, err := q.Join(client)
	if err != nil {
		s.Deny(r, rest.TooMany(err, time.Second))
		return
	}
	s.aside(r, place.Leave, func(r micro.Request) {
		ctx, cancel := context.WithTimeout(context.Background(), s.turnWithin)
		defer cancel()
		if place.Wait(ctx) != nil {
			s.Deny(r, rest.TurnTooLate())
			return
		}
		handle(r)
	})
}

// Later continues a request when its wait is over. Other requests are handled meanwhile.
func (s *Server) Later(r micro.Request, wait func() *problem.Problem, then func(micro.Request)) {
	leave, err := s.rest.TakeWait(Client(r))
	if err != nil {
		s.Fail(r, err)
		return
	}
	s.aside(r, leave, func(r micro.Request) {
		if p := wait(); p != nil {
			s.Deny(r, p)
			return
		}
		then(r)
	})
}

// aside runs a handler on a goroutine, since micro calls one at a time. [Server.Wait] waits for it.
func (s *Server) aside(r micro.Request, leave func(), handle func(micro.Request)) {
	handle = s.guarded(handle)
	s.asked.Begin()
	go func() {
		defer s.asked.End()
		defer leave()
		handle(placed{r, leave})
	}()
}

// placed is a request that holds a place until it is answered.
type placed struct {
	micro.Request
	leave func()
}

// guarded answers for a handler that panicked.
func (s *Server) guarded(handle func(micro.Request)) func(micro.Request) {
	return func(r micro.Request) {
		defer func() {
			if p := recover(); p != nil {
				panics.Caught(s.rest.Log, "nats", p, "subject", r.Subject())
				s.Deny(r, problem.Unexpected())
			}
		}()
		handle(r)
	}
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

// Fail answers with a problem. Any other error is logged, and answered without its text.
func (s *Server) Fail(r micro.Request, err error) {
	var p *problem.Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, publish.ErrGated):
		p = problem.Gated()
	default:
		s.rest.Log.Warn("a request over NATS failed", "subject", r.Subject(), "error", err)
		p = problem.Unavailable("storage does not answer")
	}
	s.Deny(r, p)
}

// Deny answers with the status in Nats-Service-Error-Code and the problem as the body.
func (s *Server) Deny(r micro.Request, p *problem.Problem) {
	body, err := json.Marshal(p)
	if err == nil {
		h := nats.Header{micro.ErrorHeader: {p.Detail}, micro.ErrorCodeHeader: {strconv.Itoa(p.Status)}}
		if after := p.Header("Retry-After"); after != "" {
			h["Retry-After"] = []string{after}
		}
		s.Reply(r, &nats.Msg{Header: h, Data: body})
	}
}

// Reply publishes an answer itself, to inboxes only. It does not use [micro.Request]: what that notes of an answer is read when
// the handler has returned, which is before a goroutine of aside has answered.
func (s *Server) Reply(r micro.Request, m *nats.Msg) {
	if m.Subject = streams.Inbox(r.Reply()); m.Subject == "" {
		return // nobody waits, or not at an inbox
	}
	for p, ok := r.(placed); ok; p, ok = p.Request.(placed) {
		p.leave() // before: who has the answer may ask again at once
	}
	if err := s.rest.Nc.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		s.rest.Log.Debug("cannot answer a request over NATS", "subject", r.Subject(), "error", err)
	}
}

// Respond answers with a value as JSON.
func (s *Server) Respond(r micro.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.Fail(r, err)
		return
	}
	s.RespondRaw(r, body)
}

// RespondRaw answers, or says that the answer is larger than NATS takes: without a reply it would look as if nobody were there.
func (s *Server) RespondRaw(r micro.Request, body []byte) {
	if most := s.rest.Nc.MaxPayload(); int64(len(body)) > most {
		s.Deny(r, problem.New(problem.CodeAnswer, fmt.Sprintf("the answer has %d bytes, and NATS passes on %d", len(body), most)))
		return
	}
	s.Reply(r, &nats.Msg{Data: body})
}

// Client is the client as which a request over NATS is counted, as far as that can be known. One that came from another account
// over an import is of that account, and of its user where the import shares who it is (the server says so, and gives such
// requests a reply of its own). Others are told apart by the prefix of their inboxes, of which each connection has one. Those
// whose inbox has no such prefix are one client together.
func Client(r micro.Request) string {
	if reply := r.Reply(); !strings.HasPrefix(reply, "_R_.") {
		if i := strings.LastIndexByte(reply, '.'); strings.Count(reply, ".") > 1 {
			return "inbox " + reply[:i]
		}
		return "inbox"
	}
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	if json.Unmarshal([]byte(nats.Header(r.Headers()).Get("Nats-Request-Info")), &info) != nil {
		return "account"
	}
	return rest.UserClient(info.Account, info.User)
}
