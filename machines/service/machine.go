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
	Name: "service", Plural: "services", Doc: "A program with an address that runs from a specification.",
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
	{Name: Updating, Doc: "A new specification is being applied; the last ready revision keeps serving if the gateway supports that.", Timeout: progress, Poll: every},
	{Name: Ready, Doc: "The specification was observed to run.", Poll: every},
	{Name: Failed, Doc: "The specification does not run; the service becomes READY if it converges later.", Failed: true, Poll: every},
	{Name: Deleting, Doc: "The gateway is deleting the service.", Timeout: deletion, Poll: every},
	{Name: Deleted, Doc: "The service is gone; create begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandCreate, Doc: "Create the service from a specification.", Body: CreateBody{}, Birth: true, Replaces: true},
	{Name: CommandUpdate, Doc: "Change the specification.", Body: UpdateBody{}, Replaces: true},
	{Name: CommandDelete, Doc: "Delete the service, whatever is in progress.", Destructive: true},
	{Name: CommandRefresh, Doc: "Observe the service now."},
	{Name: CommandRollback, Doc: "Return to the last specification that was ready and is not the one wanted now."},
	{Name: CommandLabel, Doc: "Replace the labels.", Body: LabelBody{}, Replaces: true},
	{Name: CommandPurge, Doc: "Forget the service even if the gateway still has it.", Body: PurgeBody{}, Admin: true, Destructive: true},
	{Name: ReportApplied, Doc: "The gateway accepted the specification.", Body: Applied{}, Report: true},
	{Name: ReportApplyFailed, Doc: "The gateway did not accept the specification.", Body: machines.Failure{}, Report: true},
	{Name: ReportObserved, Doc: "What the gateway reports.", Body: Observation{}, Report: true},
	{Name: ReportObserveFailed, Doc: "The gateway could not be observed.", Body: machines.Failure{}, Report: true},
	{Name: ReportGone, Doc: "The gateway no longer has the service.", Report: true},
	{Name: ReportDeleteTaken, Doc: "The gateway began the deletion.", Report: true},
	{Name: ReportDeleteFailed, Doc: "The gateway did not accept the deletion.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutProgress, Doc: "The service did not converge in time.", Report: true},
	{Name: TimeoutDelete, Doc: "The service was not gone in time.", Report: true},
}

// The deadline, not the number of tries, ends an apply: so many tries take longer than the default deadline.
var effects = []machines.Effect[Data]{
	{Name: EffectApply, Doc: "Apply the specification to the gateway.", Done: ReportApplied, Failed: ReportApplyFailed, Retry: machines.Retry{Attempts: 50}, Payload: applyTask, Task: ApplyTask{}},
	{Name: EffectDelete, Doc: "Delete the service from the gateway.", Done: ReportDeleteTaken, Failed: ReportDeleteFailed, Payload: deleteTask, Task: DeleteTask{}},
	{Name: EffectObserve, Doc: "Read the state from the gateway.", Done: ReportObserved, Failed: ReportObserveFailed, Retry: machines.Retry{Attempts: 3}, Payload: observeTask, Task: ObserveTask{}, Looks: true},
}

var events = []machines.EventType{
	{Name: EventCreationRequested, Class: machines.ClassProgress, Doc: "Creation was requested."},
	{Name: EventCreationFailed, Class: machines.ClassError, Doc: "The gateway did not accept the first specification."},
	{Name: EventUpdateRequested, Class: machines.ClassProgress, Doc: "A new specification, policy or set of labels was requested, also by rollback."},
	{Name: EventUpdated, Class: machines.ClassState, Doc: "An update is complete."},
	{Name: EventSpecAccepted, Class: machines.ClassResource, Doc: "A new specification is wanted: its hash, generation and changes, whether it is forced, and how long its sender waits, if it does."},
	{Name: EventApplyStarted, Class: machines.ClassProgress, Doc: "The specification is being sent to the gateway."},
	{Name: EventSpecApplied, Class: machines.ClassProgress, Doc: "The gateway accepted the specification: its uid, generation and resource version."},
	{Name: EventPersisted, Class: machines.ClassResource, Doc: "The gateway has an object for this life."},
	{Name: EventSnapshot, Class: machines.ClassResource, Doc: "A complete observation."},
	{Name: EventConfirmed, Class: machines.ClassProgress, Doc: "The wanted specification was observed to run."},
	{Name: EventNotConverged, Class: machines.ClassError, Doc: "The wanted specification did not converge."},
	{Name: EventReady, Class: machines.ClassState, Doc: "The service is READY."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "The service is FAILED, and why."},
	{Name: EventDegraded, Class: machines.ClassError, Doc: "The service is READY, but was observed not to be."},
	{Name: EventRecovered, Class: machines.ClassState, Doc: "The service recovered by itself."},
	{Name: EventDrift, Class: machines.ClassResource, Doc: "The object differs from the specification, and how."},
	{Name: EventLabels, Class: machines.ClassState, Doc: "The labels were replaced."},
	{Name: EventDeletionRequested, Class: machines.ClassProgress, Doc: "Deletion was requested."},
	{Name: EventDeletionMarked, Class: machines.ClassState, Doc: "The service is DELETING; the deletion is being sent to the gateway."},
	{Name: EventDeletionStarted, Class: machines.ClassProgress, Doc: "The gateway accepted the deletion."},
	{Name: EventDeletionStalled, Class: machines.ClassError, Doc: "The deletion has not finished in time."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "The service is DELETED."},
	{Name: EventPurged, Class: machines.ClassState, Doc: "The service was purged; the gateway may still have it."},
	{Name: EventAudit, Class: machines.ClassResource, Doc: "An exceptional manual action, and who took it."},
	{Name: EventObservationFailed, Class: machines.ClassError, Doc: "The gateway could not be observed; the last known state becomes stale."},
	{Name: EventRevisionCreated, Subject: "service.revision.created", Class: machines.ClassResource, Doc: "A revision was observed for the first time."},
	{Name: EventRouteAligned, Subject: "service.route.aligned", Class: machines.ClassResource, Doc: "The traffic targets changed."},
	{Name: EventNamespaceChecked, Subject: "service.namespace.validated", Class: machines.ClassProgress, Doc: "The gateway accepted an object in this namespace."},
}

var columns = []machines.Column{
	{Title: "URL", Path: "data.snapshot.url"},
	{Title: "SERVING", Path: "data.snapshot.serving"},
	{Title: "IMAGE", Path: "data.spec.image"},
}
