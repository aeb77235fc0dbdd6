package commands

// What is known about a command once it is sent: whether it is stored, and its answer from the engine (Sent), the answer that is kept
// under its id (answeredBefore, Kept), whether it still waits (Waiting). Denied and Problem turn refusals and errors of
// the stream into problems. Callers are command.go of package api, and packages instances and operations.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Sent is a command that has its turn, see [Sender.Send].
type Sent struct {
	begun  time.Time     // when its turn came
	within time.Duration // from then on a client without preference is answered

	before bool           // it was answered before
	stored chan struct{}  // closed when the stream has taken it or not, after before and result are set
	result publish.Result // of the stream

	ended  chan struct{} // closed when its place is free, after answer or err is set
	answer *nats.Msg
	err    error
}

// overtakes is how long the acknowledgement of the stream is awaited after the answer of the engine, which may overtake it: they come on different ways.
const overtakes = 100 * time.Millisecond

// Stored waits until the stream has taken the command; seq is 0 where that is known from the engine's answer only, because the stream's acknowledgement was lost. It is false if the stream has not taken it, or if it is known from an
// earlier request: then Answer says what has become of it.
func (c *Sent) Stored() (seq uint64, ok bool) {
	select {
	case <-c.stored:
	case <-c.ended:
		if c.err == nil {
			select {
			case <-c.stored:
			case <-time.After(overtakes):
			}
		}
	}
	select { // also where both have come
	case <-c.stored:
		return c.result.Seq, c.result.Err == nil && !c.result.Duplicate && !c.before && !c.replayed()
	default:
		return 0, c.err == nil && !c.before && !streams.Replayed(c.answer)
	}
}

// replayed reports whether what has come by now is the answer to an earlier request, which a lost acknowledgement does not say.
func (c *Sent) replayed() bool {
	select {
	case <-c.ended:
		return c.err == nil && streams.Replayed(c.answer)
	default:
		return false
	}
}

// Answer waits for the engine's answer: for the preferred time from the turn on, or, if that is 0, until AnswerWithin has passed since the command came, or it has to be stored. It
// says in a header if it is the answer to an earlier request. The error may be a [*publish.AcceptedError]: the command is stored, and not answered within that time.
func (c *Sent) Answer(q *rest.Request, preferred time.Duration) (*machines.Answer, error) {
	m, err := c.wait(preferred)
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

func (c *Sent) wait(preferred time.Duration) (*nats.Msg, error) {
	late := time.NewTimer(time.Until(c.begun.Add(cmp.Or(preferred, c.within))))
	defer late.Stop()
	select {
	case <-c.ended:
		return c.answer, c.err
	case <-late.C:
	}
	select {
	case <-c.ended: // both, as where Stored has taken all of the time
		return c.answer, c.err
	default:
	}
	select {
	case <-c.stored:
		if c.result.Err != nil {
			return nil, c.result.Err
		}
		return nil, &publish.AcceptedError{Seq: c.result.Seq, Seen: c.result.Duplicate, Err: context.DeadlineExceeded}
	default:
		return nil, errors.Join(publish.ErrUnanswered, context.DeadlineExceeded)
	}
}

// answeredBefore reports whether an answer is kept under the key of a command. Then even a client that does not
// wait is given it, by the engine. The stream itself recognises duplicates for two minutes only.
func (s *Sender) answeredBefore(ctx context.Context, cmd publish.Command) bool {
	ctx, cancel := context.WithTimeout(ctx, rest.StoredWithin)
	defer cancel()
	_, err := s.answers.Get(ctx, streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID))
	return err == nil // else it is stored, and the engine finds out
}

// Problem turns the error of a command that was not stored, or may not have been, into that of the request.
func Problem(err error) error {
	var refused *publish.RefusedError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.As(err, &refused) && refused.Code == codeMessageTooLarge:
		return problem.New(problem.CodeTooLarge, "the body and the headers together are too large")
	case errors.Is(err, streams.ErrSubject):
		return problem.Invalid("path", problem.LabelRule)
	case publish.TooMany(err):
		return problem.New(problem.CodeRateLimited, "the stream of commands has more to take than it can; this request stored nothing").With("Retry-After", "1")
	case publish.OutOfRoom(err):
		return problem.New(problem.CodeQueueFull, "the stream of commands may not grow any more; this request stored nothing").With("Retry-After", "5")
	case errors.As(err, &refused):
		return errors.Join(publish.ErrUnanswered, err)
	}
	return err
}

// codeMessageTooLarge is the error code of the NATS server for a message above the stream's limit.
const codeMessageTooLarge = 10054

// InProgress answers a request whose key is that of a command that is not decided yet.
func InProgress(id string) *problem.Problem {
	return problem.New(problem.CodeInProgress, fmt.Sprintf("a command with the key %q is stored and not decided yet", id)).With("Retry-After", "1")
}

// Denied is the problem that an answer stands for; nil for a success.
func Denied(m *machines.Machine, a *machines.Answer) *problem.Problem {
	if a.Refusal != nil {
		p := problem.Refused(a.Refusal)
		if a.Refusal.State == "" {
			p.CurrentState = a.State
		}
		if a.Refusal.Allowed == nil && a.Refusal.Code != machines.CodeParked { // the state of a parked entity is not known
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

// keptAnswer is what the engine keeps of an answer, in the bucket of idempotency keys.
type keptAnswer struct {
	ID     string          `json:"id"`
	Answer machines.Answer `json:"answer"`
}

// Admit refuses a command whose body fits its schema, but that can never be carried out.
func (s *Sender) Admit(cmd publish.Command) *problem.Problem {
	if s.admitted == nil {
		return nil
	}
	return refused(s.admitted(cmd))
}

func refused(err error) *problem.Problem {
	var p *problem.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	}
	return problem.Invalid("body", err.Error())
}

// Left is told what has become of a command that had a place: its answer, or why there is none, or neither where it was only asked about.
type Left = func(*machines.Answer, error)

// Place gives a command what it needs until left is called, or refuses it. A nil left is of one that needs nothing.
func (s *Sender) Place(cmd publish.Command) (left Left, p *problem.Problem) {
	if s.placed == nil {
		return nil, nil
	}
	left, err := s.placed(cmd)
	return left, refused(err)
}

// answerOf reads an answer of the engine; nil is none that can be read.
func answerOf(m *nats.Msg) *machines.Answer {
	var a machines.Answer
	if m == nil || json.Unmarshal(m.Data, &a) != nil {
		return nil
	}
	return &a
}

// Withdraw takes back what Admit has set aside for a command that is not to be sent.
func (s *Sender) Withdraw(cmd publish.Command) {
	if s.withdrawn != nil {
		s.withdrawn(cmd)
	}
}

// Kept reads the answer to an earlier command, and when it was stored: from the bucket of idempotency keys as long as that
// has it, else from the outcomes in the value of the entity. It is nil if neither has it.
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

// Observe records how long a command took from its arrival to its outcome.
func (s *Sender) Observe(machine, command, outcome string, start time.Time) {
	s.Latency.WithLabelValues(machine, command, outcome).Observe(time.Since(start).Seconds())
}
