package operations

// How a batch runs. claimBatch stores a new batch for startBatch, or takes over a stalled one. runBatch then takes matching entities
// from the index page by page, sends the command to each (sendPage, sendOne: through commands.Sender, in turns of the client),
// counts the answers, and stores the batch after each page by compare-and-set, which keeps a second process from running it.

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// claimBatch stores a new batch, or takes over one of the same request that has stalled, with a place to run it, until leave. Revision 0 says
// that it runs elsewhere, or is done; b is then what is stored.
func (s *Service) claimBatch(q *rest.Request, id string, b *batch) (leave func(), rev uint64, err error) {
	leave = func() {}
	stored, err := entities.InTurn(q, s.batches, id)
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return leave, 0, err
	case !sameBatch(&stored.Value, b):
		return leave, 0, problem.New(machines.CodeKeyReused, "the key was used for another batch")
	default:
		*b = stored.Value
		if b.Done || !b.stalled() {
			q.Replayed()
			return leave, 0, nil
		}
		b.resume()
		b.unsure = batchPage                           // as far as its process may have come
		b.UpdatedAt, b.Done = wallClock(), b.Cancelled // its process died before it could end it
		if !b.Done && b.late(s.keysFor) {
			b.Done, b.Expired = true, true
		}
	}
	if !b.Done {
		if leave, err = s.Running.Take(q.Client()); err != nil {
			return nil, 0, rest.TooMany(err, 5*time.Second)
		}
	}
	rev, err = s.batches.Put(q.Context(), id, *b, stored.Revision)
	switch {
	case kv.Conflict(err): // somebody else was faster
		leave()
		return s.claimBatch(q, id, b)
	case err != nil:
		leave()
		return nil, 0, err
	}
	if stored.Revision != 0 {
		q.Replayed()
	}
	if b.Done {
		rev = 0
	}
	return leave, rev, nil
}

// runBatch sends the command page by page, and stores after each how far it is, and every few seconds that it is at work. It ends with the
// batch, when the server is closed, or when another process has taken it over.
func (s *Service) runBatch(id string, b batch, rev uint64) {
	m := s.store.Machines.Get(b.Request.Machine)
	alive := func() bool {
		b.UpdatedAt = wallClock()
		next, err := s.saveBatch(id, &b, rev, false)
		if err == nil {
			rev = next
		}
		return err == nil && !b.Cancelled
	}
	for !b.Done && !b.Stopped && s.rest.Closing().Err() == nil {
		kq, _ := b.query(m) // checked before
		page := s.store.Index(m.Name).List(kq)
		n, ended := s.sendPage(id, &b, page.Items, alive)
		if n > 0 {
			b.After = page.Items[n-1].Key
		}
		b.Expired = !ended && !b.Stopped && s.rest.Closing().Err() == nil
		b.Done, b.UpdatedAt = page.Next == "" && ended && n == len(page.Items) || b.Expired || b.Cancelled, wallClock()
		var err error
		if rev, err = s.saveBatch(id, &b, rev, true); err != nil {
			s.rest.Log.Warn("a batch was interrupted; sent again with its key, it continues", "batch", id, "error", err)
			return
		}
	}
}

// saveBatch stores how far a batch is. The one change that another process may have made is a cancellation: then the batch has ended, unless
// commands of a page are under way.
func (s *Service) saveBatch(id string, b *batch, rev uint64, pageEnded bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	next, err := s.batches.Put(ctx, id, *b, rev)
	if !kv.Conflict(err) {
		return next, err
	}
	stored, err := s.batches.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	if !stored.Value.Cancelled {
		return 0, errors.New("another process goes on with it")
	}
	b.Cancelled, b.Done = true, pageEnded
	return s.batches.Put(ctx, id, *b, stored.Revision)
}

