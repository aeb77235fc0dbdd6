package sink

// From a batch of rows and markers to the stream. Publish, called by the lanes of mode claim and, for log/deliver, by session.Opener, takes the fastest way that the stream offers: one atomic
// batch (atomic), fast ingest (fast.go), or message by message (single), each guarded by the last marker of its session: every message, or the first of each session in an atomic batch. Answers arrive in answered and are awaited by
// next; the error says whether the rest was refused, fenced off, or may have been stored.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/publish"
)

// Headers of JetStream that the publisher sets by hand.
const (
	headerGuard        = "Nats-Expected-Last-Subject-Sequence"
	headerGuardSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerBatchID      = "Nats-Batch-Id"
	headerBatchSeq     = "Nats-Batch-Sequence"
	headerBatchCommit  = "Nats-Batch-Commit"
)

// few messages are cheaper without a batch: it makes a whole store for itself.
const few = 16

// ErrFenced says that somebody else took the shard: nothing of what came after the fence was stored.
var ErrFenced = errors.New("the shard was taken over")

// ErrUnknown says that it is not known what was stored.
var ErrUnknown = errors.New("not known whether it was stored")

// RefusedError is a row that the stream will never take. All rows before it in the batch were stored, none after it.
type RefusedError struct {
	Index int
	Err   error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// Session is a shard that a relay has opened. Its messages expect the last marker of the shard to be its own, so that nothing is
// stored once another relay has written one.
type Session interface {
	Guard() (subject, sequence []string) // of its last marker, as values of headers
	Marker() *nats.Msg                   // its next one
	Marked(sequence uint64)              // that was stored
}

// Item is a row in the hands of the session that guards it.
type Item struct {
	Row     *Row
	Session Session
}

// Publisher stores batches. It has one batch under way at a time.
type Publisher struct {
	NC         *nats.Conn
	Can        Abilities
	Fsync      bool                            // the server syncs every write: atomic batches share one
	Sync       func(ctx context.Context) error // returns when what the stream has acknowledged is on disk; nil where an ack says so
	Prefix     string                          // of the subjects
	Source     string                          // name of the database
	Structured bool                            // events are published in structured mode
	Types      *outbox.Types                   // which events there are; nil knows all
	Gate       func() error                    // why nothing is to be stored now; may be nil
	Wait       time.Duration                   // for an answer; 0 is 5 s

	Drops func(*nats.Msg) bool // reports whether a test loses this answer

	enc   *encoder
	inbox string
	sub   *nats.Subscription
	mu    sync.Mutex
	batch string // token in the reply subjects of the batch under way
	reply chan *nats.Msg
}

// Start listens for answers until Close.
func (p *Publisher) Start() error {
	p.enc = newEncoder(p.Prefix, p.Source, p.Can.MaxBytes)
	p.enc.structured = p.Structured
	p.Wait = cmp.Or(p.Wait, 5*time.Second)
	p.inbox, p.reply = p.NC.NewInbox(), make(chan *nats.Msg, 4096)
	sub, err := p.NC.Subscribe(p.inbox+".>", p.answered)
	if err != nil {
		return fmt.Errorf("relay: cannot listen for answers: %w", err)
	}
	p.sub = sub
	return sub.SetPendingLimits(-1, -1)
}

// Close ends what Start began.
func (p *Publisher) Close() { _ = p.sub.Unsubscribe() } // the connection may be gone

// Adopt sets what the stream can do from now on. Nothing may be under way.
func (p *Publisher) Adopt(can Abilities) { p.Can, p.enc.limit = can, can.MaxBytes }

// Fits refuses what can never be published, and what the application does not know.
func (p *Publisher) Fits(r *Row) error {
	if p.Types.Park(r.EventType) {
		return fmt.Errorf("event type %q: %w", r.EventType, outbox.ErrUnknownType)
	}
	return p.enc.fits(r)
}

// Mark stores the marker of a session, whatever the gate says.
func (p *Publisher) Mark(ctx context.Context, s Session) error {
	server := p.NC.ConnectedServerId()
	_, err := p.single(ctx, nil, []Session{s})
	_, err = p.synced(ctx, server, 0, err)
	return err
}

// synced is the outcome of a batch when what it stored is on disk, or says that this is not known. Only the server that the batch was sent to can say it: the one that came
// after a power loss has on disk all that it has, and may lack what that one had acknowledged.
func (p *Publisher) synced(ctx context.Context, server string, stored int, err error) (int, error) {
	var refused *RefusedError // of one row: those before it are stored
	if p.Sync == nil || err != nil && !errors.As(err, &refused) {
		return stored, err
	}
	if errSync := p.Sync(ctx); errSync != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, errSync)
	}
	if now := p.NC.ConnectedServerId(); server == "" || now != server {
		return 0, fmt.Errorf("%w: the server that acknowledged it is another one than the one connected now", ErrUnknown)
	}
	return stored, err
}

