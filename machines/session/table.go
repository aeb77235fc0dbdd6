package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

type (
	edge[D any]  = machines.Edge[D]
	guard[D any] = machines.Guard[D]
)

func only(names ...string) []string { return names }

// In holds in a phase.
func (k *Kind[D]) In(p Phase) *guard[D] {
	return &guard[D]{Name: string(p), Doc: "its phase is not " + string(p), Holds: func(s *machines.Tx[D]) bool { return k.of(s.Data).course().Phase == p }}
}

// And is a guard that needs one more condition.
func And[D any](open *machines.Guard[D], name string, also func(*machines.Tx[D]) bool) *machines.Guard[D] {
	return &guard[D]{Name: open.Name + ", " + name, Doc: open.Doc, Holds: func(s *machines.Tx[D]) bool { return open.Holds(s) && also(s) }}
}

// firm reports whether what goes on now is not to be interrupted.
func (k *Kind[D]) firm(s *machines.Tx[D]) bool {
	g := k.now(s)
	return g != nil && g.Firm && k.of(s.Data).course().Phase == Executing
}

func (k *Kind[D]) guarded(name, doc string, holds func(s *machines.Tx[D], p Phase) bool) *guard[D] {
	return &guard[D]{Name: name, Doc: doc, Holds: func(s *machines.Tx[D]) bool { return holds(s, k.of(s.Data).course().Phase) }}
}

// Within adds to a guard that the step of a stage goes on, where its state has several.
func (k *Kind[D]) Within(g *Stage, open *guard[D]) *guard[D] {
	if g.Step == "" {
		return open
	}
	return And(open, g.Step, func(s *machines.Tx[D]) bool { return k.of(s.Data).course().Step == g.Step })
}

// mayRetry: a timeout may always be repeated, a failure when the provider says so and its code does not say otherwise.
func (k *Kind[D]) mayRetry(g *Stage) *guard[D] {
	return k.guarded("attempts left", "", func(s *machines.Tx[D], p Phase) bool {
		f, failed := s.Body.(*machines.Failure)
		if failed && f != nil {
			if again, own := g.Codes[f.Code]; !f.Retryable || own && !again {
				return false
			}
		}
		return p == Executing && k.of(s.Data).course().Attempt <= g.Retries
	})
}

// Clean holds when an undo has left nothing.
func (k *Kind[D]) Clean() *guard[D] {
	return k.guarded("all undone", "", func(s *machines.Tx[D], p Phase) bool {
		return !k.of(s.Data).trail().LettingIn && k.whole(s, p)
	})
}

// whole reports whether an undo has done all that it was to do.
func (k *Kind[D]) whole(s *machines.Tx[D], p Phase) bool {
	return p == RollingBack && !slices.ContainsFunc(machines.Body[Results](s).Actions, func(r ActionResult) bool { return !r.Done && !r.Skipped })
}

func (k *Kind[D]) rollsBack() *guard[D] {
	return k.guarded("rolls back", "", func(s *machines.Tx[D], p Phase) bool { return p == Executing && !k.firm(s) && k.RollsBack(s.Data) })
}

// orFirm adds to what a refusal says the step of the state that is not interrupted, where there is one.
func (k *Kind[D]) orFirm(state, doc string) string {
	for i := range k.Stages {
		if g := &k.Stages[i]; g.State == state && g.Firm {
			return doc + ", or the step " + g.Step + " is under way, which is not interrupted"
		}
	}
	return doc
}

func (k *Kind[D]) active(state string) *guard[D] {
	return k.guarded("active", k.orFirm(state, "it is neither executing nor waiting to try again"), func(s *machines.Tx[D], p Phase) bool {
		return (p == Executing || p == RetryWait) && !k.firm(s)
	})
}

func (k *Kind[D]) cancellable(state string) *guard[D] {
	return k.guarded("not undoing", k.orFirm(state, "it is being taken back already"), func(s *machines.Tx[D], p Phase) bool {
		return p != RollingBack && p != RollbackStuck && !k.firm(s)
	})
}

func (k *Kind[D]) idle() *guard[D] {
	return k.guarded("not undoing", "it is being rolled back", func(_ *machines.Tx[D], p Phase) bool { return p != RollingBack })
}

