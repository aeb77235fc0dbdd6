package database

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

func task(s *step) any {
	d := s.Data
	t := Task{Session: s.Entity().Key(), Attempt: d.Attempt, Request: d.Request, Database: d.Database, Ledger: d.Ledger}
	if d.Phase == RollingBack {
		t.Actions, t.Writes = d.actions(s.Entity().State), d.Writes
	}
	return t
}

// tell gives an event the session and the tenant, and more.
func tell(s *step, event string, more map[string]any) {
	data := map[string]any{"sessionId": s.Entity().Key(), "enterpriseId": s.Data.Request.EnterpriseID}
	if s.Data.Database != nil {
		data["databaseId"] = s.Data.Database.DatabaseID
	}
	for k, v := range more {
		data[k] = v
	}
	s.Detail(event, data)
}

// transitioned tells of the change of the state, and starts the attempts of the new one.
func transitioned(s *step) {
	tell(s, EventTransitioned, map[string]any{"from": s.State(), "to": s.Entity().State, "attempt": s.Data.Attempt})
}

// begin starts an attempt of a state.
func begin(s *step, state string, attempt int) {
	d := s.Data
	d.Phase, d.Attempt, d.AttemptAt, d.LastProgressAt, d.NextTry = Executing, attempt, s.Now(), s.Now(), time.Time{}
	d.intend(s, state)
	if g := stageOf(state); g != nil {
		tell(s, g.Started, map[string]any{"attempt": attempt})
	}
}

func request(s *step) {
	s.NextGeneration()
	r, _ := machines.Body[RequestBody](s).For(s.Entity().Parent)
	*s.Data = Data{Request: r}
	s.Fail(nil)
	tell(s, EventRequested, map[string]any{"request": s.Data.Request})
	begin(s, Requested, 1)
}

func ended(s *step) {
	s.Data.Phase, s.Data.NextTry, s.Data.CompletedAt = "", time.Time{}, s.Now()
}

func planOnly(s *step) {
	s.Data.Plan = machines.Body[Plan](s)
	tell(s, EventPlanned, map[string]any{"plan": s.Data.Plan})
	tell(s, EventCancelled, map[string]any{"reason": "dry run"})
	transitioned(s)
	ended(s)
}

func awaitApproval(s *step) {
	s.Data.Plan, s.Data.Phase = machines.Body[Plan](s), WaitingApproval
	tell(s, EventPlanned, map[string]any{"plan": s.Data.Plan})
	tell(s, EventWaiting, nil)
}

func approve(s *step) {
	tell(s, EventApproved, nil)
	transitioned(s)
	begin(s, Allocating, 1)
}

func progressed(s *step) {
	s.Data.Progress, s.Data.LastProgressAt = machines.Body[Progress](s), s.Now()
	tell(s, EventDataProgress, map[string]any{"table": s.Data.Progress.Table, "progress": s.Data.Progress})
}

// succeed takes the result of a stage and begins the next one.
func succeed(g *Stage) func(*step) {
	return func(s *step) {
		d := s.Data
		s.Fail(nil)
		more := map[string]any{"durationMs": s.Now().Sub(d.AttemptAt).Milliseconds()}
		switch b := s.Body.(type) {
		case *Plan:
			d.Plan, more["plan"] = b, b
		case *Allocated:
			d.Database = b
			d.mark(s, "created", KindDatabase)
		case *Migrated:
			for _, name := range b.Applied {
				s.Emit(EventMigrationApplied, map[string]any{"sessionId": s.Entity().Key(), "migration": name})
			}
			d.Migrations, more["count"] = len(b.Applied), len(b.Applied)
		case *Progress:
			d.Progress, more["totalRows"] = b, b.Rows
			d.mark(s, "created", KindReplication)
			if d.Request.Mode != ModeOnline {
				d.mark(s, "created", KindFence)
			}
		case *Verified:
			more["result"] = b
			d.mark(s, "created", KindFence)
		case *Switched:
			d.Epoch, more["epoch"] = b.Epoch, b.Epoch
			d.mark(s, "created", KindRuntime)
		}
		for _, event := range g.Ended {
			tell(s, event, more)
		}
		transitioned(s)
		if g.Next == Ready {
			ended(s)
			return
		}
		begin(s, g.Next, 1)
	}
}

