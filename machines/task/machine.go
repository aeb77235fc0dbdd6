package task

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Machine is the lifecycle of a task.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "task", Plural: "tasks", Parent: "repository", Doc: "One piece of work of a repository, queued and run under limits.",
	States: states, Inputs: inputs, Effects: effects, Events: events, Columns: columns, Edges: table,
	Alarms: []machines.Alarm[Data]{{Name: "cron", Input: AlarmCron, Until: func(d *Data) time.Time { return d.NextRun }}},
})

// Groups of states and of effects that several rows share.
var (
	unborn = []string{machines.None, Deleted}
	idle   = []string{Pending, Failed, Canceled}
	final  = []string{Succeeded, Failed, Canceled}
	active = []string{Queued, Running}
	living = []string{Pending, Queued, Running, Succeeded, Failed, Canceled}
	others = []string{Pending, Queued, Succeeded, Failed, Canceled, Deleting, Deleted}

	perform = []string{EffectRun}
	erase   = []string{EffectErase}
)

func only(state string) []string     { return []string{state} }
func emit(events ...string) []string { return events }

var table = []machines.Edge[Data]{
	{From: unborn, On: CommandCreate, If: atOnce, To: Queued, Do: createQueued, Emit: emit(EventCreated, EventQueued)},
	{From: unborn, On: CommandCreate, To: Pending, Do: create, Emit: emit(EventCreated)},
	{From: idle, On: CommandRun, To: Queued, Do: run, Emit: emit(EventQueued)},
	{From: only(Succeeded), On: CommandRun, If: again, To: Queued, Do: run, Emit: emit(EventQueued)},
	{From: active, On: CommandRun, To: machines.Same, Noop: true},
	{From: []string{Failed, Canceled}, On: CommandRetry, To: Queued, Do: run, Emit: emit(EventQueued)},
	{From: active, On: CommandRetry, To: machines.Same, Noop: true},
	{From: only(Queued), On: CommandSnooze, To: machines.Same, Do: snooze, Emit: emit(EventSnoozed)},
	{From: living, On: CommandSchedule, If: sameSchedule, To: machines.Same, Noop: true},
	{From: living, On: CommandSchedule, To: machines.Same, Do: schedule, Emit: emit(EventScheduled)},
	{From: active, On: CommandCancel, To: Canceled, Do: cancel, Emit: emit(EventCanceled)},
	{From: only(Canceled), On: CommandCancel, To: machines.Same, Noop: true},
	{From: final, On: CommandReset, To: Pending, Do: reset, Emit: emit(EventReset), Effects: erase},
	{From: only(Pending), On: CommandReset, To: machines.Same, Noop: true},
	{From: append(final, active...), On: CommandForceReset, To: Pending, Do: reset, Emit: emit(EventReset), Effects: erase},
	{From: only(Pending), On: CommandForceReset, To: machines.Same, Noop: true},
	{From: []string{Pending, Queued, Canceled}, On: CommandDelete, If: bare, To: Deleted, Do: markDeleted, Emit: emit(EventDeletion, EventDeleted)},
	{From: []string{Pending, Queued, Succeeded, Failed, Canceled}, On: CommandDelete, To: Deleting, Do: markDeleting, Emit: emit(EventDeletion), Effects: erase},
	{From: only(Deleting), On: CommandDelete, To: machines.Same, Noop: true},
	{From: final, On: ReportExpired, If: stillEnded, To: Deleting, Do: markDeleting, Emit: emit(EventDeletion), Effects: erase},

	{From: only(Queued), On: ReportStarted, If: waitsFor, To: Running, Do: start, Emit: emit(EventStarted), Effects: perform},
	{From: only(Queued), On: ReportBlocked, If: blockedByFailure, To: Failed, Do: blockFailed, Emit: emit(EventFailed)},
	{From: only(Queued), On: ReportBlocked, If: blocked, To: Canceled, Do: blockCanceled, Emit: emit(EventCanceled)},
	{From: []string{Failed, Canceled}, On: ReportBlocked, If: blocked, To: machines.Same, Noop: true},
	{From: only(Running), On: ReportStarted, If: runsIt, To: machines.Same, Noop: true},
	{From: only(Running), On: ReportProgress, If: ofAttempt, To: machines.Same, Do: progress, Emit: emit(EventProgress)},
	{From: only(Running), On: ReportProgress, To: machines.Same, Noop: true},
	{From: others, On: ReportProgress, To: machines.Same, Noop: true},
	{From: only(Running), On: ReportDone, If: snoozes, To: Queued, Do: snoozed, Emit: emit(EventSnoozed)},
	{From: only(Running), On: ReportDone, If: answers, To: Succeeded, Do: succeed, Emit: emit(EventSucceeded)},
	{From: only(Running), On: ReportRunFailed, If: mayRetry, To: Queued, Do: retry, Emit: emit(EventRetrying, EventQueued)},
	{From: only(Running), On: ReportRunFailed, If: answers, To: Failed, Do: fail, Emit: emit(EventFailed)},
	{From: only(Running), On: TimeoutRun, If: attemptsRemain, To: Queued, Do: retryLate, Emit: emit(EventRetrying, EventQueued)},
	{From: only(Running), On: TimeoutRun, To: Failed, Do: failLate, Emit: emit(EventFailed)},
	{From: only(Running), On: ReportStuck, If: stuckAttempt, To: Failed, Do: failStuck, Emit: emit(EventFailed)},
	{From: living, On: ReportDiscarded, If: unanswered, To: machines.Same, Do: discard, Emit: emit(EventDiscarded)},
	{From: living, On: ReportDiscarded, If: hadAttempt, To: machines.Same, Noop: true},

	{From: append(idle, Succeeded), On: AlarmCron, To: Queued, Do: cronRun, Emit: emit(EventQueued)},
	{From: active, On: AlarmCron, To: machines.Same, Do: skip, Emit: emit(EventSkipped)},
	{From: only(Deleting), On: AlarmCron, To: machines.Same, Do: markDeleting, Emit: emit(EventSkipped)},

	{From: only(Pending), On: ReportErased, To: machines.Same, Do: erased, Emit: emit(EventErased)},
	{From: only(Pending), On: ReportEraseFailed, To: machines.Same, Do: eraseFailed, Emit: emit(EventEraseFailed)},
	{From: only(Deleting), On: ReportErased, To: Deleted, Do: markDeleted, Emit: emit(EventDeleted)},
	{From: only(Deleting), On: ReportEraseFailed, To: Deleted, Do: deletedEraseFailed, Emit: emit(EventEraseFailed, EventDeleted)},
	{From: only(Deleting), On: TimeoutErase, To: Deleted, Do: eraseLate, Emit: emit(EventEraseFailed, EventDeleted)},
}

