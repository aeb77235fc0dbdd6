package session

import "github.com/bcc94042/instar/machines"

// Events that all sessions have under one name.
const (
	EventUndoStarted   = "provisioning.rollback.started"
	EventUndoCompleted = "provisioning.rollback.completed"
	EventActionFailed  = "provisioning.rollback.action_failed"
	EventTransitioned  = "provisioning.state.transitioned"
	EventTimeout       = "provisioning.session.timeout"

	EventResourceChanged = "provisioning.resource.changed"
)

// event is the name of an event of the kind.
func (k *Kind[D]) event(name string) string { return k.Prefix + "." + name }

// PlanEvents are those of a plan.
func (k *Kind[D]) PlanEvents() []machines.EventType {
	return []machines.EventType{
		{Name: k.event("planning"), Class: machines.ClassProgress, Doc: "An attempt to plan begins."},
		{Name: k.event("planned"), Class: machines.ClassState, Doc: "The plan: steps, rows per table, time."},
		{Name: k.event("waiting"), Class: machines.ClassState, Doc: "The plan waits for approve."},
		{Name: k.event("approved"), Class: machines.ClassState, Doc: "The plan was approved, and by whom."},
	}
}

// CourseEvents are those of failures, and of what users do about them.
func (k *Kind[D]) CourseEvents() []machines.EventType {
	return []machines.EventType{
		{Name: k.event("failed"), Class: machines.ClassState, Doc: "The session failed, where, and why."},
		{Name: k.event("retrying"), Class: machines.ClassError, Doc: "An attempt failed; when the next one begins."},
		{Name: k.event("retried"), Class: machines.ClassState, Doc: "A failed session goes on."},
		{Name: k.event("cancelled"), Class: machines.ClassState, Doc: "The session was cancelled."},
		{Name: k.event("paused"), Class: machines.ClassState, Doc: "The session is paused."},
		{Name: k.event("halted"), Class: machines.ClassProgress, Doc: "The attempt that was under way was stopped, as far as it is known."},
		{Name: k.event("resumed"), Class: machines.ClassState, Doc: "The session goes on after a pause."},
		{Name: k.event("resolved"), Class: machines.ClassState, Doc: "Somebody has repaired it by hand."},
	}
}

// UndoEvents are those of an undo, and those that all sessions share.
func (k *Kind[D]) UndoEvents() []machines.EventType {
	return []machines.EventType{
		{Name: k.event("rollback.started"), Class: machines.ClassState, Doc: "What was created is being taken back."},
		{Name: k.event("rollback.completed"), Class: machines.ClassState, Doc: "Everything was taken back."},
		{Name: k.event("rollback.stuck"), Class: machines.ClassError, Doc: "Not everything could be taken back."},
		{Name: EventUndoStarted, Class: machines.ClassState, Doc: "The same under the name that all sessions share."},
		{Name: EventUndoCompleted, Class: machines.ClassState, Doc: "The same under the name that all sessions share."},
		{Name: EventActionFailed, Class: machines.ClassError, Doc: "An action of the undo failed."},
		{Name: EventTransitioned, Class: machines.ClassState, Doc: "The state has changed."},
		{Name: EventTimeout, Class: machines.ClassError, Doc: "An attempt took too long, or made no progress."},
		{Name: EventResourceChanged, Class: machines.ClassResource, Doc: "Something of the ledger was created or taken back."},
	}
}

// Commands are those of all sessions but request.
func Commands() []machines.Command {
	return []machines.Command{
		{Name: CommandApprove, Doc: "Carry out the plan."},
		{Name: CommandPause, Doc: "Stop after what is under way; what was copied stays."},
		{Name: CommandResume, Doc: "Go on after a pause."},
		{Name: CommandCancel, Doc: "Take back everything and end.", Destructive: true},
		{Name: CommandRetry, Doc: "Go on in the state in which it failed, with all attempts."},
		{Name: CommandRollback, Doc: "Take back everything.", Body: RollbackBody{}, Destructive: true},
		{Name: CommandResolve, Doc: "Say that it was repaired by hand, and how.", Body: ResolveBody{}, Admin: true, Destructive: true},
	}
}

// Reports are those of all sessions, and of these stages.
func Reports(stages []Stage) []machines.Command {
	list := []machines.Command{
		{Name: ReportHalted, Doc: "Nothing of an earlier attempt is under way.", Report: true},
		{Name: ReportHaltFailed, Doc: "It is not known whether an earlier attempt has ended; the next one fences it.", Body: machines.Failure{}, Report: true},
		{Name: ReportUndone, Doc: "What became of each action of an undo.", Body: Results{}, Report: true},
		{Name: ReportUndoFailed, Doc: "The undo could not be carried out.", Body: machines.Failure{}, Report: true},
		{Name: Timeout, Doc: "An attempt took too long, or made no progress; or its wait is over.", Report: true},
	}
	for i := range stages {
		g := &stages[i]
		list = append(list,
			machines.Command{Name: g.Done, Doc: "It is done: " + g.Doc, Body: g.Body, Report: true},
			machines.Command{Name: g.Failed, Doc: "An attempt failed: " + g.Doc, Body: machines.Failure{}, Report: true})
	}
	return list
}
