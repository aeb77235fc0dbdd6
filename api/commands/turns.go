// Package commands sends commands to the engine, for routes, batches and requests over NATS. The commands of each
// client take turns, one that creates an entity needs room in its namespace, and an answer that is not a success is a problem.
//
// A command goes: turn (turns.go) → quota (quota.go) → place (Ask) → [publish.Commands.AskMsg] → its answer (answer.go).
package commands

// The Sender, and the turns of its clients. Send waits for the turn of a client in limits.Queue and then asks the quota; what it returns tells what becomes of the command (Sent, answer.go).
// AskUntil and Ask are for callers that have a turn (requests over NATS, batches). Ask gives the command to publish.Commands, which stores it in
// COMMANDS and waits for the engine's reply. As a rule the turn ends with that reply, so that one client cannot fill the stream before the others.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Sender sends commands to the engine, those of each client in turn.
type Sender struct {
	commands     *publish.Commands
	AnswerWithin time.Duration // until a command that the engine has not answered is left to itself
	admitted     func(publish.Command) error
	placed       func(publish.Command) (Left, error)
	withdrawn    func(publish.Command)
	Latency      *prometheus.HistogramVec

	Pending *limits.Pool
	Turns   *limits.Queue
	Quota   *limits.Quota // of a namespace
	births  births

	answers *kv.Bucket[keptAnswer] // to commands under a key of their sender
	stored  jetstream.Stream       // of commands

	rest  *rest.Server
	store *entities.Store
}

// Options are what a [Sender] works with. Admit, Place and Withdraw may be nil.
type Options struct {
	Commands     *publish.Commands
	AnswerWithin time.Duration
	Admit        func(publish.Command) error
	Place        func(publish.Command) (Left, error)
	Withdraw     func(publish.Command)
	Pending      limits.Bound // of commands that wait for their turn, or for the answer of the engine
	AtOnce       int          // commands that the engine has from this process at once; 0 is no bound
	Entities     int          // that live in one namespace; 0 is no bound
}

// New opens what is kept of answers, and the stream of commands.
func New(ctx context.Context, d *rest.Server, st *entities.Store, o Options) (*Sender, error) {
	s := &Sender{
		commands: o.Commands, AnswerWithin: o.AnswerWithin, admitted: o.Admit, placed: o.Place, withdrawn: o.Withdraw, rest: d, store: st, Pending: limits.NewPool("commands", o.Pending),
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "instar_command_latency_seconds", Help: "Time from receiving a command to the engine's answer, by outcome.", Buckets: rest.Latencies}, []string{"machine", "command", "outcome"}),
	}
	s.Turns = limits.NewQueue(s.Pending, limits.Turns{All: o.AtOnce, Small: o.AtOnce / largeShare, Hold: turnWithin})
	s.Quota = limits.NewQuota("entities", o.Entities, s.fullest)
	var err error
	if s.answers, err = kv.Open(ctx, st.JS, st.Names.Bucket(streams.IdempotencyBucket), kv.JSON[keptAnswer]()); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if s.stored, err = st.JS.Stream(ctx, st.Names.Stream(streams.CommandStream)); err != nil {
		return nil, fmt.Errorf("api: cannot open the stream of commands: %w", err)
	}
	return s, nil
}

// Turns of commands. While small clients send, large ones share one turn in largeShare, so that small ones do not wait behind a long queue. After turnWithin the
// turn of a command passes that the engine has not answered, as while a partition has no owner. That is long enough for a slow disk: a client whose turns
// pass gets more commands into the stream before those of others.
const (
	largeShare = 32
	turnWithin = time.Second
)