// grace is what a worker has to report its own timeout, before the deadline of the task ends the attempt.
const grace = 5 * time.Second

var states = []machines.State[Data]{
	{Name: Pending, Doc: "It waits to be run."},
	{Name: Queued, Doc: "It waits for its turn: for its time, the tasks that it runs after, and a free slot under all limits.", Transitional: true},
	{Name: Running, Doc: "An attempt is under way.", Timeout: &machines.Timeout[Data]{Input: TimeoutRun, After: func(d *Data) time.Duration { return d.timeout() + grace }}},
	{Name: Succeeded, Doc: "It is done; the result says where its documents are."},
	{Name: Failed, Doc: "It failed for good; the error says why. run or retry begins again.", Failed: true},
	{Name: Canceled, Doc: "It was canceled."},
	{Name: Deleting, Doc: "Its documents are being erased.", Timeout: &machines.Timeout[Data]{Input: TimeoutErase, After: func(*Data) time.Duration { return 10 * time.Minute }}},
	{Name: Deleted, Doc: "It is gone; create begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandCreate, Doc: "Create a task, and queue it if run is true.", Body: CreateBody{}, Birth: true},
	{Name: CommandRun, Doc: "Queue it; of a queued or running task it changes nothing.", Body: RunBody{}},
	{Name: CommandRetry, Doc: "Queue a failed or canceled task again.", Body: RunBody{}},
	{Name: CommandCancel, Doc: "End it: a queued one at once, a running one as soon as its worker sees it. Its result is discarded."},
	{Name: CommandReset, Doc: "Make it pending again and erase its documents.", Destructive: true},
	{Name: CommandForceReset, Doc: "The same in any state, also while it runs.", Destructive: true},
	{Name: CommandSnooze, Doc: "Let a queued task wait longer.", Body: SnoozeBody{}},
	{Name: CommandSchedule, Doc: "Set or end the times at which it runs by itself.", Body: ScheduleBody{}, Replaces: true},
	{Name: CommandDelete, Doc: "Delete it with its documents; a running one has to be canceled before.", Destructive: true},
	{Name: ReportStarted, Doc: "A slot is taken for it.", Body: Started{}, Report: true},
	{Name: ReportBlocked, Doc: "A task that it runs after has failed for good, or was canceled or deleted.", Body: Blocked{}, Report: true},
	{Name: ReportExpired, Doc: "It ended longer ago than ended tasks are kept.", Body: Expired{}, Report: true},
	{Name: ReportProgress, Doc: "How far it is.", Body: Progress{}, Report: true},
	{Name: ReportDone, Doc: "The attempt succeeded, or asks to wait.", Body: Result{}, Report: true},
	{Name: ReportRunFailed, Doc: "The attempt failed.", Body: machines.Failure{}, Report: true},
	{Name: ReportStuck, Doc: "The attempt is given up.", Body: Stuck{}, Report: true},
	{Name: ReportDiscarded, Doc: "A result came after the end of its attempt.", Body: machines.Late{}, Report: true},
	{Name: ReportErased, Doc: "Documents were erased.", Body: Erased{}, Report: true},
	{Name: ReportEraseFailed, Doc: "Documents could not be erased.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutRun, Doc: "The attempt brought no result in time.", Report: true},
	{Name: TimeoutErase, Doc: "The documents were not erased in time.", Report: true},
	{Name: AlarmCron, Doc: "The schedule has come.", Report: true},
}

// Attempts of run are counted by the task, so the engine makes one try of each; the task's own timeout is shorter than that of the effect.
var effects = []machines.Effect[Data]{
	{Name: EffectRun, Doc: "Do what the type of the task says.", Done: ReportDone, Failed: ReportRunFailed, Retry: machines.Retry{Attempts: 1}, Timeout: MaxTimeout + time.Minute, Payload: runPayload, Task: Run{}, Route: runRoute, Late: ReportDiscarded, Parallel: MaxParallel},
	{Name: EffectErase, Doc: "Erase the documents of the task.", Done: ReportErased, Failed: ReportEraseFailed, Retry: machines.Retry{Attempts: 8}, Payload: erasePayload, Task: Erase{}},
}
