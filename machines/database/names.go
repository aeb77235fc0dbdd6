package database

import (
	"slices"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

// Events, under the names of the specification; what it lacks is named alike.
const (
	EventRequested             = "provisioning.db.requested"
	EventPlanning              = "provisioning.db.planning"
	EventPlanned               = "provisioning.db.planned"
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
	EventRetrying              = "provisioning.db.retrying"
	EventRetried               = "provisioning.db.retried"
	EventReverting             = "provisioning.db.revert.started"
	EventRevertRefused         = "provisioning.db.revert.refused"
	EventRetiring              = "provisioning.db.deprovision.started"
	EventRetired               = "provisioning.db.deprovision.completed"
	EventRotating              = "provisioning.db.credentials.rotating"
	EventRotated               = "provisioning.db.credentials.rotated"
	EventNotRotated            = "provisioning.db.credentials.rotation_failed"
	EventUndoCompleted         = "provisioning.db.rollback.completed"
	EventTransitioned          = session.EventTransitioned
	EventResourceChanged       = session.EventResourceChanged
)

var events = slices.Concat([]machines.EventType{
	{Name: EventRequested, Class: machines.ClassState, Doc: "The move of a tenant was requested."},
}, kind.PlanEvents(), []machines.EventType{
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
}, kind.CourseEvents(), []machines.EventType{
	{Name: EventReverting, Class: machines.ClassState, Doc: "The tenant is being sent back to the shared database."},
	{Name: EventRevertRefused, Class: machines.ClassState, Doc: "The tenant stays in its own database, and why."},
	{Name: EventRetiring, Class: machines.ClassState, Doc: "The tenant is being closed."},
	{Name: EventRetired, Class: machines.ClassResource, Doc: "The tenant is closed, and its database put aside."},
	{Name: EventRotating, Class: machines.ClassProgress, Doc: "The role of the tenant is being given a new password."},
	{Name: EventRotated, Class: machines.ClassResource, Doc: "The role of the tenant has a new password."},
	{Name: EventNotRotated, Class: machines.ClassError, Doc: "The role of the tenant could not be given a new password."},
}, kind.UndoEvents())

var columns = []machines.Column{
	{Title: "PHASE", Path: "data.phase"},
	{Title: "ATTEMPT", Path: "data.attempt"},
	{Title: "ROWS", Path: "data.progress.migratedRows"},
	{Title: "OF", Path: "data.progress.totalRows"},
	{Title: "DATABASE", Path: "data.database.databaseId"},
}
