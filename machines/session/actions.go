package session

import (
	"fmt"
	"maps"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Tell gives an event that the edge emits what every event says, and more.
func (k *Kind[D]) Tell(s *machines.Tx[D], event string, more map[string]any) {
	data := k.About(s)
	maps.Copy(data, more)
	s.Detail(event, data)
}

// Emit emits an event, besides those of the edge, with what every event says, and more.
func (k *Kind[D]) Emit(s *machines.Tx[D], event string, more map[string]any) {
	data := k.About(s)
	maps.Copy(data, more)
	s.Emit(event, data)
}

// tell is Tell for an event of the kind.
func (k *Kind[D]) tell(s *machines.Tx[D], event string, more map[string]any) {
	k.Tell(s, k.event(event), more)
}

// Transitioned tells of the change of the state.
func (k *Kind[D]) Transitioned(s *machines.Tx[D]) {
	k.Tell(s, EventTransitioned, map[string]any{"from": s.State(), "to": s.Entity().State, "attempt": k.of(s.Data).course().Attempt})
}

// Begin starts an attempt of a stage.
func (k *Kind[D]) Begin(s *machines.Tx[D], g *Stage, attempt int) {
	c := k.of(s.Data).course()
	*c = Course{Phase: Executing, Step: g.Step, Attempt: attempt, AttemptAt: s.Now(), LastProgressAt: s.Now()}
	k.Intend(s, g)
	more := map[string]any{"attempt": attempt}
	if g.Step != "" {
		more["step"] = g.Step
	}
	k.Tell(s, g.Started, more)
}

// Rest is when there is nothing more to do.
func (k *Kind[D]) Rest(s *machines.Tx[D]) {
	p := k.of(s.Data)
	p.course().Phase, p.course().Step, p.course().NextTry, p.end().CompletedAt = "", "", time.Time{}, s.Now()
}

// planned takes a plan, and tells of it.
func (k *Kind[D]) planned(s *machines.Tx[D], g *Stage) {
	s.Fail(nil) // of an earlier attempt
	more := map[string]any{}
	k.Take(k, s, g, more)
	for _, event := range g.Ended {
		k.Tell(s, event, more)
	}
}

func (k *Kind[D]) planOnly(g *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		k.planned(s, g)
		k.tell(s, "cancelled", map[string]any{"reason": "dry run"})
		k.Transitioned(s)
		k.Rest(s)
	}
}

// planFailed: a dry run that has failed has made nothing, so it holds nothing.
func (k *Kind[D]) planFailed(s *machines.Tx[D]) {
	f := k.Failure(s)
	k.Tell(s, EventTimeout, map[string]any{"state": s.State()})
	k.tell(s, "cancelled", map[string]any{"reason": "dry run", "error": f, "durationMs": k.spent(s)})
	k.Transitioned(s)
	k.Rest(s)
}

func (k *Kind[D]) await(g *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		k.planned(s, g)
		k.of(s.Data).course().Phase = WaitingApproval
		k.tell(s, "waiting", nil)
	}
}

func (k *Kind[D]) approve(next *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		k.tell(s, "approved", nil)
		k.Transitioned(s)
		k.Begin(s, next, 1)
	}
}

// spent are the milliseconds that an attempt, or an undo, has taken.
func (k *Kind[D]) spent(s *machines.Tx[D]) int64 {
	return s.Now().Sub(k.of(s.Data).course().AttemptAt).Milliseconds()
}

// Succeed takes the result of a stage, and tells of it.
func (k *Kind[D]) Succeed(s *machines.Tx[D], g *Stage) {
	s.Fail(nil)
	more := map[string]any{"durationMs": k.spent(s)}
	k.Take(k, s, g, more)
	for _, event := range g.Ended {
		k.Tell(s, event, more)
	}
}

// GoOn ends a stage, and begins the next one.
func (k *Kind[D]) GoOn(g, next *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		k.Succeed(s, g)
		if next == nil || next.State != g.State {
			k.Transitioned(s)
		}
		if next == nil {
			k.Rest(s)
			return
		}
		k.Begin(s, next, 1)
	}
}