// failedFrom holds where a session failed in a stage, and nothing of it was taken back. What was stored without a step begins with the first one.
func (k *Kind[D]) failedFrom(g *Stage) *guard[D] {
	name := "failed from " + g.State
	if g.Step != "" {
		name += ", " + g.Step
	}
	return k.guarded(name, "its undo has begun; roll it back", func(s *machines.Tx[D], p Phase) bool {
		t := k.of(s.Data).trail()
		failed := cmp.Or(t.FailedStep, k.of(s.Data).course().Step) // stored by an earlier version, only the course has it
		step := failed == g.Step || failed == "" && g == k.Stage(g.State, "")
		return (p == Held || p == RollbackStuck && k.untouched(s.Data)) && t.FailedFrom == g.State && step
	})
}

// hasDatabase holds where resolve says that a session is ready which may have made a database: the tenant may be in it, and an undo may have shut it out there, however that undo has ended, also one before a
// retry that has failed since. It may have failed at a later action, and of several tries only the last one is told.
func (k *Kind[D]) hasDatabase() *guard[D] {
	return And(k.resolvedAs(Ready), "with a database", func(s *machines.Tx[D]) bool {
		return slices.ContainsFunc(k.of(s.Data).trail().Ledger, func(e Entry) bool { return e.Kind == KindDatabase && e.State != Undone })
	})
}

// admitted holds when the tenant of such a session was let in, and applications were told.
func (k *Kind[D]) admitted() *guard[D] {
	return k.guarded("its tenant let in", "", func(s *machines.Tx[D], p Phase) bool { return k.of(s.Data).trail().LettingIn && k.whole(s, p) })
}

// untouched reports whether all undos since the failure have ended at their first action, before anything was taken back.
func (k *Kind[D]) untouched(d *D) bool {
	planned, t := k.Planned(d, Failed), k.of(d).trail()
	return t.Intact && len(planned) > 0 && planned[0].Stop && len(t.Undone) > 0
}

func (k *Kind[D]) resolvedAs(outcome string) *guard[D] {
	return k.guarded("as "+outcome, "it is being rolled back", func(s *machines.Tx[D], p Phase) bool {
		return p != RollingBack && machines.Body[ResolveBody](s).Outcome == outcome
	})
}

func (k *Kind[D]) failing() []string     { return only(k.event("failed"), EventTransitioned) }
func (k *Kind[D]) undoStarted() []string { return only(k.event("rollback.started"), EventUndoStarted) }

func (k *Kind[D]) undoEnded() []string {
	return only(k.event("rollback.completed"), EventUndoCompleted)
}

// PlanEdges are what may follow the plan of a stage instead of the next one. They stand before its other edges.
func (k *Kind[D]) PlanEdges(g *Stage) []edge[D] {
	at, next := only(g.State), k.Stage(g.Next, "")
	dry := k.guarded("dry run", "", func(s *machines.Tx[D], p Phase) bool { return p == Executing && k.DryRun(s) })
	over := And(dry, "no attempts left", func(s *machines.Tx[D]) bool { return !k.mayRetry(g).Holds(s) })
	asks := k.guarded("needs approval", "", func(s *machines.Tx[D], p Phase) bool { return p == Executing && k.Approval(s) })
	return []edge[D]{
		{From: at, On: g.Done, If: dry, To: Cancelled, Do: k.planOnly(g), Emit: append(slices.Clone(g.Ended), k.event("cancelled"), EventTransitioned)},
		{From: at, On: g.Failed, If: over, To: Cancelled, Do: k.planFailed, Emit: only(k.event("cancelled"), EventTransitioned)},
		{From: at, On: Timeout, If: over, To: Cancelled, Do: k.planFailed, Emit: only(EventTimeout, k.event("cancelled"), EventTransitioned)},
		{From: at, On: g.Done, If: asks, To: machines.Same, Reenter: true, Do: k.await(g), Emit: append(slices.Clone(g.Ended), k.event("waiting"))},
		{From: at, On: CommandApprove, If: k.In(WaitingApproval), To: g.Next, Do: k.approve(next), Emit: only(k.event("approved"), EventTransitioned, next.Started), Effects: only(next.Effect)},
	}
}

