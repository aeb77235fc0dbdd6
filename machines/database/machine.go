package database

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	Requested  = "requested"
	Allocating = "allocating_db"
	Migrating  = "running_migrations"
	Copying    = "migrating_data"
	Verifying  = "verifying"
	Switching  = "switching"
	Ready      = "ready"
	Reverting  = "reverting"
	Retiring   = "deprovisioning"
	Retired    = "deprovisioned"
	Failed     = "failed"
	RolledBack = "rolled_back"
	Cancelled  = "cancelled"
)

// Inputs: commands of users, reports of the provider and its observer, the timeout.
const (
	CommandRequest  = "request"
	CommandApprove  = "approve"
	CommandPause    = "pause"
	CommandResume   = "resume"
	CommandCancel   = "cancel"
	CommandRetry    = "retry"
	CommandRollback = "rollback"
	CommandResolve  = "resolve"
	CommandRevert   = "revert"
	CommandRetire   = "deprovision"
	CommandRotate   = "rotate"

	ReportProgressed = "progressed"
	ReportLookFailed = "look-failed"
	ReportHalted     = "halted"
	ReportHaltFailed = "halt-failed"
	ReportUndone     = "undone"
	ReportUndoFailed = "undo-failed"
	ReportRotated    = "rotated"
	ReportKept       = "rotate-failed"
	Timeout          = "timed-out"
)

// Effects besides those of the stages.
const (
	EffectHalt   = "halt"
	EffectLook   = "look"
	EffectUndo   = "undo"
	EffectRotate = "rotate"
)

// Stage is a state in which something is done: the specification's table of handlers.
type Stage struct {
	State   string
	Effect  string
	Done    string // report
	Failed  string // report
	Next    string
	Timeout time.Duration // of an attempt
	Retries int           // beyond the first attempt
	Code    string        // of the failure, unless it is TIMEOUT
	Started string        // event when an attempt begins
	Ended   []string      // events when it has succeeded
	Body    any           // of the report
	Doc     string
}

// Stages are those of a session, in order.
var Stages = []Stage{
	{Requested, "plan", "planned", "plan-failed", Allocating, 10 * time.Minute, 3, "PREFLIGHT_FAILED", EventPlanning, []string{EventPlanned}, Plan{}, "What can be moved is checked and counted; nothing is created."},
	{Allocating, "allocate", "allocated", "allocate-failed", Migrating, 10 * time.Minute, 3, "DB_ALLOCATION_FAILED", EventAllocating, []string{EventAllocated}, Allocated{}, "The database and its role are being created."},
	{Migrating, "migrate", "migrated", "migrate-failed", Copying, 30 * time.Minute, 2, "MIGRATIONS_FAILED", EventMigrationsStarted, []string{EventMigrationsCompleted}, Migrated{}, "Migrations are being applied to the database."},
	{Copying, "copy", "copied", "copy-failed", Verifying, 2 * time.Hour, 1, "DATA_MIGRATION_FAILED", EventDataStarted, []string{EventDataCompleted}, Progress{}, "The rows of the tenant are being copied."},
	{Verifying, "verify", "verified", "verify-failed", Switching, 30 * time.Minute, 2, "VERIFICATION_FAILED", EventVerificationStarted, []string{EventVerificationCompleted}, Verified{}, "Every table is compared by count and hash."},
	{Switching, "switch", "switched", "switch-failed", Ready, 5 * time.Minute, 0, "SWITCHING_FAILED", EventSwitchingStarted, []string{EventSwitchingCompleted, EventReady}, Switched{}, "The tenant's traffic is being sent to its own database."},
}

func stageOf(state string) *Stage {
	for i := range Stages {
		if Stages[i].State == state {
			return &Stages[i]
		}
	}
	return nil
}

// Machine is the lifecycle of a session.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "database_provisioning", Plural: "database_provisionings", Parent: "tenant", Doc: "A tenant's move into a database of its own.",
	States: states(), Inputs: inputs(), Effects: effects(), Events: events, Columns: columns, Edges: table(),
})

// Holding are the states in which a session has its tenant: all but the ends after which the tenant is where it was.
func Holding() (states []string) {
	for _, s := range Machine.States {
		if !s.Terminal {
			states = append(states, s.Name)
		}
	}
	return states
}

func only(states ...string) []string { return states }

