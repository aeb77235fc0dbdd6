package publish

// From a Command to the engine's answer. Start builds the message (Message), asks the gate, and sends it to COMMANDS (send in resend.go); when the stream has seen its id before,
// lookup asks for the original outcome. Send waits until the command is stored; Ask and AskMsg wait for the answer of the engine, which comes on a reply subject of this process.
// API, prober, observer and effect workers send through it.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// errNoStream says that nobody listens on the subject, so that certainly nothing was stored.
var errNoStream = errors.New("no stream takes it")

// Command is what is asked of one entity.
type Command struct {
	Machine string
	Key     string
	Name    string
	ID      string // the caller's idempotency key; one that nobody can guess is made up when it is empty
	Actor   string
	Reason  string
	Trace   string        // W3C traceparent
	Expect  string        // revision that the entity must be at, or empty
	Fence   string        // claim of a partition under which a report was made, or empty; see consumers.Fence
	Wait    time.Duration // how long the sender waits for the outcome; events may mention it, nothing depends on it
	Body    []byte
}

// ErrGated says that a command was not sent because nothing is to be stored now; see [Commands.Gate].
var ErrGated = errors.New("nothing is stored now")

// NotStored reports whether an error of a command means that it was certainly not stored: it was not sent, or there was no stream to take it, although both may be an
// [ErrUnanswered]; or the stream has refused it for the message itself, for want of room, or since it has too much to take, and no other try is open.
func NotStored(err error) bool {
	return errors.Is(err, ErrGated) || errors.Is(err, errNoStream) || !errors.Is(err, ErrUnanswered) && (Permanent(err) || OutOfRoom(err) || TooMany(err))
}

// Commands sends commands and awaits their answers. One serves a whole process: answers come over one subscription, and no goroutine waits for a disk.
type Commands struct {
	// Gate, when set, is asked before a command is stored: its error refuses the command at once, as [ErrUnanswered].
	// It is set before the first command.
	Gate func() error

	// Again is after how long without an answer a command is sent to the stream again, under its id, for half of the time that an answer is awaited; 0 never sends again. It is
	// for streams with replicas, whose leader may be lost with the command.
	Again time.Duration

	a     *Appender
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription

	next    atomic.Uint64
	waiters sync.Map // token to *asking
}

