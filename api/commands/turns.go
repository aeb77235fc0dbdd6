// Package commands sends commands to the engine for whoever has one (a route, a batch, a request over NATS). The commands of each
// client take turns, one that begins a life needs room in its namespace, and an answer that is not a success is a problem.
//
// A command goes: turn (turns.go) → quota (quota.go) → [publish.Commands.AskMsg] → its answer (answer.go).
package commands

import (
	"cmp"
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

// Options are what a [Sender] works with. Admit may be nil.
type Options struct {
	Commands     *publish.Commands
	AnswerWithin time.Duration
	Admit        func(publish.Command) error
	Pending      limits.Bound // of commands that wait for their turn, or for the answer of the engine
	AtOnce       int          // commands that the engine has from this process at once; 0 is no bound
	Entities     int          // that live in one namespace; 0 is no bound
}

// New opens what is kept of answers, and the stream of commands.
func New(ctx context.Context, d *rest.Server, st *entities.Store, o Options) (*Sender, error) {
	s := &Sender{
		commands: o.Commands, AnswerWithin: o.AnswerWithin, admitted: o.Admit, rest: d, store: st, Pending: limits.NewPool("commands", o.Pending),
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "instar_command_latency_seconds", Help: "Time from the door to the answer of the engine, by outcome.", Buckets: rest.Latencies}, []string{"machine", "command", "outcome"}),
	}
	s.Turns = limits.NewQueue(s.Pending, limits.Turns{All: o.AtOnce, Few: o.AtOnce / fewOf, Hold: turnWithin})
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

// Turns of commands: which part of all turns those share who ask for much, beside small clients, so that these do not fall behind by what is slow; and
// after how long the turn of a command passes that the engine has not answered, as while a partition has no owner. What is only slow, as on a disk that
// is, should not pass: it would be before the commands of others.
const (
	fewOf      = 32
	turnWithin = time.Second
)

// askInTurn stores a command when its client's turn comes, and waits for the answer of the engine as [publish.Commands.AskMsg]
// does, from then on for as long as is preferred, or else for what is left of the time of an answer. The turn lasts until then, so that what one client asks for does not queue before the commands of others where nobody
// can tell them apart any more: in the stream, and in the partitions of the engine. So it lasts no shorter where the client hangs up.
func (s *Sender) askInTurn(ctx context.Context, client string, cmd publish.Command, preferred time.Duration) (*nats.Msg, error) {
	begun := time.Now()
	leave, err := s.turn(ctx, client, cmd)
	if err != nil {
		return nil, err
	}
	defer leave()
	within := s.AnswerWithin - time.Since(begun)
	if preferred > 0 {
		within = min(preferred, s.AnswerWithin)
	}
	// The line may have taken most of it, and what is stored is to be known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(within, rest.StoredWithin))
	defer cancel()
	return s.Ask(ctx, cmd, nil)
}

// Ask stores a command for which there is room, and waits for the answer.
func (s *Sender) Ask(ctx context.Context, cmd publish.Command, told func(publish.Result)) (m *nats.Msg, err error) {
	if c, _ := s.store.MachineNamed(cmd.Machine).Input(cmd.Name); c.Birth && s.Quota != nil {
		err = publish.ErrUnanswered // after a panic
		defer func() { s.births.decided(cmd, m, err) }()
	}
	m, err = s.commands.AskMsg(ctx, cmd, told)
	return m, err
}

// Send returns when the command is stored. Its turn lasts until the engine has answered all the same; where the stream knew the command,
// answer waits for that: another one of the client has no turn while this lasts.
func (s *Sender) Send(ctx context.Context, client string, cmd publish.Command) (r publish.Result, answer asking, err error) {
	leave, err := s.turn(ctx, client, cmd)
	if err != nil {
		return r, nil, err
	}
	stored := make(chan publish.Result, 2)
	answered := make(chan *nats.Msg, 1)
	go func() {
		defer leave()
		defer close(answered)
		defer func() {
			if p := recover(); p != nil {
				panics.Caught(s.rest.Log, "http", p, "machine", cmd.Machine, "key", cmd.Key, "command", cmd.Name)
				stored <- publish.Result{Err: problem.Unexpected()}
			}
		}()
		ctx, cancel := s.answering(s.AnswerWithin)
		defer cancel()
		m, err := s.Ask(ctx, cmd, func(r publish.Result) { stored <- r })
		if err != nil {
			stored <- publish.Result{Err: err} // the first one counts
			return
		}
		answered <- m
	}()
	select {
	case r = <-stored:
	case <-ctx.Done():
		return r, nil, errors.Join(publish.ErrUnanswered, ctx.Err())
	}
	return r, func(ctx context.Context, preferred time.Duration) (*nats.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, min(cmp.Or(preferred, s.AnswerWithin), s.AnswerWithin))
		defer cancel()
		select {
		case m, ok := <-answered:
			if ok {
				return m, nil
			}
		case <-ctx.Done():
		}
		return nil, &publish.AcceptedError{Seq: r.Seq, Seen: r.Duplicate, Err: context.DeadlineExceeded}
	}, r.Err
}

// turn waits for the client's turn. Only then it is asked whether there is room for what the command begins: of those that waited others
// were first.
func (s *Sender) turn(ctx context.Context, client string, cmd publish.Command) (leave func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, s.AnswerWithin)
	defer cancel()
	end, err := s.Turns.Take(waiting, client)
	if err != nil {
		return nil, noTurn(err)
	}
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

// noTurn says why a command had none: for certain, it was not stored.
func noTurn(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return rest.TurnTooLate()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return rest.TooMany(err, time.Second)
}

// lastAnswers is how long a server that is being closed waits for the answers to commands that no request over HTTP waits for.
const lastAnswers = time.Second

// answering is how long such an answer is waited for.
func (s *Sender) answering(within time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	stop := context.AfterFunc(s.rest.Closing(), func() { time.AfterFunc(lastAnswers, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// AskUntil stores a command whose client has its turn, if there is room for what it begins, and waits for the answer of the engine. Of what is stored
// and not answered by then the error is a [*publish.AcceptedError]; any other error is to be told.
func (s *Sender) AskUntil(until time.Time, cmd publish.Command) (*nats.Msg, error) {
	if s.rest.Closing().Err() != nil {
		return nil, problem.Unavailable("this server stops; the command was not stored")
	}
	ctx, cancel := s.answering(time.Until(until))
	defer cancel()
	if p := s.Room(ctx, cmd, true); p != nil {
		return nil, p
	}
	m, err := s.Ask(ctx, cmd, nil)
	return m, Problem(err)
}

// PatientTurn waits for a turn, also while the client has all the places that it may have: nobody is there to be told to try again. The place in
// the line is kept however long that takes, as behind those of the same client who give theirs up later.
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

// Release lets commands go on without turns: the server is being closed.
func (s *Sender) Release() { s.Turns.Release() }
