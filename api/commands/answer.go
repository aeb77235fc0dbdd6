package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// AnsweredBefore reports that there is an answer to a command under this key of its sender: then the engine says which,
// also to a sender who does not wait. The stream knows keys for two minutes only.
func (s *Sender) AnsweredBefore(q *rest.Request, cmd publish.Command) bool {
	if len(q.R.Header["Idempotency-Key"]) == 0 {
		return false
	}
	_, err := entities.InTurn(q, s.answers, streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID))
	return err == nil // else it is stored, and the engine finds out
}

// Asking stores a command and waits for its answer.
func (s *Sender) Asking(q *rest.Request, cmd publish.Command) asking {
	return func(ctx context.Context, preferred time.Duration) (*nats.Msg, error) {
		return s.askInTurn(ctx, q.Client(), cmd, preferred)
	}
}

// Answer waits for what was asked, for as long as is preferred (0 is the time of an answer), and says in a header if it is the answer to an earlier request. The error may be a
// [*publish.AcceptedError]: the command is stored, and not answered within the time.
func (s *Sender) Answer(q *rest.Request, asked asking, preferred time.Duration) (*machines.Answer, error) {
	m, err := asked(q.Context(), preferred)
	if err != nil {
		return nil, err
	}
	var a machines.Answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, err
	}
	if a.Replayed = streams.Replayed(m); a.Replayed {
		q.Replayed()
	}
	return &a, nil
}

// Problem says what it means that a command could not be stored.
func Problem(err error) error {
	var refused *publish.RefusedError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.As(err, &refused) && refused.Code == codeMessageTooLarge:
		return problem.New(problem.CodeTooLarge, "the body and the headers together are too large")
	case errors.Is(err, streams.ErrSubject):
		return problem.Invalid("path", problem.LabelRule)
	case errors.As(err, &refused) && refused.Code == codeTooManyRequests:
		return problem.New(problem.CodeRateLimited, "the stream of commands has more to take than it can; the command was not stored").With("Retry-After", "1")
	case errors.As(err, &refused) && slices.Contains(codesNoRoom, refused.Code):
		return problem.New(problem.CodeQueueFull, "the stream of commands may not grow any more; the command was not stored").With("Retry-After", "5")
	case errors.As(err, &refused):
		return errors.Join(publish.ErrUnanswered, err)
	}
	return err
}

// Error codes of the NATS server.
const (
	codeMessageTooLarge = 10054 // above the stream's limit
	codeTooManyRequests = 10167 // the inbound queue of the stream is full
)

// codesNoRoom say that a limit of the account or the server keeps the stream from growing.
var codesNoRoom = []int{10002, 10023, 10028, 10047}

// InProgress answers a request whose key is that of a command that is not decided yet.
func InProgress(id string) *problem.Problem {
	return problem.New(problem.CodeInProgress, fmt.Sprintf("a command with the key %q is stored and not decided yet", id)).With("Retry-After", "1")
}

// Denied is the problem of an answer that is none of success.
func Denied(m *machines.Machine, a *machines.Answer) *problem.Problem {
	if a.Refusal != nil {
		p := problem.Refused(a.Refusal)
		if a.Refusal.State == "" {
			p.CurrentState = a.State
		}
		if a.Refusal.Allowed == nil && a.Refusal.Code != machines.CodeParked { // of that the state is not known
			p.AllowedCommands = m.Allowed(p.CurrentState)
		}
		if a.Refusal.Code == machines.CodePrecondition && a.Revision != 0 && !a.Replayed {
			p = p.With("ETag", rest.ETag(a.Revision))
		}
		return p
	}
	if a.Outcome == machines.Dead {
		return problem.New(machines.CodeDead, "the command could not be processed; it lies among the dead letters")
	}
	return nil
}

// keptAnswer is what the engine keeps of an answer.
type keptAnswer struct {
	ID     string          `json:"id"`
	Answer machines.Answer `json:"answer"`
}

// Admit refuses a command that is as its schema says, and can never be done.
func (s *Sender) Admit(cmd publish.Command) *problem.Problem {
	if s.admitted == nil {
		return nil
	}
	if err := s.admitted(cmd); err != nil {
		return problem.Invalid("body", err.Error())
	}
	return nil
}

// asking waits for the answer of the engine to one command, as [publish.Commands.AskMsg] does, for as long as is preferred from the turn of its
// client on; 0 is the time of an answer.
type asking func(ctx context.Context, preferred time.Duration) (*nats.Msg, error)

// Kept reads what was answered: under the key of a sender as long as the key is remembered, else as long as the entity
// has the outcome in its value; and when that was stored.
func (s *Sender) Kept(ctx context.Context, m *machines.Machine, key, id string) (answer *machines.Answer, at time.Time, err error) {
	e, err := s.answers.Get(ctx, streams.AnswerKey(m.Name, key, id))
	if err == nil && e.Value.ID == id {
		return &e.Value.Answer, e.Created, nil
	}
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return nil, at, err
	}
	stored, err := s.store.Stored(ctx, m, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, at, nil
	}
	if err != nil {
		return nil, at, err
	}
	entity, err := m.Decode(stored.Value)
	if err != nil {
		return nil, at, problem.New(machines.CodeParked, "the stored value of this "+m.Name+" cannot be read by this version of the program")
	}
	for _, o := range entity.Commands {
		if o.ID == id {
			return &machines.Answer{Outcome: o.Result, State: o.State, Version: o.Version, Generation: o.Generation, Revision: o.Revision, Refusal: o.Refusal}, stored.Created, nil
		}
	}
	return nil, at, nil
}

// Waiting reports whether commands of an entity are stored and not decided yet.
func (s *Sender) Waiting(ctx context.Context, m *machines.Machine, key string) (bool, error) {
	return streams.Holds(ctx, s.stored, s.store.Names.StoredOf(m.Name, key))
}

// Observe counts how long a command took from the door to its outcome.
func (s *Sender) Observe(machine, command, outcome string, start time.Time) {
	s.Latency.WithLabelValues(machine, command, outcome).Observe(time.Since(start).Seconds())
}
