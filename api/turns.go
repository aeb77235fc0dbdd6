package api

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/streams"
)

// askInTurn stores a command when its client's turn comes, and waits for the answer of the engine as [streams.Commands.AskMsg]
// does. The turn lasts until then, so that what one client asks for does not queue before the commands of others where nobody
// can tell them apart any more: in the stream, and in the partitions of the engine.
func (s *Server) askInTurn(ctx context.Context, client string, cmd streams.Command) (*nats.Msg, error) {
	leave, err := s.turn(ctx, client, cmd)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.o.Commands.AskMsg(ctx, cmd, nil)
}

// asking waits for the answer of the engine to one command, as [streams.Commands.AskMsg] does.
type asking func(context.Context) (*nats.Msg, error)

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
		ctx, cancel := s.answering()
		defer cancel()
		m, err := s.o.Commands.AskMsg(ctx, cmd, func(r streams.Result) { stored <- r })
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
	return r, func(ctx context.Context) (*nats.Msg, error) {
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
	if leave, err = s.limits.commands.Take(ctx, client); err != nil {
		return nil, noTurn(err)
	}
	if p := s.room(ctx, cmd); p != nil {
		leave()
		return nil, p
	}
	return leave, nil
}

// noTurn says why a command had none: for certain, it was not stored.
func noTurn(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return unavailable("the turn of this client did not come in time; the command was not stored")
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return tooMany(err, time.Second)
}

// lastAnswers is how long a server that is being closed waits for the answers to commands that no request over HTTP waits for.
const lastAnswers = time.Second

// answering is how long such an answer is waited for.
func (s *Server) answering() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.AnswerWithin)
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(lastAnswers, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// microAsk passes on what the engine answers to a command over NATS.
func (s *Server) microAsk(r micro.Request, client string, cmd streams.Command) error {
	ask := s.guarded(func(r micro.Request) {
		if s.closing.Err() != nil {
			s.deny(r, unavailable("this server stops; the command was not stored"))
			return
		}
		ctx, cancel := s.answering()
		defer cancel()
		if p := s.room(ctx, cmd); p != nil {
			s.deny(r, p)
			return
		}
		m, err := s.o.Commands.AskMsg(ctx, cmd, nil)
		var accepted *streams.AcceptedError
		switch {
		case errors.As(err, &accepted): // silence, as of whoever is still at it
		case err != nil:
			s.microFailed(r, storing(err))
		default:
			s.reply(r, &nats.Msg{Header: m.Header, Data: m.Data})
		}
	})
	return s.limits.commands.Do(client, func() { ask(r) })
}
