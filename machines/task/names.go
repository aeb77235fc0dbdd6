package task

import "github.com/bcc94042/instar/machines"

// States.
const (
	Pending   = "pending"
	Queued    = "queued"
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Canceled  = "canceled"
	Deleting  = "deleting"
	Deleted   = "deleted"
)

// Inputs: commands of users, reports, timers.
const (
	CommandCreate     = "create"
	CommandRun        = "run"
	CommandRetry      = "retry"
	CommandCancel     = "cancel"
	CommandReset      = "reset"
	CommandForceReset = "force-reset"
	CommandSnooze     = "snooze"
	CommandSchedule   = "schedule"
	CommandDelete     = "delete"

	ReportStarted     = "started"
	ReportBlocked     = "blocked"
	ReportExpired     = "expired"
	ReportProgress    = "progress"
	ReportDone        = "done"
	ReportRunFailed   = "run-failed"
	ReportStuck       = "stuck"
	ReportDiscarded   = "discarded"
	ReportErased      = "erased"
	ReportEraseFailed = "erase-failed"

	TimeoutRun   = "run-deadline"
	TimeoutErase = "erase-deadline"
	AlarmCron    = "cron"
)

// Effects. A worker of run gets a [Run] and answers with a [Result]; one of erase gets an [Erase].
const (
	EffectRun   = "run"
	EffectErase = "erase"
)

// Events.
const (
	EventCreated     = "task.created"
	EventQueued      = "task.queued"
	EventStarted     = "task.started"
	EventProgress    = "task.progress"
	EventSucceeded   = "task.succeeded"
	EventFailed      = "task.failed"
	EventRetrying    = "task.retrying"
	EventSnoozed     = "task.snoozed"
	EventCanceled    = "task.canceled"
	EventReset       = "task.reset"
	EventDiscarded   = "task.result.discarded"
	EventErased      = "task.documents.erased"
	EventEraseFailed = "task.documents.erase.failed"
	EventScheduled   = "task.scheduled"
	EventSkipped     = "task.run.skipped"
	EventDeletion    = "task.deletion.requested"
	EventDeleted     = "task.deleted"
)

var events = []machines.EventType{
	{Name: EventCreated, Class: machines.ClassResource, Doc: "A task was created."},
	{Name: EventQueued, Class: machines.ClassProgress, Doc: "The task waits for its turn."},
	{Name: EventStarted, Class: machines.ClassProgress, Doc: "An attempt was started, and which."},
	{Name: EventProgress, Class: machines.ClassProgress, Doc: "How far the attempt is, as its worker says."},
	{Name: EventSucceeded, Class: machines.ClassState, Doc: "The task succeeded, and what came of it."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "The task failed for good, and why."},
	{Name: EventRetrying, Class: machines.ClassError, Doc: "An attempt failed, why, and when the next one may start."},
	{Name: EventSnoozed, Class: machines.ClassProgress, Doc: "The task waits longer; no attempt was used up."},
	{Name: EventCanceled, Class: machines.ClassState, Doc: "The task was canceled, by whom, and why."},
	{Name: EventReset, Class: machines.ClassResource, Doc: "The task is as if it had never run; its documents are being erased."},
	{Name: EventDiscarded, Class: machines.ClassError, Doc: "A worker brought a result that nobody waited for any more; it was not used."},
	{Name: EventErased, Class: machines.ClassProgress, Doc: "Documents were erased."},
	{Name: EventEraseFailed, Class: machines.ClassError, Doc: "Documents could not be erased; the sweep of documents removes them, ten minutes later or more."},
	{Name: EventScheduled, Class: machines.ClassResource, Doc: "The times at which the task runs by itself were set or removed."},
	{Name: EventSkipped, Class: machines.ClassProgress, Doc: "The task was queued or running when its time came."},
	{Name: EventDeletion, Class: machines.ClassProgress, Doc: "Deletion was requested."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "The task is deleted."},
}

var columns = []machines.Column{
	{Title: "TYPE", Path: "data.type", Selects: true},
	{Title: "POOL", Path: "data.pool", Selects: true, Absent: NodesPool},
	{Title: "PRIORITY", Path: "data.priority"},
	{Title: "ATTEMPT", Path: "data.attempt"},
	{Title: "NOT BEFORE", Path: "data.notBefore"},
	{Title: "PROGRESS", Path: "data.progress.percent"},
	{Title: "SUMMARY", Path: "data.result.summary"},
}