func table() []machines.Edge[Data] {
	edges := []machines.Edge[Data]{
		{From: only(machines.None, RolledBack, Cancelled, Retired), On: CommandRequest, If: itsOwn, To: Requested, Do: request, Emit: only(EventRequested, EventPlanning), Effects: only("plan")},
		{From: only(Requested), On: "planned", If: dryRun, To: Cancelled, Do: planOnly, Emit: only(EventPlanned, EventCancelled, EventTransitioned)},
		{From: only(Requested), On: "planned", If: needsApproval, To: machines.Same, Reenter: true, Do: awaitApproval, Emit: only(EventPlanned, EventWaiting)},
		{From: only(Requested), On: CommandApprove, If: waiting, To: Allocating, Do: approve, Emit: only(EventApproved, EventTransitioned, EventAllocating), Effects: only("allocate")},
		{From: only(Copying), On: ReportProgressed, If: executing, To: machines.Same, Rearm: true, Do: progressed, Emit: only(EventDataProgress)},
		{From: only(Copying), On: ReportLookFailed, To: machines.Same, Noop: true},
	}
	for i := range Stages {
		edges = append(edges, stageEdges(&Stages[i])...)
	}
	return append(append(edges, afterwards()...),
		machines.Edge[Data]{From: only(Reverting), On: ReportUndone, If: turnedBack, To: Ready, Do: turnBack, Emit: only(EventRevertRefused, EventTransitioned)},
		machines.Edge[Data]{From: only(Reverting), On: ReportUndone, If: clean, To: RolledBack, Do: undone, Emit: append(only(EventUndoCompleted), EventUndoCompletedGeneric, EventTransitioned)},
		machines.Edge[Data]{From: only(Retiring), On: ReportUndone, If: clean, To: Retired, Do: retired, Emit: only(EventRetired, EventTransitioned)},
		machines.Edge[Data]{From: only(Reverting, Retiring), On: CommandRollback, If: inPhase(RollbackStuck), To: machines.Same, Reenter: true, Do: rollback, Emit: undoStarted, Effects: only(EffectUndo)},
		machines.Edge[Data]{From: only(Reverting, Retiring), On: ReportUndone, If: undoing, To: machines.Same, Do: stuck, Emit: only(EventUndoStuck)},
		machines.Edge[Data]{From: only(Reverting, Retiring), On: ReportUndoFailed, If: undoing, To: machines.Same, Do: undoFailed, Emit: only(EventUndoStuck)},
		machines.Edge[Data]{From: only(Failed), On: CommandRollback, If: idle, To: machines.Same, Reenter: true, Do: rollback, Emit: undoStarted, Effects: only(EffectUndo)},
		machines.Edge[Data]{From: only(Failed), On: CommandResolve, If: resolvedAs(Ready), To: Ready, Do: resolve, Emit: only(EventResolved, EventTransitioned)},
		machines.Edge[Data]{From: only(Failed), On: CommandResolve, If: idle, To: machines.Same, Reenter: true, Do: release, Emit: only(EventResolved), Effects: only(EffectUndo)},
		machines.Edge[Data]{From: only(Failed), On: ReportUndone, If: clean, To: RolledBack, Do: undone, Emit: append(undoEnded, EventTransitioned)},
		machines.Edge[Data]{From: only(Failed), On: ReportUndone, If: undoing, To: machines.Same, Do: stuck, Emit: only(EventUndoStuck)},
		machines.Edge[Data]{From: only(Failed), On: ReportUndoFailed, If: undoing, To: machines.Same, Do: undoFailed, Emit: only(EventUndoStuck)})
}

// afterwards are the ways on from ready.
func afterwards() []machines.Edge[Data] {
	at := only(Ready)
	return []machines.Edge[Data]{
		{From: at, On: CommandRevert, If: settled, To: Reverting, Do: revert, Emit: only(EventReverting, EventTransitioned), Effects: only(EffectUndo)},
		{From: at, On: CommandRetire, If: named, To: Retiring, Do: retire, Emit: only(EventRetiring, EventTransitioned), Effects: only(EffectUndo)},
		{From: at, On: CommandRotate, If: settled, To: machines.Same, Reenter: true, Do: rotate, Emit: only(EventRotating), Effects: only(EffectRotate)},
		{From: at, On: ReportRotated, If: inPhase(Rotating), To: machines.Same, Do: rotated, Emit: only(EventRotated)},
		{From: at, On: ReportKept, If: inPhase(Rotating), To: machines.Same, Do: notRotated, Emit: only(EventNotRotated)},
	}
}