// StageEdges are those of stages that follow each other: success, the next attempt, and the ways out.
func (k *Kind[D]) StageEdges(stages []Stage) []edge[D] {
	var edges []edge[D]
	for i := range stages {
		g := &stages[i]
		if g.Next != "" {
			edges = append(edges, k.Done(g, k.In(Executing), g.Next, k.following(stages, i)))
		}
		edges = append(edges, edge[D]{From: only(Failed), On: CommandRetry, If: k.failedFrom(g), To: g.State, Do: k.retry(g), Emit: only(k.event("retried"), EventTransitioned, g.Started), Effects: only(g.Effect)})
		edges = append(edges, k.Attempts(g)...)
		edges = append(edges, k.interrupts(stages, i)...)
		edges = append(edges, edge[D]{From: only(g.State), On: g.Failed, If: k.In(Executing), To: Failed, Do: k.fail, Emit: k.failing()})
		if last(stages, i) {
			edges = append(edges, edge[D]{From: only(g.State), On: Timeout, To: Failed, Do: k.fail, Emit: append(only(EventTimeout), k.failing()...)})
		}
	}
	return edges
}

// following is the stage after one: the next step, or the first one of the next state.
func (k *Kind[D]) following(stages []Stage, i int) *Stage {
	if !last(stages, i) {
		return &stages[i+1]
	}
	return k.Stage(stages[i].Next, "")
}

// Done is the edge by which a stage ends well, to a state and the stage that begins there; nil is the end.
func (k *Kind[D]) Done(g *Stage, open *guard[D], to string, next *Stage) edge[D] {
	e := edge[D]{From: only(g.State), On: g.Done, If: open, To: to, Do: k.GoOn(g, next), Emit: slices.Clone(g.Ended)}
	if to == g.State {
		e.To, e.Reenter = machines.Same, true
	} else {
		e.Emit = append(e.Emit, EventTransitioned)
	}
	if next != nil {
		e.Emit, e.Effects = append(e.Emit, next.Started), only(next.Effect)
	}
	return e
}

// Attempts are the edges to the next attempt of a stage.
func (k *Kind[D]) Attempts(g *Stage) []edge[D] {
	if g.Retries == 0 {
		return nil
	}
	at := only(g.State)
	return []edge[D]{
		{From: at, On: g.Failed, If: k.mayRetry(g), To: machines.Same, Reenter: true, Do: k.planRetry, Emit: only(k.event("retrying"))},
		{From: at, On: Timeout, If: k.Within(g, k.In(RetryWait)), To: machines.Same, Reenter: true, Do: k.tryAgain(g), Emit: only(g.Started), Effects: only(g.Effect)},
		{From: at, On: Timeout, If: k.Within(g, k.mayRetry(g)), To: machines.Same, Reenter: true, Do: k.planRetry, Emit: only(EventTimeout, k.event("retrying"))},
	}
}

// Pauses are the edges to and from a pause of a stage; those to it are once in the state.
func (k *Kind[D]) Pauses(g *Stage, once bool) (edges []edge[D]) {
	at := only(g.State)
	if once {
		edges = append(edges, edge[D]{From: at, On: CommandPause, If: k.active(g.State), To: machines.Same, Reenter: true, Do: k.pause, Emit: only(k.event("paused")), Effects: only(EffectHalt)})
	}
	return append(edges, edge[D]{From: at, On: CommandResume, If: k.Within(g, k.In(Paused)), To: machines.Same, Reenter: true, Do: k.resume(g), Emit: only(k.event("resumed"), g.Started), Effects: only(g.Effect)})
}

// Halts are the edges of what ends an earlier attempt.
func (k *Kind[D]) Halts(state string) []edge[D] {
	at := only(state)
	return []edge[D]{
		{From: at, On: ReportHalted, To: machines.Same, Do: k.halted, Emit: only(k.event("halted"))},
		{From: at, On: ReportHaltFailed, To: machines.Same, Do: k.halted, Emit: only(k.event("halted"))},
	}
}