// NewCommands listens for answers on the appender's connection.
func NewCommands(a *Appender) (*Commands, error) {
	c := &Commands{a: a, nc: a.nc, inbox: a.nc.NewInbox() + "."}
	sub, err := c.nc.Subscribe(c.inbox+"*", func(m *nats.Msg) {
		if w, ok := c.waiters.LoadAndDelete(m.Subject[len(c.inbox):]); ok {
			a := w.(*asking)
			a.answer <- m
			a.sent.answered()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("streams: cannot listen for answers to commands: %w", err)
	}
	c.sub = sub
	return c, nil
}

// Close stops listening.
func (c *Commands) Close() { _ = c.sub.Unsubscribe() } // the connection may be gone already

// Message builds the message of a command. The answer goes to reply, if that is not empty.
func (c *Commands) Message(cmd Command, reply string) (*nats.Msg, error) {
	if _, _, _, err := streams.SplitKey(cmd.Key); err != nil {
		return nil, fmt.Errorf("streams: cannot address the command: %w", err)
	}
	for _, t := range []string{cmd.Machine, cmd.Name} {
		if err := streams.CheckToken(t); err != nil {
			return nil, fmt.Errorf("streams: cannot address the command: %w", err)
		}
	}
	if cmd.ID == "" {
		cmd.ID = streams.MadeUpID(rand.Text())
	}
	m := &nats.Msg{Subject: c.a.names.Command(cmd.Machine, cmd.Key, cmd.Name), Data: cmd.Body, Header: make(nats.Header, 6)}
	m.Header[streams.HeaderID] = []string{streams.CommandID(cmd.Machine, cmd.Key, cmd.ID)}
	wait := ""
	if cmd.Wait > 0 {
		wait = cmd.Wait.String()
	}
	for _, h := range [][2]string{{streams.HeaderWait, wait}, {streams.HeaderReply, reply}, {streams.HeaderActor, cmd.Actor}, {streams.HeaderReason, cmd.Reason}, {streams.HeaderTrace, cmd.Trace}, {streams.HeaderExpect, cmd.Expect}, {streams.HeaderFence, cmd.Fence}} {
		if h[1] != "" {
			m.Header[h[0]] = []string{h[1]}
		}
	}
	return m, nil
}

// Start sends a command without waiting; stored is called once when the stream has taken it or not. The answer goes to
// reply, if that is not empty, also when the id was seen before: then the answer is the original outcome.
func (c *Commands) Start(cmd Command, reply string, stored func(Result)) error {
	s, err := c.sending(cmd, reply, stored)
	if err == nil {
		s.try()
	}
	return err
}

// sending makes one, which its first try begins.
func (c *Commands) sending(cmd Command, reply string, stored func(Result)) (*sending, error) {
	m, err := c.Message(cmd, reply)
	if err != nil {
		return nil, err
	}
	if c.Gate != nil {
		if err := c.Gate(); err != nil {
			return nil, fmt.Errorf("%w: %w: %w", ErrUnanswered, ErrGated, err)
		}
	}
	return newSending(c, m, func(r Result) {
		if r.Err == nil && r.Duplicate { // which proves nothing: somebody may have used the id up for another entity
			c.lookup(m, cmd)
		}
		if stored != nil {
			stored(r)
		}
	}), nil
}

// lookup sends a command once more whose id the stream has seen before, under an id of its own. It is processed after the first one and gets the same answer; if the entity never
// took a command with that id, somebody else has used the id up, and the command is applied now.
func (c *Commands) lookup(m *nats.Msg, cmd Command) {
	q := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: make(nats.Header, len(m.Header)+1)}
	for k, v := range m.Header {
		q.Header[k] = v
	}
	q.Header[streams.HeaderLookup] = m.Header[streams.HeaderID]
	q.Header[streams.HeaderID] = []string{streams.CommandID(cmd.Machine, cmd.Key, streams.MadeUpID(rand.Text()))}
	c.a.Go(c.a.names.Stream(streams.CommandStream), q, func(Result) {}) // unanswered, the waiter times out, as it would have
}

// Send stores a command and returns when it is stored.
func (c *Commands) Send(ctx context.Context, cmd Command) (Result, error) {
	done := make(chan Result, 1)
	if err := c.Start(cmd, "", func(r Result) { done <- r }); err != nil {
		return Result{}, err
	}
	select {
	case r := <-done:
		return r, r.Err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
}

// Ask stores a command and waits for the engine's answer, in the form that the engine writes it. When ctx ends after
// the command was stored, the error is an [*AcceptedError].
func (c *Commands) Ask(ctx context.Context, cmd Command) ([]byte, error) {
	m, err := c.AskMsg(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// AskMsg is [Commands.Ask] with the headers of the answer (see [streams.Replayed]). told, if it is not nil, is called once when the stream
// has taken the command or not; it must not block. It is not called when the error is that the command cannot be sent.
func (c *Commands) AskMsg(ctx context.Context, cmd Command, told func(Result)) (*nats.Msg, error) {
	token := strconv.FormatUint(c.next.Add(1), 36)
	var ended atomic.Int32
	forget := func() { // for as long as it may be sent again, its answer is heard, also when nobody waits for it any more
		if ended.Add(1) == 2 {
			c.waiters.Delete(token)
		}
	}
	stored := make(chan Result, 1)
	s, err := c.sending(cmd, c.inbox+token, func(r Result) {
		if told != nil {
			told(r)
		}
		stored <- r
		forget()
	})
	if err != nil {
		return nil, err
	}
	a := &asking{sent: s, answer: make(chan *nats.Msg, 1)}
	c.waiters.Store(token, a)
	defer forget()
	s.try()
	var seq uint64
	seen := false
	for {
		select {
		case b := <-a.answer:
			return b, nil
		case r := <-stored:
			if r.Err != nil {
				select {
				case b := <-a.answer: // which says more
					return b, nil
				default:
					return nil, r.Err
				}
			}
			seq, seen, stored = r.Seq, r.Duplicate, nil
		case <-ctx.Done():
			if seq != 0 {
				return nil, &AcceptedError{Seq: seq, Seen: seen, Err: ctx.Err()}
			}
			return nil, fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
		}
	}
}

// asking is a command whose answer is awaited, and ends its sending.
type asking struct {
	sent   *sending
	answer chan *nats.Msg // has room for the one answer
}

// AcceptedError says that a command was stored, but not answered in time. It will be applied or refused.
type AcceptedError struct {
	Seq  uint64 // in COMMANDS
	Seen bool   // the stream had seen the id before: the earlier command is still in progress
	Err  error
}

func (e *AcceptedError) Error() string {
	return fmt.Sprintf("the command is stored as %d, its answer did not come in time: %v", e.Seq, e.Err)
}

// Unwrap gives why the wait ended.
func (e *AcceptedError) Unwrap() error { return e.Err }
