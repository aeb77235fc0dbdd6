package database

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

func inPhase(p Phase) *guard {
	return &guard{Name: string(p), Doc: "its phase is not " + string(p), Holds: func(s *step) bool { return s.Data.Phase == p }}
}

var (
	executing = inPhase(Executing)
	waiting   = inPhase(WaitingApproval)
	undoing   = inPhase(RollingBack)

	dryRun        = &guard{Name: "dry run", Holds: func(s *step) bool { return s.Data.Request.DryRun && s.Data.Phase == Executing }}
	needsApproval = &guard{Name: "needs approval", Holds: func(s *step) bool { return s.Data.Request.Approval && s.Data.Phase == Executing }}
	active        = &guard{Name: "active", Doc: "it is neither executing nor waiting to try again", Holds: func(s *step) bool {
		return s.Data.Phase == Executing || s.Data.Phase == RetryWait
	}}
	cancellable = &guard{Name: "not undoing", Doc: "it is being taken back already", Holds: func(s *step) bool {
		return s.Data.Phase != RollingBack && s.Data.Phase != RollbackStuck
	}}
	idle = &guard{Name: "not undoing", Doc: "it is being rolled back", Holds: func(s *step) bool { return s.Data.Phase != RollingBack }}

	settled = &guard{Name: "settled", Doc: "its credentials are being rotated", Holds: func(s *step) bool { return s.Data.Phase == "" }}
	named   = &guard{Name: "named", Doc: "tenant in the body is another one, or its credentials are being rotated", Holds: func(s *step) bool {
		return s.Data.Phase == "" && machines.Body[RetireBody](s).Tenant == s.Data.Request.EnterpriseID
	}}
	itsOwn = &guard{Name: "of this tenant", Doc: "enterpriseId in the body is another tenant than that of the path", Holds: func(s *step) bool {
		_, refused := machines.Body[RequestBody](s).For(s.Entity().Parent)
		return refused == nil
	}}
	turnedBack = &guard{Name: "writes cannot be settled", Holds: func(s *step) bool {
		r := machines.Body[Undone](s).Actions
		return undoing.Holds(s) && len(r) > 0 && r[0].Action == ActionSettle && !r[0].Done && !r[0].Skipped
	}}

	rollsBack = &guard{Name: "rolls back", Holds: func(s *step) bool { return executing.Holds(s) && s.Data.Request.OnFailure == "rollback" }}
	clean     = &guard{Name: "all undone", Holds: func(s *step) bool {
		return undoing.Holds(s) && !slices.ContainsFunc(machines.Body[Undone](s).Actions, func(r ActionResult) bool { return !r.Done && !r.Skipped })
	}}
)

func resolvedAs(outcome string) *guard {
	return &guard{Name: "as " + outcome, Doc: "it is being rolled back", Holds: func(s *step) bool {
		return idle.Holds(s) && machines.Body[ResolveBody](s).Outcome == outcome
	}}
}

func failedFrom(g *Stage) *guard {
	return &guard{Name: "failed from " + g.State, Doc: "its undo has begun; roll it back", Holds: func(s *step) bool {
		return s.Data.Phase == Held && s.Data.FailedFrom == g.State
	}}
}

// mayRetry: a timeout may always be repeated, a failure when the provider says so.
func mayRetry(g *Stage) *guard {
	return &guard{Name: "attempts left", Holds: func(s *step) bool {
		f, failed := s.Body.(*machines.Failure)
		return executing.Holds(s) && s.Data.Attempt <= g.Retries && (!failed || f == nil || f.Retryable)
	}}
}

// until is when an attempt, or the wait before one, ends. Phases in which somebody has to act have no end.
func until(g *Stage) func(*step) time.Time {
	return func(s *step) time.Time {
		d := s.Data
		switch d.Phase {
		case RetryWait:
			return d.NextTry
		case Executing:
			limit := time.Duration(d.Request.IdleSeconds) * time.Second
			if limit == 0 {
				limit = 30 * time.Minute
			}
			end, silent := d.AttemptAt.Add(g.Timeout), d.LastProgressAt.Add(limit)
			if silent.Before(end) {
				return silent
			}
			return end
		}
		return time.Time{}
	}
}