func (k *Kind[D]) planRetry(s *machines.Tx[D]) {
	c, f := k.of(s.Data).course(), k.failure(s)
	wait := k.wait(s, &f)
	c.Phase, c.NextTry = RetryWait, s.Now().Add(wait)
	if wait >= time.Minute { // somebody may look at it meanwhile
		f.Message += fmt.Sprintf("; attempt %d of %d begins at %s", c.Attempt+1, k.now(s).Retries+1, c.NextTry.UTC().Format(time.RFC3339))
	}
	s.Fail(&f)
	k.Tell(s, EventTimeout, map[string]any{"state": s.State()})
	k.tell(s, "retrying", map[string]any{"state": s.State(), "attempt": c.Attempt, "nextTry": c.NextTry, "error": f, "durationMs": k.spent(s)})
}

func (k *Kind[D]) tryAgain(g *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) { k.Begin(s, g, k.of(s.Data).course().Attempt+1) }
}

func (k *Kind[D]) fail(s *machines.Tx[D]) {
	p, f := k.of(s.Data), k.failure(s)
	c, t := p.course(), p.trail()
	t.FailedFrom, t.FailedStep, t.FailedAttempt, c.Phase, c.NextTry, p.end().CompletedAt = s.State(), c.Step, c.Attempt, Held, time.Time{}, s.Now()
	t.Intact = true
	if k.Failing != nil {
		k.Failing(s.Data, f)
	}
	s.Fail(&f)
	k.Tell(s, EventTimeout, map[string]any{"state": s.State()})
	k.tell(s, "failed", map[string]any{"error": f, "failedFrom": t.FailedFrom, "durationMs": k.spent(s)})
	k.Transitioned(s)
}

// Failure keeps why an attempt ended, and returns it.
func (k *Kind[D]) Failure(s *machines.Tx[D]) machines.Failure {
	f := k.failure(s)
	s.Fail(&f)
	return f
}

func (k *Kind[D]) failAndUndo(s *machines.Tx[D]) {
	k.fail(s)
	k.undo(s)
}

func (k *Kind[D]) undo(s *machines.Tx[D]) {
	p := k.of(s.Data)
	c, t := p.course(), p.trail()
	c.Phase, c.AttemptAt, c.NextTry, t.Undone, t.LettingIn = RollingBack, s.Now(), time.Time{}, nil, false
	if t.FailedFrom == "" {
		t.FailedFrom, t.FailedStep, t.FailedAttempt, t.Intact = s.State(), c.Step, c.Attempt, true
	}
	for _, event := range k.undoStarted() {
		k.Tell(s, event, map[string]any{"fromState": t.FailedFrom, "actions": k.Planned(s.Data, s.Entity().State)})
	}
}

// Rollback begins an undo, or goes on with it. What was said of the writes since the switch holds until something else is said.
func (k *Kind[D]) Rollback(s *machines.Tx[D]) {
	b, t := machines.Body[RollbackBody](s), k.of(s.Data).trail()
	t.Skip = b.Skip
	switch {
	case b.KeepWrites:
		t.Writes = KeepWrites
	case b.DiscardWrites:
		t.Writes = DiscardWrites
	}
	k.undo(s)
}

// Leave begins the undo that leads out of ready, and tells of it.
func (k *Kind[D]) Leave(s *machines.Tx[D], event string, more map[string]any) {
	s.Fail(nil)
	p := k.of(s.Data)
	p.course().Phase, p.course().AttemptAt, p.trail().Undone, p.trail().Skip, p.end().CompletedAt = RollingBack, s.Now(), nil, nil, time.Time{}
	data := map[string]any{"actions": k.Planned(s.Data, s.Entity().State)}
	maps.Copy(data, more)
	k.Tell(s, event, data)
	k.Transitioned(s)
}

func (k *Kind[D]) cancel(s *machines.Tx[D]) {
	k.of(s.Data).trail().Cancelled = true
	k.undo(s)
}

// EndUndo is the end of an undo that is whole.
func (k *Kind[D]) EndUndo(s *machines.Tx[D]) {
	t := k.of(s.Data).trail()
	t.Undone = machines.Body[Results](s).Actions
	k.Mark(s, Undone)
	for _, event := range append(k.undoEnded(), k.event("cancelled")) {
		k.Tell(s, event, map[string]any{"actions": t.Undone, "durationMs": k.spent(s)})
	}
	k.Transitioned(s)
	k.Rest(s)
	k.Over(s.Data)
}

