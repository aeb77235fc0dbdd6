package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Rehearsal is what a command would do now. Nothing was stored, and another command may come first.
type Rehearsal struct {
	From    string   `json:"from,omitempty" doc:"The state of now; none where there is no entity yet"`
	Events  []string `json:"events" nullable:"false" doc:"Types of the events that would be emitted"`
	Effects []string `json:"effects" nullable:"false" doc:"Effects that would be started"`
}

// rehearse lets the table decide about the stored entity, as the engine would, and leaves it at that. What the table
// refuses is the same problem as in earnest.
func (s *Server) rehearse(q *rest.Request, m *machines.Machine, cmd publish.Command) error {
	namespace, parent, id, err := streams.SplitKey(cmd.Key)
	if err != nil {
		return err
	}
	e := m.New(namespace, parent, id)
	stored, err := s.store.Read(q, m, cmd.Key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return err
	default:
		if e, err = m.Decode(stored.Value); err != nil {
			return problem.New(machines.CodeParked, "the stored value cannot be read by this version of the program")
		}
	}
	if expected, ok := streams.ParseExpected(cmd.Expect); ok && !expected.Holds(stored.Revision) && !(stored.Dropped && expected.Holds(e.Replaced)) {
		return problem.New(machines.CodePrecondition, "the entity is at another revision than that of If-Match").With("ETag", rest.ETag(stored.Revision))
	}
	if p := s.sender.Room(q.Context(), cmd, false); p != nil {
		return p
	}
	next, out, err := m.Step(e, machines.Input{Command: cmd.Name, ID: cmd.ID, Time: time.Now().UTC(), Actor: cmd.Actor, Reason: cmd.Reason, Body: cmd.Body})
	var refusal *machines.Refusal
	if errors.As(err, &refusal) {
		return problem.Refused(refusal)
	}
	if err != nil {
		return err
	}
	r := &Rehearsal{From: out.From, Events: []string{}, Effects: []string{}}
	for _, msg := range out.Messages {
		switch msg.Kind {
		case machines.KindEvent:
			r.Events = append(r.Events, msg.Name)
		case machines.KindEffect:
			r.Effects = append(r.Effects, msg.Name)
		}
	}
	return q.JSON(http.StatusOK, CommandResult{
		Outcome: out.Result, State: next.State, Version: next.Version, Revision: stored.Revision, Generation: next.Generation, CommandID: cmd.ID, DryRun: r,
	})
}
