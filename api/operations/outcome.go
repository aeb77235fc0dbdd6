package operations

// What came of one command that was applied. operations.go calls arrived, which reads the entity and the events after the
// command's answer (takeEvents, from package entities), follows these until the entity comes to rest or another command
// takes over, and waits for that as long as the client asked; describe writes the outcome into the OperationStatus.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// outcome is what came of a command that was applied. It is over where the entity first comes to rest after the command, or
// where another command takes its place; whatever happens to the entity later does not change it. It is read from the events,
// and from the value only as far as they do not say it.
type outcome struct {
	m *machines.Machine

	state      string // the last one that belongs to the command
	version    uint64
	generation uint64 // that the command made
	at         time.Time
	over       bool
	superseded *entities.TimelineEvent // the command that took its place
	failure    *machines.Failure
}

// follow takes in the next event, and reports whether that belongs to the command. The outcome is over when it does not.
func (v *outcome) follow(e *entities.TimelineEvent) bool {
	if v.over && e.Version != v.version {
		return false
	}
	if !v.over && e.From != "" && v.rests(e.From) { // it came there without an event
		v.state, v.version, v.over = e.From, e.Version-1, true
		return false
	}
	in, known := v.m.Input(e.Command)
	if !v.over && known && !in.Report && (e.Generation != v.generation || e.To != e.From) {
		v.superseded, v.at, v.over = e, e.Time, true
		return false
	}
	v.state, v.version, v.at, v.over = e.To, e.Version, e.Time, v.rests(e.To)
	var told struct {
		Error *machines.Failure `json:"error"`
	}
	if json.Unmarshal(e.Data, &told) == nil && told.Error != nil {
		v.failure = told.Error
	}
	return true
}

func (v *outcome) rests(state string) bool {
	st, _ := v.m.State(state)
	return !st.Transitional
}

// outcome reads what came of a command from its answer, which was kept at a time, and from the value of the entity now.
func (s *Service) outcome(q *rest.Request, a asked, answer *machines.Answer, kept time.Time, e *entities.Entity, value []byte) (*outcome, error) {
	begin := outcome{m: a.m, state: answer.State, version: answer.Version, generation: answer.Generation, at: kept}
	if begin.over = begin.rests(begin.state); begin.over || e.Version <= answer.Version {
		return &begin, nil
	}
	if err := s.store.Published(q, a.m, a.key, value); err != nil {
		return nil, err
	}
	v := begin
	all, err := s.takeEvents(q, &v, a.key, entities.Position{At: kept.Add(-clocksApart)})
	if err == nil && !all {
		v = begin
		_, err = s.takeEvents(q, &v, a.key, entities.Position{})
	}
	if err != nil || v.over || e.Version <= v.version {
		return &v, err
	}
	v.state, v.version, v.at, v.failure, v.over = e.State, e.Version, e.UpdatedAt, e.LastError, v.rests(e.State)
	return &v, nil
}

// clocksApart is how much the clocks of the servers that lead two streams may differ for the events after a command to be
// found by the time at which its answer was kept. If they differ more, the timeline is read from its beginning.
const clocksApart = 10 * time.Second

// takeEvents follows the events after the command. It reports false when some of them may lie before the position.
func (s *Service) takeEvents(q *rest.Request, v *outcome, key string, from entities.Position) (all bool, err error) {
	first := v.version + 1
	for {
		page, err := s.store.Timeline(q, v.m, []string{s.store.Names.EventsOf(v.m.Name, key)}, from, rest.MaxPage)
		if err != nil {
			return false, err
		}
		for i := range page.Items {
			e := &page.Items[i]
			version, ok := streams.VersionOf(v.m.Name, key, e.ID)
			if all = all || ok && version <= first; !ok || version < first {
				continue // those of refusals have no version
			}
			if !v.follow(e) {
				return all, nil
			}
		}
		if page.NextCursor == "" {
			return all, nil
		}
		from = entities.Position{After: page.Items[len(page.Items)-1].Seq}
	}
}

// arrived writes into an operation what came of the command, and waits for its end until the time has come.
func (s *Service) arrived(q *rest.Request, op *OperationStatus, a asked, answer *machines.Answer, kept, until time.Time) error {
	for {
		e, stored, err := s.store.LoadStored(q, a.m, a.key)
		if err != nil {
			return err
		}
		v, err := s.outcome(q, a, answer, kept, e, stored.Value)
		if err != nil {
			return err
		}
		if v.over || !s.moved(q, a, e, until) {
			v.describe(op, answer, e)
			return nil
		}
	}
}

// moved waits until an entity is in another state than it was, or has another specification. It reports false when the
// time has come.
func (s *Service) moved(q *rest.Request, a asked, was *entities.Entity, until time.Time) bool {
	ctx, cancel := context.WithDeadline(q.Context(), until)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	_, err := s.store.Index(a.m.Name).WaitFor(ctx, a.key, func(it index.Item) bool {
		return it.Revision > was.Revision && (it.State != was.State || it.Generation != was.Generation)
	})
	return err == nil
}

// describe writes an outcome into an operation.
func (v *outcome) describe(op *OperationStatus, answer *machines.Answer, e *entities.Entity) {
	op.Done, op.Metadata.Step, op.Metadata.UpdatedAt = v.over, v.state, &v.at
	st, _ := v.m.State(v.state)
	switch {
	case !v.over:
	case v.superseded != nil:
		op.Metadata.Step = stepSuperseded
		op.Error = &OperationError{Code: codeSuperseded, Message: fmt.Sprintf("%s took its place while the %s was %s", v.superseded.Command, v.m.Name, v.state), CurrentState: v.state, SupersededBy: v.superseded.CommandID}
	case st.Failed:
		op.Error = &OperationError{Code: "failed", Message: "the entity came to the state " + v.state, CurrentState: v.state, AllowedCommands: v.m.Allowed(v.state)}
		if v.failure != nil {
			op.Error.Code, op.Error.Message = v.failure.Code, v.failure.Message
		}
	default:
		r := OperationResult{Outcome: answer.Outcome, State: v.state, Version: v.version, Generation: v.generation, CommandID: op.Metadata.CommandID}
		switch v.version {
		case answer.Version:
			r.Revision = answer.Revision
		case e.Version:
			r.Revision = e.Revision
		}
		op.Response = r
	}
}

const stepSuperseded, codeSuperseded = "superseded", "superseded"

// OperationResult is what came of a command.
type OperationResult struct {
	Outcome    string `json:"outcome" enum:"applied,unchanged,ignored"`
	State      string `json:"state" doc:"State in which the entity settled; it may have left it since"`
	Version    uint64 `json:"version" doc:"Version of the entity after the command"`
	Generation uint64 `json:"generation"`
	Revision   uint64 `json:"revision,omitempty" doc:"Revision of the entity after the command; known until the entity changes again"`
	CommandID  string `json:"commandId"`
}