var (
	undoStarted = []string{EventUndoStarted, EventUndoStartedGeneric}
	undoEnded   = []string{EventUndoCompleted, EventUndoCompletedGeneric}
	failing     = []string{EventFailed, EventTransitioned}
)

// stageEdges are what every stage has; only switching cannot be paused, cancelled or rolled back by itself.
func stageEdges(g *Stage) []machines.Edge[Data] {
	at, again := only(g.State), only(EventResumed, g.Started)
	next := only(g.Ended...)
	next = append(next, EventTransitioned)
	var start []string
	if following := stageOf(g.Next); following != nil {
		next, start = append(next, following.Started), only(following.Effect)
	}
	edges := []machines.Edge[Data]{
		{From: at, On: g.Done, If: executing, To: g.Next, Do: succeed(g), Emit: next, Effects: start},
		{From: only(Failed), On: CommandRetry, If: failedFrom(g), To: g.State, Do: retry(g), Emit: only(EventRetried, EventTransitioned, g.Started), Effects: only(g.Effect)},
	}
	if g.Retries > 0 {
		edges = append(edges, []machines.Edge[Data]{
			{From: at, On: g.Failed, If: mayRetry(g), To: machines.Same, Reenter: true, Do: planRetry, Emit: only(EventRetrying)},
			{From: at, On: Timeout, If: inPhase(RetryWait), To: machines.Same, Reenter: true, Do: tryAgain(g), Emit: only(g.Started), Effects: only(g.Effect)},
			{From: at, On: Timeout, If: mayRetry(g), To: machines.Same, Reenter: true, Do: planRetry, Emit: only(EventTimeout, EventRetrying)},
		}...)
	}
	if g.State != Switching {
		edges = append(edges, []machines.Edge[Data]{
			{From: at, On: g.Failed, If: rollsBack, To: Failed, Do: failAndUndo, Emit: append(append([]string{}, failing...), undoStarted...), Effects: only(EffectUndo)},
			{From: at, On: Timeout, If: rollsBack, To: Failed, Do: failAndUndo, Emit: append(append([]string{EventTimeout}, failing...), undoStarted...), Effects: only(EffectUndo)},
			{From: at, On: CommandPause, If: active, To: machines.Same, Reenter: true, Do: pause, Emit: only(EventPaused), Effects: only(EffectHalt)},
			{From: at, On: CommandResume, If: inPhase(Paused), To: machines.Same, Reenter: true, Do: resume(g), Emit: again, Effects: only(g.Effect)},
			{From: at, On: CommandCancel, If: cancellable, To: machines.Same, Reenter: true, Do: cancel, Emit: undoStarted, Effects: only(EffectUndo)},
			{From: at, On: CommandRollback, If: inPhase(RollbackStuck), To: machines.Same, Reenter: true, Do: rollback, Emit: undoStarted, Effects: only(EffectUndo)},
			{From: at, On: ReportHalted, To: machines.Same, Do: halted, Emit: only(EventHalted)},
			{From: at, On: ReportHaltFailed, To: machines.Same, Do: halted, Emit: only(EventHalted)},
			{From: at, On: ReportUndone, If: clean, To: Cancelled, Do: undone, Emit: append(append([]string{}, undoEnded...), EventCancelled, EventTransitioned)},
			{From: at, On: ReportUndone, If: undoing, To: machines.Same, Do: stuck, Emit: only(EventUndoStuck)},
			{From: at, On: ReportUndoFailed, If: undoing, To: machines.Same, Do: undoFailed, Emit: only(EventUndoStuck)},
		}...)
	}
	return append(edges,
		machines.Edge[Data]{From: at, On: g.Failed, If: executing, To: Failed, Do: fail, Emit: failing},
		machines.Edge[Data]{From: at, On: Timeout, To: Failed, Do: fail, Emit: append([]string{EventTimeout}, failing...)})
}

