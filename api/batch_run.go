package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// claimBatch stores a new batch, or takes over one of the same request that has stalled, with a place to run it, until leave. Revision 0 says
// that it runs elsewhere, or is done; b is then what is stored.
func (q *request) claimBatch(id string, b *batch) (leave func(), rev uint64, err error) {
	leave = func() {}
	stored, err := q.operations.Get(q.ctx(), id)
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return leave, 0, err
	case !sameBatch(&stored.Value, b):
		return leave, 0, problem(machines.CodeKeyReused, "the key was used for another batch")
	default:
		*b = stored.Value
		if b.Done || !b.stalled() {
			q.replayed()
			return leave, 0, nil
		}
		b.goOn()
		b.unsure = batchPage                           // as far as its process may have come
		b.UpdatedAt, b.Done = wallClock(), b.Cancelled // its process died before it could end it
		if !b.Done && b.late(q.o.KeysFor) {
			b.Done, b.Expired = true, true
		}
	}
	if !b.Done {
		if leave, err = q.limits.batches.Take(q.client()); err != nil {
			return nil, 0, tooMany(err, 5*time.Second)
		}
	}
	rev, err = q.operations.Put(q.ctx(), id, *b, stored.Revision)
	switch {
	case kv.Conflict(err): // somebody else was faster
		leave()
		return q.claimBatch(id, b)
	case err != nil:
		leave()
		return nil, 0, err
	}
	if stored.Revision != 0 {
		q.replayed()
	}
	if b.Done {
		rev = 0
	}
	return leave, rev, nil
}

// runBatch sends the command page by page, and stores after each how far it is, and every few seconds that it is at work. It ends with the
// batch, when the server is closed, or when another process has taken it over.
func (s *Server) runBatch(id string, b batch, rev uint64) {
	m := s.machineNamed(b.Request.Machine)
	alive := func() bool {
		b.UpdatedAt = wallClock()
		next, err := s.saveBatch(id, &b, rev, false)
		if err == nil {
			rev = next
		}
		return err == nil && !b.Cancelled
	}
	for !b.Done && !b.Stopped && s.closing.Err() == nil {
		kq, _ := b.query(m) // checked before
		page := s.o.Indexes[m.Name].List(kq)
		n, ended := s.sendPage(id, &b, page.Items, alive)
		if n > 0 {
			b.After = page.Items[n-1].Key
		}
		b.Expired = !ended && !b.Stopped && s.closing.Err() == nil
		b.Done, b.UpdatedAt = page.Next == "" && ended && n == len(page.Items) || b.Expired || b.Cancelled, wallClock()
		var err error
		if rev, err = s.saveBatch(id, &b, rev, true); err != nil {
			s.o.Log.Warn("a batch stops here; sent again under its key, it goes on", "batch", id, "error", err)
			return
		}
	}
}

// saveBatch stores how far a batch is. That somebody wants it to end is the one change that another process makes: it has ended then, unless
// commands of a page are under way.
func (s *Server) saveBatch(id string, b *batch, rev uint64, pageEnded bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	next, err := s.operations.Put(ctx, id, *b, rev)
	if !kv.Conflict(err) {
		return next, err
	}
	stored, err := s.operations.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	if !stored.Value.Cancelled {
		return 0, errors.New("another process goes on with it")
	}
	b.Cancelled, b.Done = true, pageEnded
	return s.operations.Put(ctx, id, *b, stored.Revision)
}

