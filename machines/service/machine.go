package service

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	Creating = "CREATING"
	Updating = "UPDATING"
	Ready    = "READY"
	Failed   = "FAILED"
	Deleting = "DELETING"
	Deleted  = "DELETED"
)

// Inputs: commands of users, reports of the gateway and its observer, timeouts.
const (
	CommandCreate   = "create"
	CommandUpdate   = "update"
	CommandDelete   = "delete"
	CommandRefresh  = "refresh"
	CommandRollback = "rollback"
	CommandLabel    = "label"
	CommandPurge    = "purge"

	ReportApplied       = "applied"
	ReportApplyFailed   = "apply-failed"
	ReportObserved      = "observed"
	ReportObserveFailed = "observe-failed"
	ReportGone          = "deleted-observed"
	ReportDeleteTaken   = "delete-accepted"
	ReportDeleteFailed  = "delete-failed"

	TimeoutProgress = "progress-deadline"
	TimeoutDelete   = "delete-deadline"
)

// Effects.
const (
	EffectApply   = "apply"
	EffectDelete  = "delete"
	EffectObserve = "observe"
)

// Events. Three keep the type names of the first design; their subjects are dotted like all others.
const (
	EventCreationRequested = "service.creation.requested"
	EventCreationFailed    = "service.creation.failed"
	EventUpdateRequested   = "service.update.requested"
	EventUpdated           = "service.updated"
	EventSpecAccepted      = "service.spec.accepted"
	EventApplyStarted      = "service.spec.apply.started"
	EventSpecApplied       = "service.spec.applied"
	EventPersisted         = "service.persisted"
	EventSnapshot          = "service.snapshot.updated"
	EventConfirmed         = "service.convergence.confirmed"
	EventNotConverged      = "service.convergence.failed"
	EventReady             = "service.ready"
	EventFailed            = "service.failed"
	EventDegraded          = "service.degraded"
	EventRecovered         = "service.recovered"
	EventDrift             = "service.drift.detected"
	EventLabels            = "service.labels.updated"
	EventDeletionRequested = "service.deletion.requested"
	EventDeletionMarked    = "service.deletion.marked"
	EventDeletionStarted   = "service.deletion.started"
	EventDeletionStalled   = "service.deletion.stalled"
	EventDeleted           = "service.deleted"
	EventPurged            = "service.external.purged"
	EventAudit             = "service.audit.recorded"
	EventObservationFailed = "service.observation.failed"
	EventRevisionCreated   = "RevisionCreated"
	EventRouteAligned      = "RouteAligned"
	EventNamespaceChecked  = "NamespaceValidated"
)

// Machine is the lifecycle of a service.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "service", Plural: "services", Doc: "Something with an address that runs from a specification.",
	States: states, Inputs: inputs, Effects: effects, Events: events, Columns: columns, Edges: table, Views: views,
})

// Groups of states and of events that several rows share. Every edge of an observation tells the snapshot first.
var (
	unborn     = []string{machines.None, Deleted}
	converging = []string{Creating, Updating}
	settled    = []string{Ready, Failed}
	unmarked   = []string{Creating, Updating, Ready, Failed}
	live       = []string{Creating, Updating, Ready, Failed, Deleting}

	updated = []string{EventUpdateRequested, EventSpecAccepted, EventApplyStarted}
	broken  = []string{EventSnapshot, EventNotConverged, EventFailed}
	apply   = []string{EffectApply}
	remove  = []string{EffectDelete}
	look    = []string{EffectObserve}
)

func only(state string) []string      { return []string{state} }
func emit(events ...string) []string  { return events }
func sight(events ...string) []string { return append([]string{EventSnapshot}, events...) }