// failure is why an attempt ended: what the provider says under the code of the state, or its time.
func failure(s *step) machines.Failure {
	g := stageOf(s.State())
	f, ok := s.Body.(*machines.Failure)
	if !ok || f == nil {
		return machines.Failure{Code: "TIMEOUT", Message: fmt.Sprintf("attempt %d of %s did not end within %s, or made no progress", s.Data.Attempt, g.State, g.Timeout), Retryable: true, At: s.Now()}
	}
	out := *f
	if out.Code != g.Code {
		out.Message = out.Code + ": " + out.Message
	}
	out.Code = g.Code
	return out
}

// planRetry waits: 5 s, doubled up to 5 min, of which a random part, and never less than the provider asks for.
func planRetry(s *step) {
	d, f := s.Data, failure(s)
	ceiling := min(5*time.Second<<(d.Attempt-1), 5*time.Minute)
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", s.Entity().Key(), s.State(), s.Entity().Version)
	wait := max(time.Duration(float64(h.Sum64()>>11)/(1<<53)*float64(ceiling)), 500*time.Millisecond, f.RetryAfter)
	d.Phase, d.NextTry = RetryWait, s.Now().Add(wait)
	s.Fail(&f)
	tell(s, EventTimeout, map[string]any{"state": s.State()})
	tell(s, EventRetrying, map[string]any{"state": s.State(), "attempt": d.Attempt, "nextTry": d.NextTry, "error": f})
}

func tryAgain(g *Stage) func(*step) {
	return func(s *step) { begin(s, g.State, s.Data.Attempt+1) }
}

func fail(s *step) {
	d, f := s.Data, failure(s)
	d.FailedFrom, d.FailedAttempt, d.Phase, d.NextTry, d.CompletedAt = s.State(), d.Attempt, Held, time.Time{}, s.Now()
	s.Fail(&f)
	tell(s, EventTimeout, map[string]any{"state": s.State()})
	tell(s, EventFailed, map[string]any{"error": f, "failedFrom": d.FailedFrom})
	transitioned(s)
}

func failAndUndo(s *step) {
	fail(s)
	undo(s)
}

func undo(s *step) {
	d := s.Data
	d.Phase, d.NextTry, d.Undone = RollingBack, time.Time{}, nil
	if d.FailedFrom == "" {
		d.FailedFrom, d.FailedAttempt = s.State(), d.Attempt
	}
	for _, event := range undoStarted {
		tell(s, event, map[string]any{"fromState": d.FailedFrom, "actions": d.actions(s.Entity().State)})
	}
}

func rollback(s *step) {
	s.Data.Skip = machines.Body[RollbackBody](s).Skip
	undo(s)
}

func revert(s *step) {
	s.Data.Writes = RefuseWrites
	switch b := machines.Body[RevertBody](s); {
	case b.KeepWrites:
		s.Data.Writes = KeepWrites
	case b.DiscardWrites:
		s.Data.Writes = DiscardWrites
	}
	leave(s, EventReverting)
}

// leave begins the undo that leads out of ready.
func leave(s *step, event string) {
	s.Fail(nil)
	s.Data.Phase, s.Data.Undone, s.Data.Skip, s.Data.CompletedAt = RollingBack, nil, nil, time.Time{}
	tell(s, event, map[string]any{"actions": s.Data.actions(s.Entity().State), "writes": s.Data.Writes})
	transitioned(s)
}

// turnBack: the tenant stays where it is, because of what it has written there.
func turnBack(s *step) {
	why := machines.Failure{Code: "REVERT_REFUSED", Message: machines.Body[Undone](s).Actions[0].Error, At: s.Now()}
	s.Fail(&why)
	s.Data.Writes = ""
	tell(s, EventRevertRefused, map[string]any{"error": why})
	transitioned(s)
	ended(s)
}

