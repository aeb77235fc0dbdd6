package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// runBatch sends the command page by page, and stores after each how far it is. It ends with the batch, when the server
// is closed, or when another process has taken it over.
func (s *Server) runBatch(id string, b batch, rev uint64) {
	m := s.machineNamed(b.Request.Machine)
	for !b.Done && !b.Stopped && s.closing.Err() == nil {
		kq, _ := b.query(m) // checked before
		page := s.o.Indexes[m.Name].List(kq)
		ended := s.sendPage(id, &b, page.Items)
		if n := len(page.Items); n > 0 && ended {
			b.After = page.Items[n-1].Key
		}
		b.Expired = !ended && !b.Stopped && s.closing.Err() == nil
		b.Done, b.UpdatedAt = page.Next == "" && ended || b.Expired, wallClock()
		if ended {
			b.Since = b.UpdatedAt
		}
		var err error
		if rev, err = s.saveBatch(id, &b, rev); err != nil {
			s.o.Log.Warn("a batch stops here; sent again under its key, it goes on", "batch", id, "error", err)
			return
		}
	}
}

// saveBatch stores how far a batch is. That somebody wants it to end is the one change that another process makes.
func (s *Server) saveBatch(id string, b *batch, rev uint64) (uint64, error) {
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
	b.Cancelled, b.Done = true, true
	return s.operations.Put(ctx, id, *b, stored.Revision)
}

// sendPage sends the command to some entities and counts what became of it. When the server is being closed nothing is
// counted: whoever goes on sends it again, and each entity answers as then. Nothing is counted either, and no more is sent, when it has
// become too late for that; and when commands failed, which stops the batch: their entities have had no turn.
func (s *Server) sendPage(id string, b *batch, items []kv.Item) (ended bool) {
	outcomes := make([]BatchFailure, len(items)) // Code is the outcome
	gate := make(chan struct{}, batchAtOnce)
	late := false
	for i, it := range items {
		gate <- struct{}{}
		if late = b.late(s.o.KeysFor); late {
			<-gate
			break
		}
		go func() {
			defer func() { <-gate }()
			defer func() {
				if p := recover(); p != nil {
					panics.Caught(s.o.Log, "batch", p, "batch", id, "key", it.Key)
					outcomes[i] = BatchFailure{it.Key, codeUnavailable, "it is not known whether the command was stored"}
				}
			}()
			outcomes[i] = s.sendOne(id, b, it.Key)
		}()
	}
	for range batchAtOnce {
		gate <- struct{}{}
	}
	if s.closing.Err() != nil || late {
		return false
	}
	if b.stop(outcomes) {
		return false
	}
	p := &b.Progress
	p.Matched += len(items)
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
	return true
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

func (s *Server) sendOne(id string, b *batch, key string) BatchFailure {
	ctx, cancel := context.WithTimeout(s.closing, s.o.AnswerWithin)
	defer cancel()
	m := s.machineNamed(b.Request.Machine)
	told, err := s.askInTurn(ctx, tokenClient(b.Actor), streams.Command{
		Machine: m.Name, Key: key, Name: b.Request.Command, ID: batchName(id), Actor: b.Actor, Reason: b.Reason, Body: b.Request.Body,
	}, nil)
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(told.Data, &a)
	}
	var accepted *streams.AcceptedError
	switch {
	case errors.As(err, &accepted):
		return BatchFailure{}
	case err != nil:
		return BatchFailure{key, codeUnavailable, "it is not known whether the command was stored"}
	}
	if p := denied(m, &a); p != nil {
		return BatchFailure{key, p.Code, p.Detail}
	}
	return BatchFailure{Key: key, Code: a.Outcome}
}
