package database

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

// States.
const (
	Requested  = "requested"
	Allocating = "allocating_db"
	Migrating  = "running_migrations"
	Copying    = "migrating_data"
	Verifying  = "verifying"
	Switching  = "switching"
	Ready      = session.Ready
	Reverting  = "reverting"
	Retiring   = "deprovisioning"
	Retired    = "deprovisioned"
	Failed     = session.Failed
	RolledBack = session.RolledBack
	Cancelled  = session.Cancelled
)

// Inputs: commands of users, reports of the provider and its observer, the timeout.
const (
	CommandRequest  = "request"
	CommandApprove  = session.CommandApprove
	CommandPause    = session.CommandPause
	CommandResume   = session.CommandResume
	CommandCancel   = session.CommandCancel
	CommandRetry    = session.CommandRetry
	CommandRollback = session.CommandRollback
	CommandResolve  = session.CommandResolve
	CommandRevert   = "revert"
	CommandRetire   = "deprovision"
	CommandRotate   = "rotate"

	ReportProgressed = "progressed"
	ReportLookFailed = "look-failed"
	ReportUndone     = session.ReportUndone
	ReportRotated    = "rotated"
	ReportKept       = "rotate-failed"
)

// Effects besides those of the stages.
const (
	EffectHalt   = session.EffectHalt
	EffectLook   = "look"
	EffectUndo   = session.EffectUndo
	EffectRotate = "rotate"
)

// Stages are those of a session, in order: the specification's table of handlers.
var Stages = []Stage{
	{
		State: Requested, Effect: "plan", Done: "planned", Failed: "plan-failed", Next: Allocating, Timeout: 10 * time.Minute, Retries: 3, Code: "PREFLIGHT_FAILED",
		Started: EventPlanning, Ended: []string{EventPlanned}, Body: Plan{}, Doc: "What can be moved is checked and counted; nothing is created.",
	},
	{
		State: Allocating, Effect: "allocate", Done: "allocated", Failed: "allocate-failed", Next: Migrating, Timeout: 10 * time.Minute, Retries: 3, Code: "DB_ALLOCATION_FAILED",
		Started: EventAllocating, Ended: []string{EventAllocated}, Body: Allocated{}, Doc: "The database and its role are being created.",
	},
	{
		State: Migrating, Effect: "migrate", Done: "migrated", Failed: "migrate-failed", Next: Copying, Timeout: 30 * time.Minute, Retries: 2, Code: "MIGRATIONS_FAILED",
		Started: EventMigrationsStarted, Ended: []string{EventMigrationsCompleted}, Body: Migrated{}, Doc: "Migrations are being applied to the database.",
	},
	{
		State: Copying, Effect: "copy", Done: "copied", Failed: "copy-failed", Next: Verifying, Timeout: 2 * time.Hour, Retries: 1, Code: "DATA_MIGRATION_FAILED",
		Started: EventDataStarted, Ended: []string{EventDataCompleted}, Body: Progress{}, Doc: "The rows of the tenant are being copied.",
	},
	{
		State: Verifying, Effect: "verify", Done: "verified", Failed: "verify-failed", Next: Switching, Timeout: 30 * time.Minute, Retries: 2, Code: "VERIFICATION_FAILED",
		Started: EventVerificationStarted, Ended: []string{EventVerificationCompleted}, Body: Verified{}, Doc: "Every table is compared by count and hash.",
	},
	{
		State: Switching, Effect: "switch", Done: "switched", Failed: "switch-failed", Next: Ready, Timeout: 5 * time.Minute, Code: "SWITCHING_FAILED", Codes: map[string]bool{CodeUnfenced: false},
		Started: EventSwitchingStarted, Ended: []string{EventSwitchingCompleted, EventReady}, Body: Switched{}, Doc: "The tenant's traffic is being sent to its own database.", Firm: true,
	},
}

// Machine is the lifecycle of a session.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "database_provisioning", Plural: "database_provisionings", Parent: "tenant", Doc: "A tenant's move into a database of its own.",
	States: states(), Inputs: inputs(), Effects: effects(), Events: events, Columns: columns, Edges: table(),
})

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
	edge  = machines.Edge[Data]
)

func only(states ...string) []string { return states }

func table() []edge {
	return slices.Concat(
		[]edge{{From: only(machines.None, RolledBack, Cancelled, Retired), On: CommandRequest, If: itsOwn, To: Requested, Do: request, Emit: only(EventRequested, EventPlanning), Effects: only("plan")}},
		kind.PlanEdges(&Stages[0]),
		[]edge{
			{From: only(Copying), On: ReportProgressed, If: kind.In(Executing), To: machines.Same, Rearm: true, Do: progressed, Emit: only(EventDataProgress)},
			{From: only(Copying), On: ReportLookFailed, To: machines.Same, Noop: true},
		},
		kind.StageEdges(Stages),
		afterwards(),
		[]edge{
			{From: only(Reverting), On: ReportUndone, If: turnedBack, To: Ready, Do: turnBack, Emit: only(EventRevertRefused, EventTransitioned)},
			{From: only(Reverting), On: ReportUndone, If: kind.Clean(), To: RolledBack, Do: reverted, Emit: only(EventUndoCompleted, session.EventUndoCompleted, EventTransitioned)},
			{From: only(Retiring), On: ReportUndone, If: kind.Clean(), To: Retired, Do: retired, Emit: only(EventRetired, EventTransitioned)},
		},
		kind.Leaving(Reverting, Retiring),
		kind.FailedEdges())
}

