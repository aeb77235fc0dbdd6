package relay

import (
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

const (
	maxAtomic = 1000    // the server's limit of messages in an atomic batch
	maxBytes  = 8 << 20 // of a batch, so that neither side holds more than this in memory
	few       = 16      // messages that are cheaper without a batch: it makes a whole store for itself
)

// errFenced says that somebody else took the shard: nothing of what came after the fence was stored.
var errFenced = errors.New("the shard was taken over")

// errDoubt says that it is not known what was stored.
var errDoubt = errors.New("not known whether it was stored")

// refusedError is a row that the stream will never take. All rows before it in the batch were stored, none after it.
type refusedError struct {
	index int
	err   error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// item is a row in the hands of the session that guards it.
type item struct {
	row *row
	s   *session
}

// publisher stores batches. It has one batch under way at a time.
type publisher struct {
	nc    *nats.Conn
	can   abilities
	fsync bool // the server syncs every write: atomic batches share one
	enc   *encoder
	wait  time.Duration
	gate  func() error // may be nil

	inbox string
	sub   *nats.Subscription
	mu    sync.Mutex
	batch string // token in the reply subjects of the batch under way
	reply chan *nats.Msg
	drops func(*nats.Msg) bool // a test loses answers here
}

func (p *publisher) start() error {
	p.inbox, p.reply = p.nc.NewInbox(), make(chan *nats.Msg, 4096)
	sub, err := p.nc.Subscribe(p.inbox+".>", p.answered)
	if err != nil {
		return fmt.Errorf("relay: cannot listen for answers: %w", err)
	}
	p.sub = sub
	return sub.SetPendingLimits(-1, -1)
}

func (p *publisher) close() { _ = p.sub.Unsubscribe() } // the connection may be gone

// answered passes on what belongs to the batch under way. The answers of a batch are few: flow control, an error, the end.
func (p *publisher) answered(m *nats.Msg) {
	token, _, _ := strings.Cut(m.Subject[len(p.inbox)+1:], ".")
	p.mu.Lock()
	current := token == p.batch
	p.mu.Unlock()
	if !current || p.drops != nil && p.drops(m) {
		return
	}
	select {
	case p.reply <- m:
	default: // errors of a batch that has ended already: the first one was kept
	}
}

// begin makes a batch the one under way.
func (p *publisher) begin() string {
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

// publish stores the items in order, and a marker for each of the sessions in marks after them. A nil error says that
// all of it is stored; see errFenced, errDoubt and refusedError for the others. Each message is guarded by the marker of
// its session, so that nothing is stored once another relay has written one.
func (p *publisher) publish(ctx context.Context, items []item, marks []*session) (int, error) {
	n := len(items) + len(marks)
	if p.gate != nil && n > 0 {
		if err := p.gate(); err != nil {
			return 0, fmt.Errorf("%w: %w", errDoubt, err)
		}
	}
	switch {
	case n == 0:
		return 0, nil
	case n == 1 || !p.can.fast && !p.can.atomic:
		return p.single(ctx, items, marks)
	case p.can.atomic && n <= maxAtomic && (p.can.replicas > 1 || !p.can.fast || p.fsync && n > few):
		stored, err := p.atomic(ctx, items, marks)
		var refused *publish.RefusedError
		if errors.As(err, &refused) && !errors.Is(err, publish.ErrConflict) { // nothing was stored, and one message is to blame
			return p.single(ctx, items, marks)
		}
		return stored, outcome(err)
	case p.can.fast && p.can.replicas == 1:
		return p.fast(ctx, items, marks)
	}
	return p.single(ctx, items, marks)
}

// outcome tells a refused guard from everything else that leaves doubt.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, publish.ErrConflict):
		return fmt.Errorf("%w: %w", errFenced, err)
	}
	return fmt.Errorf("%w: %w", errDoubt, err)
}

// message is the i-th message of a batch: a row or, after the rows, a marker.
func (p *publisher) message(items []item, marks []*session, i int) (*nats.Msg, *session) {
	if i < len(items) {
		return p.enc.encode(items[i].row), items[i].s
	}
	s := marks[i-len(items)]
	return s.message(), s
}

func guard(m *nats.Msg, s *session) {
	m.Header[headerGuard] = s.guardSlot()
	m.Header[headerGuardSubject] = s.subjectSlot
}

// fast sends a batch with JetStream's fast ingest in the mode that ends at the first gap or refused message: what is
// stored is a prefix. The server checks the guard of every message.
func (p *publisher) fast(ctx context.Context, items []item, marks []*session) (int, error) {
	id, n := p.begin(), len(items)+len(marks)
	base := p.inbox + "." + id + ".500.fail."
	var s0 *session
	buf := make([]byte, 0, len(base)+16)
	for i := range n {
		m, s := p.message(items, marks, i)
		guard(m, s)
		s0 = s
		op := ".1.$FI"
		switch {
		case i == n-1:
			op = ".2.$FI" // commits
		case i == 0:
			op = ".0.$FI"
		}
		m.Reply = string(append(strconv.AppendInt(append(buf, base...), int64(i+1), 10), op...))
		if err := p.nc.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("%w: %w", errDoubt, err)
		}
	}
	return p.settle(ctx, flight{n, len(items), func() error { // an end that is not a message
		return p.nc.PublishMsg(&nats.Msg{Subject: s0.subject, Reply: base + strconv.Itoa(n) + ".3.$FI"})
	}}, marks)
}