// Stuck is the end of an undo that is not whole.
func (k *Kind[D]) Stuck(s *machines.Tx[D]) {
	p := k.of(s.Data)
	p.trail().Undone, p.trail().LettingIn, p.course().Phase = machines.Body[Results](s).Actions, false, RollbackStuck
	for _, r := range p.trail().Undone {
		if r.Done || r.Skipped {
			p.trail().Intact = false
		} else {
			k.Emit(s, EventActionFailed, map[string]any{"action": r.Action, "error": r.Error})
		}
	}
	k.tell(s, "rollback.stuck", map[string]any{"actions": p.trail().Undone, "durationMs": k.spent(s)})
}

func (k *Kind[D]) undoFailed(s *machines.Tx[D]) {
	p := k.of(s.Data)
	p.course().Phase, p.trail().LettingIn, p.trail().Intact = RollbackStuck, false, false // it may have taken back some
	k.tell(s, "rollback.stuck", map[string]any{"error": machines.Body[machines.Failure](s), "durationMs": k.spent(s)})
}

func (k *Kind[D]) pause(s *machines.Tx[D]) {
	c := k.of(s.Data).course()
	c.Phase, c.NextTry = Paused, time.Time{}
	k.tell(s, "paused", map[string]any{"state": s.State()})
}

func (k *Kind[D]) halted(s *machines.Tx[D]) { k.tell(s, "halted", nil) }

func (k *Kind[D]) resume(g *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		k.tell(s, "resumed", nil)
		k.Begin(s, g, k.of(s.Data).course().Attempt)
	}
}

func (k *Kind[D]) retry(g *Stage) func(*machines.Tx[D]) {
	return func(s *machines.Tx[D]) {
		s.Fail(nil)
		p := k.of(s.Data)
		p.end().CompletedAt = time.Time{}
		more := map[string]any{"failedFrom": g.State}
		if g.Step != "" {
			more["step"] = g.Step
		}
		k.tell(s, "retried", more)
		k.Transitioned(s)
		k.Begin(s, g, 1)
		t := p.trail()
		t.FailedFrom, t.FailedStep, t.FailedAttempt, t.Intact, t.Undone, t.Skip, t.Writes = "", "", 0, false, nil, nil, ""
	}
}

// release gives the tenant free that somebody has taken back by hand: an undo without actions.
func (k *Kind[D]) release(s *machines.Tx[D]) {
	p := k.of(s.Data)
	t := p.trail()
	p.course().Phase, p.course().AttemptAt, p.course().NextTry, t.Undone, t.Skip, t.LettingIn = RollingBack, s.Now(), time.Time{}, nil, nil, false
	for _, a := range k.Actions(s.Data, Failed) {
		t.Skip = append(t.Skip, a.Name)
	}
	k.tell(s, "resolved", map[string]any{"failedFrom": t.FailedFrom, "outcome": RolledBack})
}

// letIn has applications told where the tenant is, and lets it into its own database that an undo may have shut out, before the session is ready.
func (k *Kind[D]) letIn(s *machines.Tx[D]) {
	p := k.of(s.Data)
	p.course().Phase, p.course().AttemptAt, p.trail().Undone, p.trail().LettingIn = RollingBack, s.Now(), nil, true
	k.tell(s, "resolved", map[string]any{"failedFrom": p.trail().FailedFrom, "outcome": Ready})
}

// letInDone keeps the epoch: a revert goes by it where the shared database has lost the switch.
func (k *Kind[D]) letInDone(s *machines.Tx[D]) {
	t := k.of(s.Data).trail()
	t.LettingIn, t.Undone = false, nil
	for _, r := range machines.Body[Results](s).Actions {
		if r.Epoch > 0 { // whoever has switched: what leads to the session's database is taken back with it
			t.Epoch = r.Epoch
			for i := range k.Stages {
				if g := &k.Stages[i]; g.Effect == "switch" {
					k.Intend(s, g)
				}
			}
			k.Mark(s, Created, KindRuntime)
		}
	}
	k.Transitioned(s)
	k.Rest(s)
	s.Fail(nil)
}

func (k *Kind[D]) resolve(s *machines.Tx[D]) {
	k.tell(s, "resolved", map[string]any{"failedFrom": k.of(s.Data).trail().FailedFrom, "outcome": machines.Body[ResolveBody](s).Outcome})
	k.Transitioned(s)
	k.Rest(s)
	s.Fail(nil)
}