var table = []machines.Edge[Data]{
	{From: unborn, On: CommandCreate, To: Creating, Do: create, Emit: emit(EventCreationRequested, EventSpecAccepted, EventApplyStarted), Effects: apply},
	{From: only(Ready), On: CommandUpdate, If: nothingNew, To: machines.Same, Noop: true},
	{From: only(Ready), On: CommandUpdate, If: sameSpec, To: machines.Same, Do: retune, Emit: emit(EventUpdateRequested, EventUpdated)},
	{From: settled, On: CommandUpdate, To: Updating, Do: update, Emit: updated, Effects: apply},
	{From: converging, On: CommandUpdate, If: supersedes, To: Updating, Reenter: true, Do: update, Emit: updated, Effects: apply},
	{From: []string{Updating, Ready, Failed}, On: CommandRollback, If: hasTarget, To: Updating, Reenter: true, Do: rollback, Emit: updated, Effects: apply},
	{From: unmarked, On: CommandDelete, To: Deleting, Do: markDeleting, Emit: emit(EventDeletionRequested, EventDeletionMarked), Effects: remove},
	{From: live, On: CommandRefresh, To: machines.Same, Do: audit, Emit: emit(EventAudit), Effects: look},
	{From: live, On: CommandLabel, To: machines.Same, Do: label, Emit: emit(EventLabels)},
	{From: live, On: CommandPurge, If: forced, To: Deleted, Do: purge, Emit: emit(EventPurged, EventDeleted, EventAudit)},

	{From: converging, On: ReportApplied, To: machines.Same, Do: applied, Emit: emit(EventSpecApplied)},
	{From: only(Creating), On: ReportApplyFailed, To: Failed, Do: applyFailed, Emit: emit(EventCreationFailed, EventFailed)},
	{From: only(Updating), On: ReportApplyFailed, To: Failed, Do: applyFailed, Emit: emit(EventNotConverged, EventFailed)},
	{From: converging, On: TimeoutProgress, To: Failed, Do: late, Emit: emit(EventNotConverged, EventFailed)},

	{From: only(Creating), On: ReportObserved, If: converged, To: Ready, Do: confirm, Emit: sight(EventConfirmed, EventReady)},
	{From: only(Updating), On: ReportObserved, If: converged, To: Ready, Do: confirm, Emit: sight(EventConfirmed, EventUpdated, EventReady)},
	{From: converging, On: ReportObserved, If: failing, To: Failed, Do: giveUp, Emit: broken},
	{From: only(Ready), On: ReportObserved, If: mends, To: Updating, Do: reapply, Emit: sight(EventDrift, EventApplyStarted), Effects: apply},
	{From: only(Ready), On: ReportObserved, If: wornOut, To: Failed, Do: wearOut, Emit: sight(EventFailed)},
	{From: only(Ready), On: ReportObserved, If: drifts, To: machines.Same, Do: drift, Emit: sight(EventDrift)},
	{From: only(Ready), On: ReportObserved, If: degrades, To: machines.Same, Do: degrade, Emit: sight(EventDegraded)},
	{From: only(Ready), On: ReportObserved, If: recovers, To: machines.Same, Do: recovered, Emit: sight(EventRecovered)},
	{From: only(Failed), On: ReportObserved, If: converged, To: Ready, Do: heal, Emit: sight(EventConfirmed, EventRecovered, EventReady)},
	{From: only(Deleting), On: ReportObserved, If: gone, To: Deleted, Do: vanish, Emit: sight(EventDeleted)},
	{From: live, On: ReportObserved, To: machines.Same, Do: absorb, Emit: sight()},
	{From: live, On: ReportObserveFailed, If: blindAlready, To: machines.Same, Noop: true},
	{From: live, On: ReportObserveFailed, To: machines.Same, Do: blind, Emit: emit(EventObservationFailed)},

	{From: only(Deleting), On: ReportDeleteTaken, To: machines.Same, Do: deleteTaken, Emit: emit(EventDeletionStarted)},
	{From: only(Deleting), On: ReportDeleteFailed, To: machines.Same, Do: stall, Emit: emit(EventDeletionStalled)},
	{From: only(Deleting), On: TimeoutDelete, To: machines.Same, Do: overdue, Emit: emit(EventDeletionStalled), Effects: remove},
	{From: only(Deleting), On: ReportGone, To: Deleted, Do: vanished, Emit: sight(EventDeleted)},
	{From: only(Deleted), On: ReportGone, To: machines.Same, Noop: true}, // told twice
}

// every is how often the world is looked at when nothing tells of a change.
var every = &machines.Poll{Every: time.Minute, Effect: EffectObserve}

var (
	progress = &machines.Timeout[Data]{Input: TimeoutProgress, After: func(d *Data) time.Duration { return d.Policy.progressDeadline() }}
	deletion = &machines.Timeout[Data]{Input: TimeoutDelete, After: func(d *Data) time.Duration { return d.Policy.deleteDeadline() }}
)