// flight is a fast batch under way.
type flight struct {
	n, rows int // messages, and how many of them are rows: the first
	end     func() error
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

// settle waits for the end of a fast batch.
func (p *publisher) settle(ctx context.Context, f flight, marks []*session) (int, error) {
	var refused error
	at := 0
	for {
		m, err := p.next(ctx)
		if err != nil {
			return 0, err
		}
		var e ended
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return 0, fmt.Errorf("%w: unreadable answer: %w", errDoubt, err)
		}
		switch {
		case e.Type == "err" && e.Error != nil:
			refused, at = e.refusal(), int(e.Seq)
			continue
		case e.Type != "":
			continue // flow control, or a gap: the end will tell how far it came
		case e.Error != nil:
			refused, at = e.refusal(), ordinal(m.Subject)
			if at > 1 && at < f.n {
				continue // the next message ends the batch at the gap
			}
			if at > 1 { // refused before it could end the batch
				if err := f.end(); err != nil {
					return 0, fmt.Errorf("%w: %w", errDoubt, err)
				}
				continue
			}
		case e.Count == f.n:
			advance(marks, e.Seq)
			return f.rows, nil
		}
		stored := min(e.Count, f.rows)
		switch {
		case refused == nil:
			return stored, fmt.Errorf("%w: the batch ended after %d of %d messages", errDoubt, e.Count, f.n)
		case publish.Permanent(refused) && at == e.Count+1 && at <= f.rows:
			return stored, &refusedError{at - 1, refused}
		}
		return stored, outcome(refused)
	}
}

// ordinal is the number of the message that a reply of a fast batch is for: <inbox>.<batch>.<flow>.<gap>.<n>.<op>.$FI.
func ordinal(reply string) int {
	tokens := strings.Split(reply, ".")
	n, err := strconv.Atoi(tokens[max(len(tokens)-3, 0)])
	if err != nil {
		return 1
	}
	return n
}

// next is the next answer to the batch under way.
func (p *publisher) next(ctx context.Context) (*nats.Msg, error) {
	lost := p.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer p.nc.RemoveStatusListener(lost)
	if !p.nc.IsConnected() {
		return nil, fmt.Errorf("%w: the connection to NATS was lost", errDoubt)
	}
	t := time.NewTimer(p.wait)
	defer t.Stop()
	select {
	case m := <-p.reply:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nil, fmt.Errorf("%w: the stream has no leader now", errDoubt)
		}
		return m, nil
	case <-lost:
		return nil, fmt.Errorf("%w: the connection to NATS was lost", errDoubt)
	case <-t.C:
		return nil, fmt.Errorf("%w: no answer within %s", errDoubt, p.wait)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errDoubt, ctx.Err())
	}
}

// advance sets the guards of the sessions whose markers were the last messages of a batch that ended at seq.
func advance(marks []*session, seq uint64) {
	for i, s := range marks {
		s.marked(seq - uint64(len(marks)-1-i))
	}
}

// atomic sends everything as one atomic batch (ADR-50): all of it is stored or nothing. The guard of a session is on
// the first message of it: the server checks all of them when it commits.
func (p *publisher) atomic(ctx context.Context, items []item, marks []*session) (int, error) {
	id, n := p.begin(), len(items)+len(marks)
	guarded := map[*session]bool{}
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
		err := p.nc.PublishMsg(m)
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
func (p *publisher) single(ctx context.Context, items []item, marks []*session) (int, error) {
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
			return i, &refusedError{i, err}
		default:
			return min(i, len(items)), outcome(err)
		}
		if i >= len(items) {
			s.marked(e.Seq)
		}
	}
	return len(items), nil
}

// one publishes a message and waits for its answer.
func (p *publisher) one(ctx context.Context, m *nats.Msg) (ended, error) {
	var e ended
	m.Reply = p.inbox + "." + p.begin() + ".one"
	if err := p.nc.PublishMsg(m); err != nil {
		return e, err
	}
	answer, err := p.next(ctx)
	if err != nil {
		return e, err
	}
	if len(answer.Data) == 0 {
		return e, fmt.Errorf("%w: no stream takes %s", errDoubt, m.Subject)
	}
	return e, json.Unmarshal(answer.Data, &e)
}