func retire(s *step) {
	s.Data.Writes = ""
	leave(s, EventRetiring)
}

func retired(s *step) {
	s.Fail(nil)
	s.Data.Undone = machines.Body[Undone](s).Actions
	s.Data.mark(s, "undone", KindDatabase, KindReplication, KindRuntime)
	tell(s, EventRetired, map[string]any{"actions": s.Data.Undone})
	transitioned(s)
	ended(s)
}

func rotate(s *step) {
	s.Data.Phase = Rotating
	s.Fail(nil)
	tell(s, EventRotating, nil)
}

func rotated(s *step) {
	b := machines.Body[Rotated](s)
	database := *s.Data.Database
	database.Credentials = b.Credentials
	s.Data.Database, s.Data.Epoch, s.Data.Phase, s.Data.RotatedAt = &database, b.Epoch, "", s.Now()
	tell(s, EventRotated, map[string]any{"epoch": b.Epoch})
}

func notRotated(s *step) {
	s.Data.Phase = ""
	tell(s, EventNotRotated, map[string]any{"error": machines.Body[machines.Failure](s)})
}

func cancel(s *step) {
	s.Data.Cancelled = true
	undo(s)
}

func undone(s *step) {
	d := s.Data
	d.Undone = machines.Body[Undone](s).Actions
	if s.State() == Reverting { // elsewhere the reason is that of the failure
		s.Fail(nil)
	}
	d.mark(s, "undone", KindDatabase, KindReplication, KindFence, KindRuntime)
	for _, event := range append(slices.Clone(undoEnded), EventCancelled) {
		tell(s, event, map[string]any{"actions": d.Undone})
	}
	transitioned(s)
	ended(s)
}

func stuck(s *step) {
	s.Data.Undone, s.Data.Phase = machines.Body[Undone](s).Actions, RollbackStuck
	for _, r := range s.Data.Undone {
		if !r.Done && !r.Skipped {
			s.Emit(EventActionFailed, map[string]any{"sessionId": s.Entity().Key(), "action": r.Action, "error": r.Error})
		}
	}
	tell(s, EventUndoStuck, map[string]any{"actions": s.Data.Undone})
}

func undoFailed(s *step) {
	s.Data.Phase = RollbackStuck
	tell(s, EventUndoStuck, map[string]any{"error": machines.Body[machines.Failure](s)})
}

func pause(s *step) {
	s.Data.Phase, s.Data.NextTry = Paused, time.Time{}
	tell(s, EventPaused, map[string]any{"state": s.State()})
}

func halted(s *step) { tell(s, EventHalted, nil) }

func resume(g *Stage) func(*step) {
	return func(s *step) {
		tell(s, EventResumed, nil)
		begin(s, g.State, s.Data.Attempt)
	}
}

func retry(g *Stage) func(*step) {
	return func(s *step) {
		s.Fail(nil)
		s.Data.CompletedAt = time.Time{}
		tell(s, EventRetried, map[string]any{"failedFrom": g.State})
		transitioned(s)
		begin(s, g.State, 1)
		s.Data.FailedFrom, s.Data.FailedAttempt = "", 0
	}
}

// release gives the tenant free that somebody has taken back by hand: an undo without actions.
func release(s *step) {
	s.Data.Phase, s.Data.NextTry, s.Data.Undone, s.Data.Skip = RollingBack, time.Time{}, nil, nil
	for _, a := range Undo(s.Data.Ledger) {
		s.Data.Skip = append(s.Data.Skip, a.Name)
	}
	tell(s, EventResolved, map[string]any{"failedFrom": s.Data.FailedFrom, "outcome": RolledBack})
}

func resolve(s *step) {
	tell(s, EventResolved, map[string]any{"failedFrom": s.Data.FailedFrom, "outcome": machines.Body[ResolveBody](s).Outcome})
	transitioned(s)
	ended(s)
	s.Fail(nil)
}