// answered passes on what belongs to the batch under way. The answers of a batch are few: flow control, an error, the end.
func (p *Publisher) answered(m *nats.Msg) {
	token, _, _ := strings.Cut(m.Subject[len(p.inbox)+1:], ".")
	p.mu.Lock()
	current := token == p.batch
	p.mu.Unlock()
	if !current || p.Drops != nil && p.Drops(m) {
		return
	}
	select {
	case p.reply <- m:
	default: // errors of a batch that has ended already: the first one was kept
	}
}

// begin makes a batch the one under way.
func (p *Publisher) begin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = nuid.Next()
	for {
		select {
		case <-p.reply:
		default:
			return p.batch
		}
	}
}

// Publish stores the items in order, and a marker for each of the sessions in marks after them. A nil error says that
// all of it is stored; see ErrFenced, ErrUnknown and RefusedError for the others. Each message, or the first of each session in an atomic
// batch, is guarded by the marker of its session, so that nothing is stored once another relay has written one.
func (p *Publisher) Publish(ctx context.Context, items []Item, marks []Session) (int, error) {
	n := len(items) + len(marks)
	if p.Gate != nil && n > 0 {
		if err := p.Gate(); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	if n == 0 {
		return 0, nil
	}
	server := p.NC.ConnectedServerId()
	stored, err := p.store(ctx, items, marks)
	return p.synced(ctx, server, stored, err)
}

// store sends the messages in the way that is the cheapest here.
func (p *Publisher) store(ctx context.Context, items []Item, marks []Session) (int, error) {
	n := len(items) + len(marks)
	switch {
	case n == 1 || !p.Can.Fast && !p.Can.Atomic:
		return p.single(ctx, items, marks)
	case p.Can.Atomic && n <= MaxAtomic && (p.Can.Replicas > 1 || !p.Can.Fast || p.Fsync && n > few):
		stored, err := p.atomic(ctx, items, marks)
		var refused *publish.RefusedError
		if errors.As(err, &refused) && !errors.Is(err, publish.ErrConflict) { // nothing was stored, and one message is to blame
			return p.single(ctx, items, marks)
		}
		return stored, outcome(err)
	case p.Can.Fast && p.Can.Replicas == 1:
		return p.fast(ctx, items, marks)
	}
	return p.single(ctx, items, marks)
}

// outcome distinguishes a refused guard from everything else, which leaves doubt.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, publish.ErrConflict):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// message is the i-th message of a batch: a row or, after the rows, a marker.
func (p *Publisher) message(items []Item, marks []Session, i int) (*nats.Msg, Session) {
	if i < len(items) {
		return p.enc.encode(items[i].Row), items[i].Session
	}
	s := marks[i-len(items)]
	return s.Marker(), s
}

func guard(m *nats.Msg, s Session) {
	m.Header[headerGuardSubject], m.Header[headerGuard] = s.Guard()
}

// next is the next answer to the batch under way.
func (p *Publisher) next(ctx context.Context) (*nats.Msg, error) {
	lost := p.NC.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer p.NC.RemoveStatusListener(lost)
	if !p.NC.IsConnected() {
		return nil, fmt.Errorf("%w: the connection to NATS was lost", ErrUnknown)
	}
	t := time.NewTimer(p.Wait)
	defer t.Stop()
	select {
	case m := <-p.reply:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nil, fmt.Errorf("%w: the stream has no leader now", ErrUnknown)
		}
		return m, nil
	case <-lost:
		return nil, fmt.Errorf("%w: the connection to NATS was lost", ErrUnknown)
	case <-t.C:
		return nil, fmt.Errorf("%w: no answer within %s", ErrUnknown, p.Wait)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// ended is the answer that ends a batch, or one of fast ingest's messages about it.
type ended struct {
	Type  string `json:"type"`
	Seq   uint64 `json:"seq"` // of the stream, or in messages with a type that of the batch
	Count int    `json:"count"`
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

func (e ended) refusal() error {
	return &publish.RefusedError{Code: e.Error.Code, Description: e.Error.Description}
}

// advance sets the guards of the sessions whose markers were the last messages of a batch that ended at seq.
func advance(marks []Session, seq uint64) {
	for i, s := range marks {
		s.Marked(seq - uint64(len(marks)-1-i))
	}
}

// atomic sends everything as one atomic batch (ADR-50): all of it is stored or nothing. The guard of a session is on
// the first message of it: the server checks all of them when it commits.
func (p *Publisher) atomic(ctx context.Context, items []Item, marks []Session) (int, error) {
	id, n := p.begin(), len(items)+len(marks)
	guarded := map[Session]bool{}
	batchID, batchSeq := []string{id}, make([]string, 1)
	for i := range n {
		m, s := p.message(items, marks, i)
		delete(m.Header, headerGuard)
		delete(m.Header, headerGuardSubject)
		if !guarded[s] {
			guarded[s] = true
			guard(m, s)
		}
		batchSeq[0] = strconv.Itoa(i + 1)
		m.Header[headerBatchID], m.Header[headerBatchSeq] = batchID, batchSeq
		m.Reply = ""
		if i == n-1 {
			m.Header[headerBatchCommit] = []string{"1"}
			m.Reply = p.inbox + "." + id + ".end"
		}
		err := p.NC.PublishMsg(m)
		delete(m.Header, headerBatchID)
		delete(m.Header, headerBatchSeq)
		delete(m.Header, headerBatchCommit)
		if err != nil {
			return 0, err
		}
	}
	m, err := p.next(ctx)
	if err != nil {
		return 0, err
	}
	var e ended
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return 0, err
	}
	if e.Error != nil {
		return 0, e.refusal()
	}
	advance(marks, e.Seq)
	return len(items), nil
}

// single sends messages one by one, each after the answer to the one before it: slow, and understood by every server.
func (p *Publisher) single(ctx context.Context, items []Item, marks []Session) (int, error) {
	for i := range len(items) + len(marks) {
		m, s := p.message(items, marks, i)
		guard(m, s)
		e, err := p.one(ctx, m)
		if err == nil && e.Error != nil {
			err = e.refusal()
		}
		switch {
		case err == nil:
		case publish.Permanent(err) && i < len(items):
			return i, &RefusedError{i, err}
		default:
			return min(i, len(items)), outcome(err)
		}
		if i >= len(items) {
			s.Marked(e.Seq)
		}
	}
	return len(items), nil
}

// one publishes a message and waits for its answer.
func (p *Publisher) one(ctx context.Context, m *nats.Msg) (ended, error) {
	var e ended
	m.Reply = p.inbox + "." + p.begin() + ".one"
	if err := p.NC.PublishMsg(m); err != nil {
		return e, err
	}
	answer, err := p.next(ctx)
	if err != nil {
		return e, err
	}
	if len(answer.Data) == 0 {
		return e, fmt.Errorf("%w: no stream takes %s", ErrUnknown, m.Subject)
	}
	return e, json.Unmarshal(answer.Data, &e)
}
