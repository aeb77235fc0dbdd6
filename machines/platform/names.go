package platform

import (
	"slices"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

const prefix = "provisioning.instance"

// Events; those that sessions share are under the same prefix, or generic (package session).
const (
	EventRequested             = prefix + ".requested"
	EventPlanning              = prefix + ".planning"
	EventPlanned               = prefix + ".planned"
	EventAllocating            = prefix + ".allocating"
	EventSlugTaken             = prefix + ".slug.taken"
	EventAllocated             = prefix + ".allocated"
	EventDatabaseAllocating    = prefix + ".database.allocating"
	EventDatabaseAllocated     = prefix + ".database.allocated"
	EventStorageAllocating     = prefix + ".storage.allocating"
	EventStorageAllocated      = prefix + ".storage.allocated"
	EventDeploymentStarted     = prefix + ".deployment.started"
	EventDeploymentProgress    = prefix + ".deployment.progress"
	EventRollout               = "provisioning.deployment.progress"
	EventDeploymentCompleted   = prefix + ".deployment.completed"
	EventMigrationsStarted     = prefix + ".migrations.started"
	EventMigrationApplied      = prefix + ".migration.applied"
	EventMigrationsCompleted   = prefix + ".migrations.completed"
	EventDataStarted           = prefix + ".data_migration.started"
	EventDataProgress          = prefix + ".data_migration.progress"
	EventDataCompleted         = prefix + ".data_migration.completed"
	EventDataSkipped           = prefix + ".data_migration.skipped"
	EventDomainConfiguring     = prefix + ".domain.configuring"
	EventDomainConfigured      = prefix + ".domain.configured"
	EventCertIssuing           = prefix + ".cert.issuing"
	EventCertIssued            = prefix + ".cert.issued"
	EventCertRenewed           = prefix + ".cert.renewed"
	EventCertUnrenewed         = prefix + ".cert.renewal_failed"
	EventVerificationStarted   = prefix + ".verification.started"
	EventProven                = prefix + ".verification.ready"
	EventComparing             = prefix + ".verification.comparing"
	EventVerificationCompleted = prefix + ".verification.completed"
	EventSwitchingStarted      = prefix + ".switching.started"
	EventSwitchingCompleted    = prefix + ".switching.completed"
	EventReady                 = prefix + ".ready"
	EventUpgradeStarted        = prefix + ".upgrade.started"
	EventUpgradePlanned        = prefix + ".upgrade.planned"
	EventUpgradeUnneeded       = prefix + ".upgrade.unneeded"
	EventUpgradeShifting       = prefix + ".upgrade.shifting"
	EventUpgradeShifted        = prefix + ".upgrade.shifted"
	EventUpgradeWaiting        = prefix + ".upgrade.waiting"
	EventUpgradeApproved       = prefix + ".upgrade.approved"
	EventUpgradePromoting      = prefix + ".upgrade.promoting"
	EventUpgradeCompleted      = prefix + ".upgrade.completed"
	EventUpgradeLeft           = prefix + ".upgrade.left"
	EventPruning               = prefix + ".prune.started"
	EventPruned                = prefix + ".prune.completed"
	EventUpgradeWithdrawing    = prefix + ".upgrade.rollback.started"
	EventUpgradeWithdrawn      = prefix + ".upgrade.rollback.completed"
	EventUpgradeStuck          = prefix + ".upgrade.rollback.stuck"
	EventResolved              = prefix + ".resolved" // of all sessions
	EventRetiring              = prefix + ".deprovision.started"
	EventRetired               = prefix + ".deprovision.completed"
)

var events = slices.Concat([]machines.EventType{
	{Name: EventRequested, Class: machines.ClassState, Doc: "An instance was requested for a tenant."},
}, kind.PlanEvents(), []machines.EventType{
	{Name: EventAllocating, Class: machines.ClassProgress, Doc: "An attempt to create the instance begins."},
	{Name: EventSlugTaken, Class: machines.ClassProgress, Doc: "A generated slug is another tenant's; the next one is tried."},
	{Name: EventAllocated, Class: machines.ClassResource, Doc: "The slug is reserved, and the instance was created."},
	{Name: EventDatabaseAllocating, Class: machines.ClassProgress, Doc: "An attempt to create the database begins."},
	{Name: EventDatabaseAllocated, Class: machines.ClassResource, Doc: "The database was created."},
	{Name: EventStorageAllocating, Class: machines.ClassProgress, Doc: "An attempt to create the bucket begins."},
	{Name: EventStorageAllocated, Class: machines.ClassResource, Doc: "The bucket was created."},
	{Name: EventDeploymentStarted, Class: machines.ClassProgress, Doc: "An attempt to deploy the application begins."},
	{Name: EventDeploymentProgress, Class: machines.ClassProgress, Doc: "How far the deployment is."},
	{Name: EventRollout, Class: machines.ClassProgress, Doc: "The same under the name that all sessions share."},
	{Name: EventDeploymentCompleted, Class: machines.ClassResource, Doc: "The application runs, and is alive."},
	{Name: EventMigrationsStarted, Class: machines.ClassProgress, Doc: "An attempt to apply the migrations begins."},
	{Name: EventMigrationApplied, Class: machines.ClassResource, Doc: "The database has a migration."},
	{Name: EventMigrationsCompleted, Class: machines.ClassResource, Doc: "The database has all migrations."},
	{Name: EventDataStarted, Class: machines.ClassProgress, Doc: "An attempt to copy begins."},
	{Name: EventDataProgress, Class: machines.ClassProgress, Doc: "How far the copy is."},
	{Name: EventDataCompleted, Class: machines.ClassResource, Doc: "All rows were copied."},
	{Name: EventDataSkipped, Class: machines.ClassState, Doc: "The tenant is new: there are no rows to copy."},
	{Name: EventDomainConfiguring, Class: machines.ClassProgress, Doc: "An attempt to make the route begins."},
	{Name: EventDomainConfigured, Class: machines.ClassResource, Doc: "The primary domain leads to the instance; a custom domain was asked for."},
	{Name: EventCertIssuing, Class: machines.ClassProgress, Doc: "An attempt to get the certificate begins."},
	{Name: EventCertIssued, Class: machines.ClassResource, Doc: "The primary domain has a certificate."},
	{Name: EventCertRenewed, Class: machines.ClassResource, Doc: "The certificate of the primary domain was renewed."},
	{Name: EventCertUnrenewed, Class: machines.ClassError, Doc: "The certificate of the primary domain could not be renewed, and why; it is tried again."},
	{Name: EventVerificationStarted, Class: machines.ClassProgress, Doc: "An attempt to see that the application is ready begins."},
	{Name: EventProven, Class: machines.ClassResource, Doc: "The application is ready, as seen through its domain."},
	{Name: EventComparing, Class: machines.ClassProgress, Doc: "An attempt to compare begins."},
	{Name: EventVerificationCompleted, Class: machines.ClassResource, Doc: "The application is ready, and every table that was moved is the same."},
	{Name: EventSwitchingStarted, Class: machines.ClassProgress, Doc: "The switch begins."},
	{Name: EventSwitchingCompleted, Class: machines.ClassResource, Doc: "The routing was switched."},
	{Name: EventReady, Class: machines.ClassState, Doc: "The tenant has its own instance."},
	{Name: EventUpgradeStarted, Class: machines.ClassState, Doc: "The tenant is to get another version."},
	{Name: EventUpgradePlanned, Class: machines.ClassState, Doc: "The version is known, and may be had."},
	{Name: EventUpgradeUnneeded, Class: machines.ClassState, Doc: "The tenant has that version, and nothing was deployed; with redeploy, it would be."},
	{Name: EventUpgradeShifting, Class: machines.ClassProgress, Doc: "The new version gets a share of the traffic, and is watched."},
	{Name: EventUpgradeShifted, Class: machines.ClassResource, Doc: "The new version did well with its share."},
	{Name: EventUpgradeWaiting, Class: machines.ClassState, Doc: "The new version keeps the share that it has until the next one is approved."},
	{Name: EventUpgradeApproved, Class: machines.ClassState, Doc: "The new version gets its next share, and by whom that was approved."},
	{Name: EventUpgradePromoting, Class: machines.ClassProgress, Doc: "The old version is being drained and removed."},
	{Name: EventUpgradeCompleted, Class: machines.ClassState, Doc: "The tenant has the new version, and nothing of the old one is left."},
	{Name: EventUpgradeLeft, Class: machines.ClassError, Doc: "The tenant has the version that it was to get; another release could not be removed, and stays in the ledger."},
	{Name: EventPruning, Class: machines.ClassState, Doc: "Releases that upgrades have left are to be removed."},
	{Name: EventPruned, Class: machines.ClassState, Doc: "The tenant has the version that it had, and no other release is left."},
	{Name: EventUpgradeWithdrawing, Class: machines.ClassState, Doc: "All traffic goes back to the old version, and the new one is removed."},
	{Name: EventUpgradeWithdrawn, Class: machines.ClassState, Doc: "The tenant has the old version, and nothing of the new one is left."},
	{Name: EventUpgradeStuck, Class: machines.ClassError, Doc: "The new version could not be taken back whole."},
	{Name: EventRetiring, Class: machines.ClassState, Doc: "The tenant is being closed."},
	{Name: EventRetired, Class: machines.ClassResource, Doc: "The tenant is closed, and nothing of its instance is left."},
}, kind.CourseEvents(), kind.UndoEvents())

var columns = []machines.Column{
	{Title: "PHASE", Path: "data.phase"},
	{Title: "STEP", Path: "data.step"},
	{Title: "ATTEMPT", Path: "data.attempt"},
	{Title: "VERSION", Path: "data.version"},
	{Title: "DOMAIN", Path: "data.primaryDomain"},
	{Title: "CERTIFICATE UNTIL", Path: "data.certificate.notAfter"},
	{Title: "PROBLEM", Path: "data.problem"},
}

// Effects besides those of the stages.
const (
	EffectHalt     = session.EffectHalt
	EffectUndo     = session.EffectUndo
	EffectLook     = "look"
	EffectWithdraw = "withdraw"
)
