package database

import "github.com/bcc94042/instar/machines"

// Events, under the names of the specification; what it lacks is named alike.
const (
	EventRequested             = "provisioning.db.requested"
	EventPlanning              = "provisioning.db.planning"
	EventPlanned               = "provisioning.db.planned"
	EventWaiting               = "provisioning.db.waiting"
	EventApproved              = "provisioning.db.approved"
	EventAllocating            = "provisioning.db.allocating"
	EventAllocated             = "provisioning.db.allocated"
	EventMigrationsStarted     = "provisioning.migrations.started"
	EventMigrationApplied      = "provisioning.migration.applied"
	EventMigrationsCompleted   = "provisioning.migrations.completed"
	EventDataStarted           = "provisioning.data_migration.started"
	EventDataProgress          = "provisioning.data_migration.progress"
	EventDataCompleted         = "provisioning.data_migration.completed"
	EventVerificationStarted   = "provisioning.verification.started"
	EventVerificationCompleted = "provisioning.verification.completed"
	EventSwitchingStarted      = "provisioning.switching.started"
	EventSwitchingCompleted    = "provisioning.switching.completed"
	EventReady                 = "provisioning.db.ready"
	EventFailed                = "provisioning.db.failed"
	EventRetrying              = "provisioning.db.retrying"
	EventRetried               = "provisioning.db.retried"
	EventCancelled             = "provisioning.db.cancelled"
	EventPaused                = "provisioning.db.paused"
	EventHalted                = "provisioning.db.halted"
	EventResumed               = "provisioning.db.resumed"
	EventResolved              = "provisioning.db.resolved"
	EventReverting             = "provisioning.db.revert.started"
	EventRevertRefused         = "provisioning.db.revert.refused"
	EventRetiring              = "provisioning.db.deprovision.started"
	EventRetired               = "provisioning.db.deprovision.completed"
	EventRotating              = "provisioning.db.credentials.rotating"
	EventRotated               = "provisioning.db.credentials.rotated"
	EventNotRotated            = "provisioning.db.credentials.rotation_failed"
	EventUndoStarted           = "provisioning.db.rollback.started"
	EventUndoCompleted         = "provisioning.db.rollback.completed"
	EventUndoStuck             = "provisioning.db.rollback.stuck"
	EventUndoStartedGeneric    = "provisioning.rollback.started"
	EventUndoCompletedGeneric  = "provisioning.rollback.completed"
	EventActionFailed          = "provisioning.rollback.action_failed"
	EventTransitioned          = "provisioning.state.transitioned"
	EventTimeout               = "provisioning.session.timeout"
)

var events = []machines.EventType{
	{Name: EventRequested, Class: machines.ClassState, Doc: "The move of a tenant was requested."},
	{Name: EventPlanning, Class: machines.ClassProgress, Doc: "An attempt to plan begins."},
	{Name: EventPlanned, Class: machines.ClassState, Doc: "The plan: steps, rows per table, time."},
	{Name: EventWaiting, Class: machines.ClassState, Doc: "The plan waits for approve."},
	{Name: EventApproved, Class: machines.ClassState, Doc: "The plan was approved, and by whom."},
	{Name: EventAllocating, Class: machines.ClassProgress, Doc: "An attempt to create the database begins."},
	{Name: EventAllocated, Class: machines.ClassResource, Doc: "The database was created."},
	{Name: EventMigrationsStarted, Class: machines.ClassProgress, Doc: "An attempt to apply the migrations begins."},
	{Name: EventMigrationApplied, Class: machines.ClassResource, Doc: "The database has a migration."},
	{Name: EventMigrationsCompleted, Class: machines.ClassResource, Doc: "The database has all migrations."},
	{Name: EventDataStarted, Class: machines.ClassProgress, Doc: "An attempt to copy begins."},
	{Name: EventDataProgress, Class: machines.ClassProgress, Doc: "How far the copy is."},
	{Name: EventDataCompleted, Class: machines.ClassResource, Doc: "All rows were copied."},
	{Name: EventVerificationStarted, Class: machines.ClassProgress, Doc: "An attempt to compare begins."},
	{Name: EventVerificationCompleted, Class: machines.ClassResource, Doc: "Every table is the same."},
	{Name: EventSwitchingStarted, Class: machines.ClassProgress, Doc: "The switch begins."},
	{Name: EventSwitchingCompleted, Class: machines.ClassResource, Doc: "The routing was switched."},
	{Name: EventReady, Class: machines.ClassState, Doc: "The tenant is in its own database."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "The session failed, where, and why."},
	{Name: EventRetrying, Class: machines.ClassError, Doc: "An attempt failed; when the next one begins."},
	{Name: EventRetried, Class: machines.ClassState, Doc: "A failed session goes on."},
	{Name: EventCancelled, Class: machines.ClassState, Doc: "The session was cancelled."},
	{Name: EventPaused, Class: machines.ClassState, Doc: "The session is paused."},
	{Name: EventHalted, Class: machines.ClassProgress, Doc: "The attempt that was under way was stopped, as far as it is known."},
	{Name: EventResumed, Class: machines.ClassState, Doc: "The session goes on after a pause."},
	{Name: EventResolved, Class: machines.ClassState, Doc: "Somebody has repaired it by hand."},
	{Name: EventReverting, Class: machines.ClassState, Doc: "The tenant is being sent back to the shared database."},
	{Name: EventRevertRefused, Class: machines.ClassState, Doc: "The tenant stays in its own database, and why."},
	{Name: EventRetiring, Class: machines.ClassState, Doc: "The tenant is being closed."},
	{Name: EventRetired, Class: machines.ClassResource, Doc: "The tenant is closed, and its database put aside."},
	{Name: EventRotating, Class: machines.ClassProgress, Doc: "The role of the tenant is being given a new password."},
	{Name: EventRotated, Class: machines.ClassResource, Doc: "The role of the tenant has a new password."},
	{Name: EventNotRotated, Class: machines.ClassError, Doc: "The role of the tenant could not be given a new password."},
	{Name: EventUndoStarted, Class: machines.ClassState, Doc: "What was created is being taken back."},
	{Name: EventUndoCompleted, Class: machines.ClassState, Doc: "Everything was taken back."},
	{Name: EventUndoStuck, Class: machines.ClassError, Doc: "Not everything could be taken back."},
	{Name: EventUndoStartedGeneric, Class: machines.ClassState, Doc: "The same under the name that all sessions share."},
	{Name: EventUndoCompletedGeneric, Class: machines.ClassState, Doc: "The same under the name that all sessions share."},
	{Name: EventActionFailed, Class: machines.ClassError, Doc: "An action of the undo failed."},
	{Name: EventTransitioned, Class: machines.ClassState, Doc: "The state has changed."},
	{Name: EventTimeout, Class: machines.ClassError, Doc: "An attempt took too long, or made no progress."},
}

var columns = []machines.Column{
	{Title: "PHASE", Path: "data.phase"},
	{Title: "ATTEMPT", Path: "data.attempt"},
	{Title: "ROWS", Path: "data.progress.migratedRows"},
	{Title: "OF", Path: "data.progress.totalRows"},
	{Title: "DATABASE", Path: "data.database.databaseId"},
}