// afterwards are the ways on from ready.
func afterwards() []edge {
	at := only(Ready)
	return []edge{
		{From: at, On: CommandRevert, If: leadsBack, To: Reverting, Do: revert, Emit: only(EventReverting, EventTransitioned), Effects: only(EffectUndo)},
		{From: at, On: CommandRetire, If: named, To: Retiring, Do: retire, Emit: only(EventRetiring, EventTransitioned), Effects: only(EffectUndo)},
		{From: at, On: CommandRotate, If: entered, To: machines.Same, Reenter: true, Do: rotate, Emit: only(EventRotating), Effects: only(EffectRotate)},
		{From: at, On: ReportRotated, If: kind.In(Rotating), To: machines.Same, Do: rotated, Emit: only(EventRotated)},
		{From: at, On: ReportKept, If: kind.In(Rotating), To: machines.Same, Do: notRotated, Emit: only(EventNotRotated)},
	}
}

func states() []machines.State[Data] {
	list := kind.States(Stages)
	for i := range list {
		if list[i].Name == Copying {
			list[i].Poll = &machines.Poll{Every: time.Second, Effect: EffectLook}
		}
	}
	return append(list,
		machines.State[Data]{Name: Ready, Doc: "The tenant's data is in its own database, and its traffic goes there. It stays: what it keeps is needed to take the move back."},
		machines.State[Data]{Name: Reverting, Doc: "The tenant is being sent back to the shared database, and its own is put aside.", Transitional: true},
		machines.State[Data]{Name: Retiring, Doc: "The tenant is being closed, and its database put aside.", Transitional: true},
		machines.State[Data]{Name: Retired, Doc: "The tenant is closed. Its database is dropped after the grace period, and what the shared database keeps of it takes no writes.", Terminal: true},
		machines.State[Data]{Name: Failed, Doc: "It went no further; retry, rollback or resolve leads on.", Failed: true},
		machines.State[Data]{Name: RolledBack, Doc: "Everything that was created is taken back; request begins anew.", Terminal: true},
		machines.State[Data]{Name: Cancelled, Doc: "It was cancelled, and everything that was created is taken back; request begins anew.", Terminal: true})
}

func effects() []machines.Effect[Data] {
	return append(kind.Effects(Stages, task, Task{}),
		machines.Effect[Data]{Name: EffectHalt, Doc: "Stop what an earlier attempt still does.", Done: session.ReportHalted, Failed: session.ReportHaltFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 5}},
		machines.Effect[Data]{Name: EffectLook, Doc: "Read how far the copy is.", Done: ReportProgressed, Failed: ReportLookFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 1}, Looks: true},
		machines.Effect[Data]{Name: EffectRotate, Doc: "Give the tenant's role a new password.", Done: ReportRotated, Failed: ReportKept, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 3}},
		machines.Effect[Data]{Name: EffectUndo, Doc: "Take back what was created, last first.", Done: ReportUndone, Failed: session.ReportUndoFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 3, Base: 5 * time.Second, Cap: 5 * time.Minute}, Timeout: time.Hour})
}

func inputs() []machines.Command {
	return slices.Concat(
		[]machines.Command{{Name: CommandRequest, Doc: "Move the tenant into a database of its own.", Body: RequestBody{}, Birth: true}},
		session.Commands(),
		[]machines.Command{
			{Name: CommandRevert, Doc: "Send the tenant back to the shared database. It is refused when the tenant has written since the switch, unless the body says what becomes of that. Tables that only its own database has, and columns with a default, refuse nothing: they are left behind there, and the outcome names those that hold something.", Body: RevertBody{}, Admin: true, Destructive: true},
			{Name: CommandRetire, Doc: "Close the tenant: nobody gets in, and its database is dropped after the grace period.", Body: RetireBody{}, Admin: true, Destructive: true},
			{Name: CommandRotate, Doc: "Give the tenant's role a new password. Connections that are open stay.", Admin: true},
			{Name: ReportRotated, Doc: "The role has a new password.", Body: Rotated{}, Report: true},
			{Name: ReportKept, Doc: "The role has no new password that is known; rotate makes another one.", Body: machines.Failure{}, Report: true},
			{Name: ReportProgressed, Doc: "How far the copy is.", Body: Progress{}, Report: true},
			{Name: ReportLookFailed, Doc: "It could not be read how far the copy is; the idle limit tells of a copy that stands.", Body: machines.Failure{}, Report: true},
		},
		session.Reports(Stages))
}
