package api

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/streams"
)

// askInTurn stores a command when its client's turn comes, and waits for the answer of the engine as [streams.Commands.AskMsg]
// does, from then on for as long as is preferred, or else for what is left of the time of an answer. The turn lasts until then, so that what one client asks for does not queue before the commands of others where nobody
// can tell them apart any more: in the stream, and in the partitions of the engine. So it lasts no shorter where the client hangs up.
func (s *Server) askInTurn(ctx context.Context, client string, cmd streams.Command, preferred time.Duration) (*nats.Msg, error) {
	begun := time.Now()
	leave, err := s.turn(ctx, client, cmd)
	if err != nil {
		return nil, err
	}
	defer leave()
	within := s.o.AnswerWithin - time.Since(begun)
	if preferred > 0 {
		within = min(preferred, s.o.AnswerWithin)
	}
	// The line may have taken most of it, and what is stored is to be known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(within, storedWithin))
	defer cancel()
	return s.askEngine(ctx, cmd, nil)
}

// askEngine stores a command for which there is room, and waits for the answer.
func (s *Server) askEngine(ctx context.Context, cmd streams.Command, told func(streams.Result)) (m *nats.Msg, err error) {
	if c, _ := s.machineNamed(cmd.Machine).Input(cmd.Name); c.Birth && s.limits.entities != nil {
		err = streams.ErrUnanswered // after a panic
		defer func() { s.births.decided(cmd, m, err) }()
	}
	m, err = s.o.Commands.AskMsg(ctx, cmd, told)
	return m, err
}

// asking waits for the answer of the engine to one command, as [streams.Commands.AskMsg] does, for as long as is preferred from the turn of its
// client on; 0 is the time of an answer.
type asking func(ctx context.Context, preferred time.Duration) (*nats.Msg, error)

// sendInTurn returns when the command is stored. Its turn lasts until the engine has answered all the same; where the stream knew the command,
// answer waits for that: another one of the client has no turn while this lasts.
func (s *Server) sendInTurn(ctx context.Context, client string, cmd streams.Command) (r streams.Result, answer asking, err error) {
	leave, err := s.turn(ctx, client, cmd)
	if err != nil {
		return r, nil, err
	}
	stored := make(chan streams.Result, 2)
	answered := make(chan *nats.Msg, 1)
	go func() {
		defer leave()
		defer close(answered)
		defer func() {
			if p := recover(); p != nil {
				panics.Caught(s.o.Log, "http", p, "machine", cmd.Machine, "key", cmd.Key, "command", cmd.Name)
				stored <- streams.Result{Err: unexpected()}
			}
		}()
		ctx, cancel := s.answering(s.o.AnswerWithin)
		defer cancel()
		m, err := s.askEngine(ctx, cmd, func(r streams.Result) { stored <- r })
		if err != nil {
			stored <- streams.Result{Err: err} // the first one counts
			return
		}
		answered <- m
	}()
	select {
	case r = <-stored:
	case <-ctx.Done():
		return r, nil, errors.Join(streams.ErrUnanswered, ctx.Err())
	}
	return r, func(ctx context.Context, preferred time.Duration) (*nats.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, min(cmp.Or(preferred, s.o.AnswerWithin), s.o.AnswerWithin))
		defer cancel()
		select {
		case m, ok := <-answered:
			if ok {
				return m, nil
			}
		case <-ctx.Done():
		}
		return nil, &streams.AcceptedError{Seq: r.Seq, Seen: r.Duplicate, Err: context.DeadlineExceeded}
	}, r.Err
}

// turn waits for the client's turn. Only then it is asked whether there is room for what the command begins: of those that waited others
// were first.
func (s *Server) turn(ctx context.Context, client string, cmd streams.Command) (leave func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, s.o.AnswerWithin)
	defer cancel()
	end, err := s.limits.commands.Take(waiting, client)
	if err != nil {
		return nil, noTurn(err)
	}
	begins := false
	defer func() {
		if !begins { // also after a panic
			end()
		}
	}()
	if p := s.room(ctx, cmd, true); p != nil {
		return nil, p
	}
	begins = true
	return end, nil
}

// noTurn says why a command had none: for certain, it was not stored.
func noTurn(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return turnTooLate()
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return tooMany(err, time.Second)
}

func turnTooLate() *Problem {
	return unavailable("the turn of this client did not come in time; nothing was done")
}

// lastAnswers is how long a server that is being closed waits for the answers to commands that no request over HTTP waits for.
const lastAnswers = time.Second

// answering is how long such an answer is waited for.
func (s *Server) answering(within time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(lastAnswers, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// microInTurn handles a request when its client's turn comes, which lasts until then. One whose turn does not come within half the time of an answer is refused,
// when its sender may still listen.
func (s *Server) microInTurn(q *limits.Queue, r micro.Request, client string, handle func(micro.Request)) {
	place, err := q.Join(client)
	if err != nil {
		s.deny(r, tooMany(err, time.Second))
		return
	}
	s.aside(r, place.Leave, func(r micro.Request) {
		ctx, cancel := context.WithTimeout(context.Background(), s.o.AnswerWithin/2)
		defer cancel()
		if place.Wait(ctx) != nil {
			s.deny(r, turnTooLate())
			return
		}
		handle(r)
	})
}

// microAsk passes on what the engine answers to a command over NATS. Silence means that it is stored.
func (s *Server) microAsk(r micro.Request, client string, cmd streams.Command) {
	arrived := time.Now()
	s.microInTurn(s.limits.commands, r, client, func(r micro.Request) {
		if s.closing.Err() != nil {
			s.deny(r, unavailable("this server stops; the command was not stored"))
			return
		}
		ctx, cancel := s.answering(s.o.AnswerWithin - time.Since(arrived))
		defer cancel()
		if p := s.room(ctx, cmd, true); p != nil {
			s.deny(r, p)
			return
		}
		m, err := s.askEngine(ctx, cmd, nil)
		var accepted *streams.AcceptedError
		switch {
		case errors.As(err, &accepted): // silence, as of whoever is still at it
		case err != nil:
			s.microFailed(r, storing(err))
		default:
			s.reply(r, &nats.Msg{Header: m.Header, Data: m.Data})
		}
	})
}