// sendPage sends the command to some entities, and counts what became of it for the first n of them: the rest is for the next page, when
// answers are long in coming. It asks meanwhile whether the batch is to go on (alive). When the server is being closed nothing is counted:
// whoever goes on sends it again, and each entity answers as then. Nothing is counted either, and no more is sent, when it has become too
// late for that; and when commands failed, which stops the batch: their entities have had no turn.
func (s *Server) sendPage(id string, b *batch, items []kv.Item, alive func() bool) (n int, ended bool) {
	outcomes := make([]BatchFailure, len(items)) // Code is the outcome
	sent := make([]bool, len(items))
	gate := make(chan struct{}, batchAtOnce)
	ctx, end := context.WithCancel(s.closing) // of those that wait for their turn
	defer end()
	beat := time.NewTicker(min(batchBeat, s.o.AnswerWithin))
	defer beat.Stop()
	enter := func() {
		for {
			select {
			case gate <- struct{}{}:
				return
			case <-beat.C:
				if !alive() {
					end()
				}
			}
		}
	}
	begun := time.Now()
	for i, it := range items {
		if enter(); ctx.Err() != nil || time.Since(begun) > batchPageWithin {
			<-gate
			break
		}
		go func() {
			defer func() { <-gate }()
			defer func() {
				if p := recover(); p != nil {
					panics.Caught(s.o.Log, "batch", p, "batch", id, "key", it.Key)
					outcomes[i], sent[i] = BatchFailure{it.Key, codeUnavailable, notKnown}, true
				}
			}()
			if outcomes[i], sent[i] = s.sendOne(ctx, id, b, it.Key); !sent[i] {
				end()
			}
		}()
	}
	for range batchAtOnce {
		enter()
	}
	for i := range sent {
		if sent[i] {
			b.unsure = max(b.unsure, i+1)
		}
	}
	if late := ctx.Err() != nil && b.unsure > 0 && b.late(s.o.KeysFor); !b.Cancelled && (late || s.closing.Err() != nil) {
		return 0, false
	}
	if b.stop(outcomes) {
		return 0, false
	}
	for n < len(items) && sent[n] {
		n++
	}
	b.count(outcomes[:n])
	for i := n; i < len(items) && b.Cancelled; i++ { // nobody goes on with the others
		if sent[i] {
			b.count(outcomes[i : i+1])
		}
	}
	if b.unsure = max(0, b.unsure-n); b.unsure == 0 {
		b.Since = wallClock()
	}
	return n, true
}

// count adds what became of commands.
func (b *batch) count(outcomes []BatchFailure) {
	p := &b.Progress
	p.Matched += len(outcomes)
	for _, o := range outcomes {
		switch o.Code {
		case machines.Applied:
			p.Applied++
			continue
		case machines.Unchanged, machines.Ignored:
			p.Unchanged++
			continue
		case "":
			p.Stored++
			continue
		}
		p.Refused++
		if len(p.Failures) < maxFailures {
			p.Failures = append(p.Failures, o)
		}
	}
}

// stop ends the run of a batch before a page of which commands failed, and tells of these.
func (b *batch) stop(outcomes []BatchFailure) bool {
	for _, o := range outcomes {
		if o.Code != codeUnavailable {
			continue
		}
		b.Stopped = true
		if b.Progress.Failed++; len(b.Progress.Failures) < maxFailures {
			b.Progress.Failures = append(b.Progress.Failures, o)
		}
	}
	return b.Stopped
}

// sendOne sends the command to one entity when the turn of the batch's sender comes, unless ctx ends first or it is too late then. There is no room
// to ask for: batches begin no lives.
func (s *Server) sendOne(ctx context.Context, id string, b *batch, key string) (outcome BatchFailure, sent bool) {
	leave, ok := s.batchTurn(ctx, b.client)
	if !ok {
		return outcome, false
	}
	defer leave()
	if b.late(s.o.KeysFor) {
		return outcome, false
	}
	ctx, cancel := context.WithTimeout(s.closing, s.o.AnswerWithin)
	defer cancel()
	m := s.machineNamed(b.Request.Machine)
	told, err := s.o.Commands.AskMsg(ctx, streams.Command{
		Machine: m.Name, Key: key, Name: b.Request.Command, ID: batchName(id), Actor: b.Actor, Reason: b.Reason, Body: b.Request.Body,
	}, nil)
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(told.Data, &a)
	}
	var accepted *streams.AcceptedError
	switch {
	case errors.As(err, &accepted):
		return BatchFailure{}, true
	case err != nil:
		return BatchFailure{key, codeUnavailable, notStored(err)}, true
	}
	if p := denied(m, &a); p != nil {
		return BatchFailure{key, p.Code, p.Detail}, true
	}
	return BatchFailure{Key: key, Code: a.Outcome}, true
}

// batchTurn waits for a turn, also while the client has all the places that it may have: nobody is there to be told to try again. The place in
// the line is kept however long that takes, as behind those of the same client who give theirs up later.
func (s *Server) batchTurn(ctx context.Context, client string) (leave func(), ok bool) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		leave, err := s.limits.commands.Take(ctx, client)
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

const notKnown = "it is not known whether the command was stored"

// notStored says what it means that a command failed.
func notStored(err error) string {
	var p *Problem
	switch {
	case errors.As(storing(err), &p):
		return p.Detail
	case errors.Is(err, streams.ErrGated):
		return gated().Detail
	}
	return notKnown
}