func states() []machines.State[Data] {
	list := []machines.State[Data]{}
	for i := range Stages {
		g := &Stages[i]
		state := machines.State[Data]{Name: g.State, Doc: g.Doc, Timeout: &machines.Timeout[Data]{Input: Timeout, Until: until(g)}}
		if g.State == Copying {
			state.Poll = &machines.Poll{Every: time.Second, Effect: EffectLook}
		}
		list = append(list, state)
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
	var list []machines.Effect[Data]
	for i := range Stages {
		g := &Stages[i] // the machine repeats by itself, so that the wait is a phase; its deadline ends an attempt before this one does
		list = append(list, machines.Effect[Data]{Name: g.Effect, Doc: g.Doc, Done: g.Done, Failed: g.Failed, Retry: machines.Retry{Attempts: 1}, Timeout: g.Timeout + time.Minute, Payload: task, Task: Task{}})
	}
	return append(list,
		machines.Effect[Data]{Name: EffectHalt, Doc: "Stop what an earlier attempt still does.", Done: ReportHalted, Failed: ReportHaltFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 5}},
		machines.Effect[Data]{Name: EffectLook, Doc: "Read how far the copy is.", Done: ReportProgressed, Failed: ReportLookFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 1}, Looks: true},
		machines.Effect[Data]{Name: EffectRotate, Doc: "Give the tenant's role a new password.", Done: ReportRotated, Failed: ReportKept, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 3}},
		machines.Effect[Data]{Name: EffectUndo, Doc: "Take back what was created, last first.", Done: ReportUndone, Failed: ReportUndoFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 3, Base: 5 * time.Second, Cap: 5 * time.Minute}, Timeout: 10 * time.Minute})
}

func inputs() []machines.Command {
	list := []machines.Command{
		{Name: CommandRequest, Doc: "Move the tenant into a database of its own.", Body: RequestBody{}, Birth: true},
		{Name: CommandApprove, Doc: "Carry out the plan."},
		{Name: CommandPause, Doc: "Stop after what is under way; what was copied stays."},
		{Name: CommandResume, Doc: "Go on after a pause."},
		{Name: CommandCancel, Doc: "Take back everything and end.", Destructive: true},
		{Name: CommandRetry, Doc: "Go on in the state in which it failed, with all attempts."},
		{Name: CommandRollback, Doc: "Take back everything.", Body: RollbackBody{}, Destructive: true},
		{Name: CommandResolve, Doc: "Say that it was repaired by hand, and how.", Body: ResolveBody{}, Admin: true, Destructive: true},
		{Name: CommandRevert, Doc: "Send the tenant back to the shared database. It is refused when the tenant has written since the switch, unless the body says what becomes of that.", Body: RevertBody{}, Admin: true, Destructive: true},
		{Name: CommandRetire, Doc: "Close the tenant: nobody gets in, and its database is dropped after the grace period.", Body: RetireBody{}, Admin: true, Destructive: true},
		{Name: CommandRotate, Doc: "Give the tenant's role a new password. Connections that are open stay.", Admin: true},
		{Name: ReportRotated, Doc: "The role has a new password.", Body: Rotated{}, Report: true},
		{Name: ReportKept, Doc: "The role has no new password that is known; rotate makes another one.", Body: machines.Failure{}, Report: true},
		{Name: ReportProgressed, Doc: "How far the copy is.", Body: Progress{}, Report: true},
		{Name: ReportLookFailed, Doc: "It could not be read how far the copy is; the idle limit tells of a copy that stands.", Body: machines.Failure{}, Report: true},
		{Name: ReportHalted, Doc: "Nothing of an earlier attempt is under way.", Report: true},
		{Name: ReportHaltFailed, Doc: "It is not known whether an earlier attempt has ended; the next one fences it.", Body: machines.Failure{}, Report: true},
		{Name: ReportUndone, Doc: "What became of each action of an undo.", Body: Undone{}, Report: true},
		{Name: ReportUndoFailed, Doc: "The undo could not be carried out.", Body: machines.Failure{}, Report: true},
		{Name: Timeout, Doc: "An attempt took too long, or made no progress; or its wait is over.", Report: true},
	}
	for i := range Stages {
		g := &Stages[i]
		list = append(list,
			machines.Command{Name: g.Done, Doc: "It is done: " + g.Doc, Body: g.Body, Report: true},
			machines.Command{Name: g.Failed, Doc: "An attempt failed: " + g.Doc, Body: machines.Failure{}, Report: true})
	}
	return list
}