// Send sends the command of a request to the engine when its client's turn comes. The turn lasts until the engine has answered, AnswerWithin at most, however late it came, and also if the client hangs up or
// waits for less, so that its commands do not queue before those of others where clients can no longer be told apart: in the stream, and in the partitions of the engine.
// With lookup, and an Idempotency-Key, it is first asked in that turn whether the command was answered before, see [Sent.Stored].
func (s *Sender) Send(q *rest.Request, cmd publish.Command, lookup bool) (*Sent, error) {
	joined := time.Now()
	lookup = lookup && len(q.R.Header["Idempotency-Key"]) > 0
	leave, err := s.turn(q.Context(), q.Client(), cmd)
	if err != nil {
		return nil, err
	}
	c := &Sent{begun: time.Now(), stored: make(chan struct{}), ended: make(chan struct{})}
	c.within = max(s.AnswerWithin-c.begun.Sub(joined), rest.StoredWithin) // it has to be known whether the command is stored
	go func() {
		defer close(c.ended)
		defer leave() // before: who has the answer may send again at once
		defer func() {
			if p := recover(); p != nil {
				panics.Caught(s.rest.Log, "http", p, "machine", cmd.Machine, "key", cmd.Key, "command", cmd.Name)
				c.err = problem.Unexpected()
			}
		}()
		ctx, cancel := s.answering(q.Context())
		defer cancel()
		c.before = lookup && s.answeredBefore(ctx, cmd)
		c.answer, c.err = s.Ask(ctx, cmd, func(r publish.Result) {
			c.result = r
			close(c.stored)
		})
	}()
	return c, nil
}

// answering is the context of a wait for the engine's answer to the command of a request. A server that is being closed waits as long as the request lasts.
func (s *Sender) answering(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request), s.AnswerWithin)
	stop := context.AfterFunc(s.rest.Closing(), func() { context.AfterFunc(request, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// Ask stores a command that the quota allows, and waits for the answer; a [*problem.Problem] is that there is no place for it. told, unless nil, is called when it is stored.
func (s *Sender) Ask(ctx context.Context, cmd publish.Command, told func(publish.Result)) (m *nats.Msg, err error) {
	if c, _ := s.store.Machines.Get(cmd.Machine).Input(cmd.Name); c.Birth && s.Quota != nil {
		err = publish.ErrUnanswered // after a panic
		defer func() { s.births.decided(cmd, m, err) }()
	}
	left, p := s.Place(cmd)
	if p != nil {
		return nil, p
	}
	if left != nil {
		err = publish.ErrUnanswered
		defer func() { left(answerOf(m), err) }()
	}
	return s.Repeat(ctx, cmd, told)
}

// Repeat is Ask of a command that may be stored already: it needs no place, since then it repeats its answer.
func (s *Sender) Repeat(ctx context.Context, cmd publish.Command, told func(publish.Result)) (*nats.Msg, error) {
	return s.commands.AskMsg(ctx, cmd, told)
}

// turn waits for the client's turn, and only then asks the quota: commands that had their turn earlier count first.
func (s *Sender) turn(ctx context.Context, client string, cmd publish.Command) (leave func(), err error) {
	place, err := s.Turns.Join(client)
	if err == nil && !place.Begun() { // most have their turn at once, without a timer
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.AnswerWithin)
		defer cancel()
		err = place.Wait(ctx)
	}
	if err != nil {
		return nil, noTurn(err)
	}
	end := place.Leave
	begins := false
	defer func() {
		if !begins { // also after a panic
			end()
		}
	}()
	if p := s.Room(ctx, cmd, true); p != nil {
		return nil, p
	}
	begins = true
	return end, nil
}

// noTurn is the error of a command that had no turn, and so was certainly not stored.
func noTurn(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return rest.TurnTooLate()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return rest.TooMany(err, time.Second)
}

// lastAnswers is how long a server that is being closed waits for the answers to commands over NATS.
const lastAnswers = time.Second

// AskUntil stores a command whose client has its turn, if the quota allows it, and waits for the engine's answer. If it is stored and not answered by
// then, the error is a [*publish.AcceptedError]; any other error is for the client.
func (s *Sender) AskUntil(until time.Time, cmd publish.Command) (*nats.Msg, error) {
	if s.rest.Closing().Err() != nil {
		return nil, problem.Unavailable("this server stops; this request stored nothing")
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), func() { time.AfterFunc(lastAnswers, cancel) })()
	if p := s.Room(ctx, cmd, true); p != nil {
		return nil, p
	}
	m, err := s.Ask(ctx, cmd, nil)
	return m, Problem(err)
}

// PatientTurn waits for a turn until ctx ends, also while the client has all the places that it may have: a batch runs in the background, where
// nobody could be told to try again.
func (s *Sender) PatientTurn(ctx context.Context, client string) (leave func(), ok bool) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		leave, err := s.Turns.Take(ctx, client)
		var full *limits.Full
		if !errors.As(err, &full) {
			return leave, err == nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, false
		}
	}
}

// Release lets commands proceed without turns: the server is being closed.
func (s *Sender) Release() { s.Turns.Release() }