// interrupts are the ways out of a stage that is not firm. Of a state with several steps, the last one has those that are for all of them.
func (k *Kind[D]) interrupts(stages []Stage, i int) (edges []edge[D]) {
	g, at, once := &stages[i], only(stages[i].State), last(stages, i)
	alone := first(stages, i) && once
	if !g.Firm {
		edges = append(edges, edge[D]{From: at, On: g.Failed, If: k.rollsBack(), To: Failed, Do: k.failAndUndo, Emit: append(k.failing(), k.undoStarted()...), Effects: only(EffectUndo)})
	}
	if once && !(alone && g.Firm) {
		edges = append(edges, edge[D]{From: at, On: Timeout, If: k.rollsBack(), To: Failed, Do: k.failAndUndo, Emit: append(append(only(EventTimeout), k.failing()...), k.undoStarted()...), Effects: only(EffectUndo)})
	}
	if !g.Firm {
		edges = append(edges, k.Pauses(g, first(stages, i))...)
	}
	if !once || alone && g.Firm {
		return edges
	}
	edges = append(edges,
		edge[D]{From: at, On: CommandCancel, If: k.cancellable(g.State), To: machines.Same, Reenter: true, Do: k.cancel, Emit: k.undoStarted(), Effects: only(EffectUndo)},
		k.again(g.State))
	edges = append(edges, k.Halts(g.State)...)
	edges = append(edges, edge[D]{From: at, On: ReportUndone, If: k.Clean(), To: Cancelled, Do: k.EndUndo, Emit: append(k.undoEnded(), k.event("cancelled"), EventTransitioned)})
	return append(edges, k.NotUndone(g.State)...)
}

// again is the edge by which an undo that is stuck is tried again.
func (k *Kind[D]) again(states ...string) edge[D] {
	return edge[D]{From: states, On: CommandRollback, If: k.In(RollbackStuck), To: machines.Same, Reenter: true, Do: k.Rollback, Emit: k.undoStarted(), Effects: only(EffectUndo)}
}

// NotUndone are the edges of an undo that is not whole. The one of an undo that is has to stand before them.
func (k *Kind[D]) NotUndone(states ...string) []edge[D] {
	return []edge[D]{
		{From: states, On: ReportUndone, If: k.In(RollingBack), To: machines.Same, Do: k.Stuck, Emit: only(k.event("rollback.stuck"))},
		{From: states, On: ReportUndoFailed, If: k.In(RollingBack), To: machines.Same, Do: k.undoFailed, Emit: only(k.event("rollback.stuck"))},
	}
}

// Leaving are the edges of states that are nothing but an undo.
func (k *Kind[D]) Leaving(states ...string) []edge[D] {
	return append([]edge[D]{k.again(states...)}, k.NotUndone(states...)...)
}

// FailedEdges are those of the state failed.
func (k *Kind[D]) FailedEdges() []edge[D] {
	at := only(Failed)
	return append([]edge[D]{
		{From: at, On: CommandRollback, If: k.idle(), To: machines.Same, Reenter: true, Do: k.Rollback, Emit: k.undoStarted(), Effects: only(EffectUndo)},
		{From: at, On: CommandResolve, If: k.hasDatabase(), To: machines.Same, Reenter: true, Do: k.letIn, Emit: only(k.event("resolved")), Effects: only(EffectUndo)},
		{From: at, On: CommandResolve, If: k.resolvedAs(Ready), To: Ready, Do: k.resolve, Emit: only(k.event("resolved"), EventTransitioned)},
		{From: at, On: CommandResolve, If: k.idle(), To: machines.Same, Reenter: true, Do: k.release, Emit: only(k.event("resolved")), Effects: only(EffectUndo)},
		{From: at, On: ReportUndone, If: k.Clean(), To: RolledBack, Do: k.EndUndo, Emit: append(k.undoEnded(), EventTransitioned)},
		{From: at, On: ReportUndone, If: k.admitted(), To: Ready, Do: k.letInDone, Emit: only(EventTransitioned)},
	}, k.NotUndone(Failed)...)
}

// States are those of stages, with their clocks. The doc of one with several steps is that of its first.
func (k *Kind[D]) States(stages []Stage) (list []machines.State[D]) {
	for i := range stages {
		if first(stages, i) {
			list = append(list, machines.State[D]{Name: stages[i].State, Doc: stages[i].Doc, Timeout: &machines.Timeout[D]{Input: Timeout, Until: k.until}})
		}
	}
	return list
}

// Effects are those of stages. The machine repeats by itself, so that the wait is a phase; its deadline ends an attempt before the effect's does.
func (k *Kind[D]) Effects(stages []Stage, payload func(*machines.Tx[D]) any, task any) (list []machines.Effect[D]) {
	for i := range stages {
		g := &stages[i]
		list = append(list, machines.Effect[D]{Name: g.Effect, Doc: g.Doc, Done: g.Done, Failed: g.Failed, Retry: machines.Retry{Attempts: 1}, Timeout: g.Timeout + time.Minute, Payload: payload, Task: task})
	}
	return list
}
