package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// TakeBatches takes all places of batches that a client may have until it is undone.
func (s *Server) TakeBatches(client string) func() { return takeAll(s.ops.Running, client) }

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

// TakeTurns stands in the line for so many turns of a tenth of a second each.
func (s *Server) TakeTurns(client string, n int) {
	for range n {
		p, err := s.sender.Turns.Join(client)
		if err != nil {
			panic(err) // no bound of a test
		}
		go func() {
			if p.Wait(s.rest.Closing()) == nil {
				time.AfterFunc(100*time.Millisecond, p.Leave)
			}
		}()
	}
}

// TakeCommands takes all the places of commands that a client may have, until it is undone.
func (s *Server) TakeCommands(client string) func() { return takeAll(s.sender.Pending, client) }

// TakeReads takes all the turns of what is read that a client may have, and one place more, as far as there are places, until it is undone.
func (s *Server) TakeReads(client string) (leave func()) {
	var all []*limits.Place
	for len(all) == 0 || all[len(all)-1].Begun() {
		p, err := s.rest.Reads.Join(client)
		if err != nil {
			break
		}
		all = append(all, p)
	}
	return func() {
		for _, p := range all {
			p.Leave()
		}
	}
}

// CommandsHeld is how many commands wait for their turn or their answer.
func (s *Server) CommandsHeld() int { return s.sender.Pending.Held() }

// LeaveBatch stores a batch of boss whose process died so long ago, after the entity of that key.
func (s *Server) LeaveBatch(id, request, after string, ago time.Duration) error {
	then := time.Now().Add(-ago)
	b, err := kv.Open(context.Background(), s.store.JS, s.store.Names.Bucket(streams.OperationsBucket), kv.JSON[map[string]any]())
	if err != nil {
		return err
	}
	_, err = b.Put(context.Background(), id, map[string]any{
		"request": json.RawMessage(request), "namespace": auth.DefaultNamespace, "actor": "boss", "after": after, "startedAt": time.Time{}, "updatedAt": then, "since": then,
		"progress": map[string]any{"failures": []any{}},
	}, 0)
	return err
}

// CheckToken checks one token as New does.
func CheckToken(t auth.Token) error {
	_, err := auth.NewKeyring([]auth.Token{t}, false)
	return err
}

// RegisterWithoutRole adds an operation that declares no role.
func (s *Server) RegisterWithoutRole() error {
	return s.rest.Router().Register(&rest.Route{Op: huma.Operation{Method: "GET", Path: "/v1/secret"}})
}

// RegisterTwice adds an operation that is there already.
func (s *Server) RegisterTwice() error {
	return s.rest.Router().Register(&rest.Route{Role: auth.Read, Op: huma.Operation{Method: "GET", Path: "/v1/machines"}})
}

// RegisterPanic adds an operation that panics, before or after it has begun to answer.
func (s *Server) RegisterPanic() error {
	for path, begin := range map[string]bool{"/boom": false, "/late": true} {
		if err := s.rest.Router().Register(&rest.Route{Open: true, Op: huma.Operation{Method: "GET", Path: path, Hidden: true}, Serve: func(q *rest.Request) error {
			if begin {
				_, _ = q.W.Write([]byte("half"))
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
	wait := func() *problem.Problem { panic("secret dsn") }
	later := func(r micro.Request) { s.rpc.Later(r, wait, func(micro.Request) {}) }
	if err := s.rpc.Micro.AddEndpoint("boom-later", micro.HandlerFunc(s.rpc.Beside(later)), micro.WithEndpointSubject(s.store.Names.API("boom", "later"))); err != nil {
		return err
	}
	return s.rpc.Micro.AddEndpoint("boom", micro.HandlerFunc(s.rpc.Beside(func(micro.Request) { panic("secret dsn") })), micro.WithEndpointSubject(s.store.Names.API("boom")))
}

// Storing is the problem of a command that could not be stored, if it is one of its own.
func Storing(err error) *problem.Problem {
	var p *problem.Problem
	errors.As(commands.Problem(err), &p)
	return p
}

// NATSClient is who a request over NATS is counted with.
func NATSClient(reply string, header nats.Header) string {
	return rpc.Client(asker{reply: reply, header: header})
}

// asker is a request of which only the reply and the headers are known.
type asker struct {
	micro.Request
	reply  string
	header nats.Header
}

func (a asker) Reply() string          { return a.reply }
func (a asker) Headers() micro.Headers { return micro.Headers(a.header) }

// EncodedChanges is how many changes were written for watches so far.
func (s *Server) EncodedChanges() uint64 { return s.watches.Encoded() }