// sendPage sends the command to some entities, and counts what became of it for the first n of them: the rest is left to the next page if
// answers take long. Meanwhile it stores that the batch runs, and asks whether it is to continue (alive). When the server is being closed
// nothing is counted: whoever continues sends the page again, and each entity repeats its answer. Nothing is counted either, and no more is
// sent, when it has become too late for that, and when commands failed, which stops the batch: their entities have had no turn.
func (s *Service) sendPage(id string, b *batch, items []index.Item, alive func() bool) (n int, ended bool) {
	outcomes := make([]BatchFailure, len(items)) // Code is the outcome
	sent := make([]bool, len(items))
	gate := make(chan struct{}, batchAtOnce)
	ctx, end := context.WithCancel(s.rest.Closing()) // of those that wait for their turn
	defer end()
	beat := time.NewTicker(min(batchBeat, s.sender.AnswerWithin))
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
	begun, again := time.Now(), b.unsure
	for i, it := range items {
		if enter(); ctx.Err() != nil || time.Since(begun) > batchPageWithin {
			<-gate
			break
		}
		go func() {
			defer func() { <-gate }()
			defer func() {
				if p := recover(); p != nil {
					panics.Caught(s.rest.Log, "batch", p, "batch", id, "key", it.Key)
					outcomes[i], sent[i] = BatchFailure{it.Key, problem.CodeUnavailable, notKnown}, true
				}
			}()
			if outcomes[i], sent[i] = s.sendOne(ctx, id, b, it.Key, i < again); !sent[i] {
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
	if late := ctx.Err() != nil && b.unsure > 0 && b.late(s.keysFor); !b.Cancelled && (late || s.rest.Closing().Err() != nil) {
		return 0, false
	}
	if b.stop(outcomes) {
		return 0, false
	}
	for n < len(items) && sent[n] {
		n++
	}
	b.count(outcomes[:n])
	for i := n; i < len(items) && b.Cancelled; i++ { // there is no next page that would count them
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

// stop stops a batch before a page in which commands failed, and records these.
func (b *batch) stop(outcomes []BatchFailure) bool {
	for _, o := range outcomes {
		if o.Code != problem.CodeUnavailable {
			continue
		}
		b.Stopped = true
		if b.Progress.Failed++; len(b.Progress.Failures) < maxFailures {
			b.Progress.Failures = append(b.Progress.Failures, o)
		}
	}
	return b.Stopped
}

// sendOne sends the command to one entity when the turn of the batch's sender comes, unless ctx ends first or it is too late then. The quota is not
// asked: batches create no entities. Doors are, unless the entity may have got the command already: then it repeats its answer.
func (s *Service) sendOne(ctx context.Context, id string, b *batch, key string, again bool) (outcome BatchFailure, sent bool) {
	leave, ok := s.sender.PatientTurn(ctx, b.client)
	if !ok {
		return outcome, false
	}
	defer leave()
	if b.late(s.keysFor) {
		return outcome, false
	}
	ctx, cancel := context.WithTimeout(s.rest.Closing(), s.sender.AnswerWithin)
	defer cancel()
	m := s.store.Machines.Get(b.Request.Machine)
	cmd := publish.Command{Machine: m.Name, Key: key, Name: b.Request.Command, ID: batchName(id), Actor: b.Actor, Reason: b.Reason, Body: b.Request.Body}
	ask := s.sender.Repeat
	if !again {
		if p := s.sender.Admit(cmd); p != nil {
			return BatchFailure{key, p.Code, p.Detail}, true
		}
		ask = s.sender.Ask
	}
	told, err := ask(ctx, cmd, nil)
	if p := (*problem.Problem)(nil); errors.As(err, &p) { // its place went to another one meanwhile
		return BatchFailure{key, p.Code, p.Detail}, true
	}
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(told.Data, &a)
	}
	var accepted *publish.AcceptedError
	switch {
	case errors.As(err, &accepted):
		return BatchFailure{}, true
	case err != nil:
		return BatchFailure{key, problem.CodeUnavailable, notStored(err)}, true
	}
	if p := commands.Denied(m, &a); p != nil {
		return BatchFailure{key, p.Code, p.Detail}, true
	}
	return BatchFailure{Key: key, Code: a.Outcome}, true
}

const notKnown = "it is not known whether the command was stored"

// notStored is the detail that is shown of a command that failed.
func notStored(err error) string {
	var p *problem.Problem
	switch {
	case errors.As(commands.Problem(err), &p):
		return p.Detail
	case errors.Is(err, publish.ErrGated):
		return problem.Gated().Detail
	}
	return notKnown
}
