package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
)

// TakeBatches takes all places of batches that a client may have until it is undone.
func (s *Server) TakeBatches(client string) func() { return takeAll(s.limits.batches, client) }

func takeAll(p *limits.Pool, client string) func() {
	var all []func()
	for {
		leave, err := p.Take(client)
		if err != nil {
			return func() {
				for _, leave := range all {
					leave()
				}
			}
		}
		all = append(all, leave)
	}
}

// ForgetBirths lets as much time pass as is needed for that.
func (s *Server) ForgetBirths() {
	s.births.mu.Lock()
	defer s.births.mu.Unlock()
	clear(s.births.of)
}

// TakeTurns stands in the line for so many turns of a tenth of a second each.
func (s *Server) TakeTurns(client string, n int) {
	for range n {
		p, err := s.limits.commands.Join(client)
		if err != nil {
			panic(err) // no bound of a test
		}
		go func() {
			if p.Wait(s.closing) == nil {
				time.AfterFunc(100*time.Millisecond, p.Leave)
			}
		}()
	}
}

// TakeCommands takes all the places of commands that a client may have, until it is undone.
func (s *Server) TakeCommands(client string) func() { return takeAll(s.limits.pending, client) }

// CommandsHeld is how many commands wait for their turn or their answer.
func (s *Server) CommandsHeld() int { return s.limits.pending.Held() }

// LeaveBatch stores a batch of boss whose process died so long ago, after the entity of that key.
func (s *Server) LeaveBatch(id, request, after string, ago time.Duration) error {
	then := time.Now().Add(-ago)
	b := batch{Namespace: defaultNamespace, Actor: "boss", After: after, UpdatedAt: then, Since: then, Progress: BatchProgress{Failures: []BatchFailure{}}}
	if err := json.Unmarshal([]byte(request), &b.Request); err != nil {
		return err
	}
	_, err := s.operations.Put(context.Background(), id, b, 0)
	return err
}

// CheckToken checks one token as New does.
func CheckToken(t Token) error {
	_, err := t.check()
	return err
}

// RegisterWithoutRole adds an operation that declares no role.
func (s *Server) RegisterWithoutRole() error {
	return s.register(&route{op: huma.Operation{Method: "GET", Path: "/v1/secret"}})
}

// RegisterTwice adds an operation that is there already.
func (s *Server) RegisterTwice() error {
	return s.register(&route{role: Read, op: huma.Operation{Method: "GET", Path: "/v1/machines"}})
}

// RegisterPanic adds an operation that panics, before or after it has begun to answer.
func (s *Server) RegisterPanic() error {
	for path, begin := range map[string]bool{"/boom": false, "/late": true} {
		if err := s.register(&route{open: true, op: huma.Operation{Method: "GET", Path: path, Hidden: true}, serve: func(q *request) error {
			if begin {
				_, _ = q.w.Write([]byte("half"))
			}
			panic("secret dsn")
		}}); err != nil {
			return err
		}
	}
	return nil
}

// MicroPanic adds endpoints that panic, as those are added that read: at once, and while they wait.
func (s *Server) MicroPanic() error {
	wait := func() *Problem { panic("secret dsn") }
	later := func(r micro.Request) { s.later(r, wait, func(micro.Request) {}) }
	if err := s.micro.AddEndpoint("boom-later", micro.HandlerFunc(s.beside(later)), micro.WithEndpointSubject(s.o.Names.API("boom", "later"))); err != nil {
		return err
	}
	return s.micro.AddEndpoint("boom", micro.HandlerFunc(s.beside(func(micro.Request) { panic("secret dsn") })), micro.WithEndpointSubject(s.o.Names.API("boom")))
}

var discoverRoute = sync.OnceValue(func() *request {
	mux := http.NewServeMux()
	s := &Server{mux: mux, patterns: map[string]bool{}, api: humago.New(mux, humaConfig(Version{})), o: Options{Discovery: discovery.New(discovery.Options{})}}
	rt := s.discoverRoutes()[0]
	if err := s.register(rt); err != nil {
		panic(err)
	}
	return &request{Server: s, rt: rt, who: anonymous}
})

// ReadDiscoverQuery reads the query of GET /v1/discover/web as the operation does; false refuses it.
func ReadDiscoverQuery(values url.Values) (discovery.Query, bool) {
	r, err := http.NewRequest(http.MethodGet, "/v1/discover/web?"+values.Encode(), nil)
	if err != nil {
		return discovery.Query{}, false
	}
	r.SetPathValue("service", "web")
	q := *discoverRoute()
	q.r, q.query = r, nil
	if q.parse() != nil {
		return discovery.Query{}, false
	}
	dq, p := q.filter()
	if p == nil && q.query.Get("at") != "" {
		_, p = readMoment(q.query.Get("at"))
	}
	return dq, p == nil
}

// Named reports whether a server with these options takes requests for a host.
func (s *Server) Named(host string, open bool, hosts []string) bool {
	other := &Server{o: s.o}
	other.o.Open, other.o.Hosts = open, hosts
	return other.named(host)
}

// Storing is the problem of a command that could not be stored, if it is one of its own.
func Storing(err error) *Problem {
	var p *Problem
	errors.As(storing(err), &p)
	return p
}

// Deltas are what watches of instances share.
type Deltas = deltas

// Between is what a watch is told.
func (d *deltas) Between(from, to []discovery.Endpoint, shared bool) string {
	return d.between(from, to, shared)
}

// NATSClient is who a request over NATS is counted with.
func NATSClient(reply string, header nats.Header) string {
	return natsClient(asker{reply: reply, header: header})
}

// asker is a request of which only the reply and the headers are known.
type asker struct {
	micro.Request
	reply  string
	header nats.Header
}

func (a asker) Reply() string          { return a.reply }
func (a asker) Headers() micro.Headers { return micro.Headers(a.header) }

// CheckBody checks a body against a schema of an object, as every door does.
func CheckBody(raw string) *Problem {
	schema := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	schema.PrecomputeMessages()
	return discoverRoute().checkBody(schema, []byte(raw))
}

// Known reports of a bearer whether a server with these tokens knows it.
func Known(tokens []Token) (func(r *http.Request) bool, error) {
	k, err := newKeyring(tokens, false)
	return func(r *http.Request) bool { _, p := k.who(r); return p == nil }, err
}