var states = []machines.State[Data]{
	{Name: Creating, Doc: "The first specification of this life is being applied.", Timeout: progress, Poll: every},
	{Name: Updating, Doc: "Another specification is being applied; the last revision that was ready keeps serving where the gateway can do that.", Timeout: progress, Poll: every},
	{Name: Ready, Doc: "The specification was seen to run.", Poll: every},
	{Name: Failed, Doc: "The specification does not run; it is ready again when it converges later.", Failed: true, Poll: every},
	{Name: Deleting, Doc: "The gateway is taking it away.", Timeout: deletion, Poll: every},
	{Name: Deleted, Doc: "It is gone; create begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandCreate, Doc: "Begin a life from a specification.", Body: CreateBody{}, Birth: true},
	{Name: CommandUpdate, Doc: "Want another specification.", Body: UpdateBody{}},
	{Name: CommandDelete, Doc: "Take it away, whatever is under way.", Destructive: true},
	{Name: CommandRefresh, Doc: "Look at the world now."},
	{Name: CommandRollback, Doc: "Go back to the last specification that was ready and is not the one wanted now."},
	{Name: CommandLabel, Doc: "Replace the labels.", Body: LabelBody{}},
	{Name: CommandPurge, Doc: "Forget it even when the gateway still has it.", Body: PurgeBody{}, Admin: true, Destructive: true},
	{Name: ReportApplied, Doc: "The gateway took the specification.", Body: Applied{}, Report: true},
	{Name: ReportApplyFailed, Doc: "The gateway did not take the specification.", Body: machines.Failure{}, Report: true},
	{Name: ReportObserved, Doc: "What the gateway has.", Body: Observation{}, Report: true},
	{Name: ReportObserveFailed, Doc: "The gateway could not be looked at.", Body: machines.Failure{}, Report: true},
	{Name: ReportGone, Doc: "The gateway has it no more.", Report: true},
	{Name: ReportDeleteTaken, Doc: "The gateway began to take it away.", Report: true},
	{Name: ReportDeleteFailed, Doc: "The gateway did not take the deletion.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutProgress, Doc: "It did not converge in time.", Report: true},
	{Name: TimeoutDelete, Doc: "It was not gone in time.", Report: true},
}

// The deadline, not the number of tries, ends an apply: so many tries take longer than the default deadline.
var effects = []machines.Effect[Data]{
	{Name: EffectApply, Doc: "Make the gateway want the specification.", Done: ReportApplied, Failed: ReportApplyFailed, Retry: machines.Retry{Attempts: 50}, Payload: applyTask, Task: ApplyTask{}},
	{Name: EffectDelete, Doc: "Make the gateway take it away.", Done: ReportDeleteTaken, Failed: ReportDeleteFailed, Payload: deleteTask, Task: DeleteTask{}},
	{Name: EffectObserve, Doc: "Look at what the gateway has.", Done: ReportObserved, Failed: ReportObserveFailed, Retry: machines.Retry{Attempts: 3}, Payload: observeTask, Task: ObserveTask{}, Looks: true},
}

var events = []machines.EventType{
	{Name: EventCreationRequested, Class: machines.ClassProgress, Doc: "A life was asked for."},
	{Name: EventCreationFailed, Class: machines.ClassError, Doc: "The gateway did not take the first specification."},
	{Name: EventUpdateRequested, Class: machines.ClassProgress, Doc: "Another specification, policy or set of labels was asked for, also by rollback."},
	{Name: EventUpdated, Class: machines.ClassState, Doc: "An update is complete."},
	{Name: EventSpecAccepted, Class: machines.ClassResource, Doc: "A specification is wanted from now on: its hash, its generation, what it changes, whether it replaces what runs in any case, and how long its sender waits for it, if it does."},
	{Name: EventApplyStarted, Class: machines.ClassProgress, Doc: "The specification goes to the gateway."},
	{Name: EventSpecApplied, Class: machines.ClassProgress, Doc: "The gateway took the specification: its uid, generation and resource version."},
	{Name: EventPersisted, Class: machines.ClassResource, Doc: "The gateway has an object for this life."},
	{Name: EventSnapshot, Class: machines.ClassResource, Doc: "What was seen of it, whole."},
	{Name: EventConfirmed, Class: machines.ClassProgress, Doc: "The wanted specification was seen to run."},
	{Name: EventNotConverged, Class: machines.ClassError, Doc: "The wanted specification was given up."},
	{Name: EventReady, Class: machines.ClassState, Doc: "It is READY."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "It is FAILED, and why."},
	{Name: EventDegraded, Class: machines.ClassError, Doc: "It is READY, but was seen not to be."},
	{Name: EventRecovered, Class: machines.ClassState, Doc: "It runs again without anybody's doing."},
	{Name: EventDrift, Class: machines.ClassResource, Doc: "The object differs from the specification, and in what."},
	{Name: EventLabels, Class: machines.ClassState, Doc: "The labels were replaced."},
	{Name: EventDeletionRequested, Class: machines.ClassProgress, Doc: "Its end was asked for."},
	{Name: EventDeletionMarked, Class: machines.ClassState, Doc: "It is DELETING; the deletion goes to the gateway."},
	{Name: EventDeletionStarted, Class: machines.ClassProgress, Doc: "The gateway took the deletion."},
	{Name: EventDeletionStalled, Class: machines.ClassError, Doc: "The deletion does not come to its end."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "It is DELETED."},
	{Name: EventPurged, Class: machines.ClassState, Doc: "It was forgotten by force; the gateway may still have it."},
	{Name: EventAudit, Class: machines.ClassResource, Doc: "Somebody did by hand what is not the usual way, and who."},
	{Name: EventObservationFailed, Class: machines.ClassError, Doc: "The gateway could not be looked at; what is known grows old."},
	{Name: EventRevisionCreated, Subject: "service.revision.created", Class: machines.ClassResource, Doc: "A revision was seen for the first time."},
	{Name: EventRouteAligned, Subject: "service.route.aligned", Class: machines.ClassResource, Doc: "Traffic goes elsewhere than before."},
	{Name: EventNamespaceChecked, Subject: "service.namespace.validated", Class: machines.ClassProgress, Doc: "The gateway took an object in this namespace."},
}

var columns = []machines.Column{
	{Title: "URL", Path: "data.snapshot.url"},
	{Title: "SERVING", Path: "data.snapshot.serving"},
	{Title: "IMAGE", Path: "data.spec.image"},
}
