package platform

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// States.
const (
	Requested          = "requested"
	AllocatingInstance = "allocating_instance"
	AllocatingDB       = "allocating_db"
	AllocatingStorage  = "allocating_storage"
	Deploying          = "deploying_app"
	Migrating          = "running_migrations"
	Copying            = "migrating_data"
	ConfiguringDomain  = "configuring_domain"
	IssuingCert        = "issuing_cert"
	Verifying          = "verifying"
	Ready              = session.Ready
	Upgrading          = "upgrading"
	Withdrawing        = "withdrawing"
	Retiring           = "deprovisioning"
	Retired            = "deprovisioned"
	Failed             = session.Failed
	RolledBack         = session.RolledBack
	Cancelled          = session.Cancelled
)

// Inputs besides those of all sessions and of the stages.
const (
	CommandRequest   = "request"
	CommandUpgrade   = "upgrade"
	CommandDowngrade = "downgrade"
	CommandPrune     = "prune"
	CommandRetire    = "deprovision"

	ReportProgressed     = "progressed"
	ReportRollout        = "rolling"
	ReportLookFailed     = "look-failed"
	ReportRenewed        = "renewed"
	ReportUnrenewed      = "not-renewed"
	ReportWithdrawn      = "withdrawn"
	ReportWithdrawFailed = "withdraw-failed"
)

// Steps of verifying and of upgrading.
const (
	stepCompare   = "compare"
	stepReadiness = "readiness"
	stepSwitch    = "switch"
	stepPlan      = "plan"
	stepMigrate   = "migrate"
	stepDeploy    = "deploy"
	stepShift     = "shift"
	stepPromote   = "promote"
)

// CodeSlug is the code of a failure because a slug is another tenant's; CodeQuota because a quota is used up; CodeCertificate because a certificate authority will not issue for the primary domain.
const (
	CodeSlug        = "SLUG_ALREADY_EXISTS"
	CodeQuota       = "QUOTA_EXCEEDED"
	CodeCertificate = "CERTIFICATE_REFUSED"
)

var deployCodes = map[string]bool{"DEPLOYMENT_UNHEALTHY": true}

// Stages are those of a session, in order: the specification's table of handlers.
var Stages = []session.Stage{
	{
		State: Requested, Effect: "plan", Done: "planned", Failed: "plan-failed", Next: AllocatingInstance, Timeout: 10 * time.Minute, Retries: 3, Code: "PREFLIGHT_FAILED", Codes: map[string]bool{CodeSlug: false, CodeQuota: false},
		Started: EventPlanning, Ended: []string{EventPlanned}, Body: Plan{}, Doc: "Version, quota and policy are read, and what can be moved is counted; nothing is created.",
	},
	{
		State: AllocatingInstance, Effect: "provision", Done: "provisioned", Failed: "provision-failed", Next: AllocatingDB, Timeout: 15 * time.Minute, Retries: 3, Code: "INSTANCE_ALLOCATION_FAILED", Codes: map[string]bool{CodeSlug: false, CodeQuota: false},
		Started: EventAllocating, Ended: []string{EventAllocated}, Body: Instance{}, Doc: "The slug is being reserved, and the instance created.",
	},
	{
		State: AllocatingDB, Effect: "allocate", Done: "allocated", Failed: "allocate-failed", Next: AllocatingStorage, Timeout: 10 * time.Minute, Retries: 3, Code: "DB_ALLOCATION_FAILED",
		Started: EventDatabaseAllocating, Ended: []string{EventDatabaseAllocated}, Body: database.Allocated{}, Doc: "The database and its role are being created.",
	},
	{
		State: AllocatingStorage, Effect: "store", Done: "stored", Failed: "store-failed", Next: Deploying, Timeout: 5 * time.Minute, Retries: 3, Code: "STORAGE_ALLOCATION_FAILED",
		Started: EventStorageAllocating, Ended: []string{EventStorageAllocated}, Body: Storage{}, Doc: "The bucket is being created.",
	},
	{
		State: Deploying, Effect: "deploy", Done: "deployed", Failed: "deploy-failed", Next: Migrating, Timeout: 30 * time.Minute, Retries: 2, Code: "DEPLOYMENT_FAILED", Codes: deployCodes,
		Started: EventDeploymentStarted, Ended: []string{EventDeploymentCompleted}, Body: App{}, Doc: "The application is being deployed until it is alive.",
	},
	{
		State: Migrating, Effect: "migrate", Done: "migrated", Failed: "migrate-failed", Next: Copying, Timeout: 30 * time.Minute, Retries: 2, Code: "MIGRATIONS_FAILED",
		Started: EventMigrationsStarted, Ended: []string{EventMigrationsCompleted}, Body: database.Migrated{}, Doc: "Migrations are being applied to the database.",
	},
	{
		State: Copying, Effect: "copy", Done: "copied", Failed: "copy-failed", Next: ConfiguringDomain, Timeout: 2 * time.Hour, Retries: 1, Code: "DATA_MIGRATION_FAILED",
		Started: EventDataStarted, Ended: []string{EventDataCompleted}, Body: database.Progress{}, Doc: "The rows of the tenant are being copied.",
	},
	{
		State: ConfiguringDomain, Effect: "route", Done: "routed", Failed: "route-failed", Next: IssuingCert, Timeout: 10 * time.Minute, Retries: 3, Code: "DOMAIN_CONFIGURATION_FAILED",
		Started: EventDomainConfiguring, Ended: []string{EventDomainConfigured}, Body: Route{}, Doc: "The primary domain is being routed to the instance, and a custom one asked for.",
	},
	{
		State: IssuingCert, Effect: "certify", Done: "certified", Failed: "certify-failed", Next: Verifying, Timeout: 15 * time.Minute, Retries: 5, Wait: 2 * time.Minute, Code: "CERT_ISSUANCE_FAILED", Codes: map[string]bool{CodeCertificate: false},
		Started: EventCertIssuing, Ended: []string{EventCertIssued}, Body: Certificate{}, Doc: "The certificate of the primary domain is being issued.",
	},
	{
		State: Verifying, Step: stepReadiness, Effect: "probe", Done: "proven", Failed: "probe-failed", Next: Verifying, Timeout: 30 * time.Minute, Retries: 2, Code: "VERIFICATION_FAILED",
		Started: EventVerificationStarted, Ended: []string{EventProven}, Body: Proven{}, Doc: "The application is asked through its domain whether it is ready.",
	},
	{
		State: Verifying, Step: stepCompare, Effect: "verify", Done: "verified", Failed: "verify-failed", Next: Verifying, Timeout: 30 * time.Minute, Retries: 2, Code: "VERIFICATION_FAILED",
		Started: EventComparing, Ended: []string{EventVerificationCompleted}, Body: database.Verified{}, Doc: "Every table is compared by count and hash.",
	},
	{
		State: Verifying, Step: stepSwitch, Effect: "switch", Done: "switched", Failed: "switch-failed", Next: Ready, Timeout: 5 * time.Minute, Code: "SWITCHING_FAILED", Codes: map[string]bool{database.CodeUnfenced: false},
		Started: EventSwitchingStarted, Ended: []string{EventSwitchingCompleted, EventReady}, Body: database.Switched{}, Doc: "The tenant's traffic is being sent to its own instance.", Firm: true,
	},
}

// Machine is the lifecycle of a session.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "instance_provisioning", Plural: "instance_provisionings", Parent: "tenant", Doc: "A tenant's own instance: compute, database, storage, domain and certificate.",
	States: states(), Inputs: inputs(), Effects: effects(), Events: events, Columns: columns, Edges: table(),
})

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
	edge  = machines.Edge[Data]
)

func only(names ...string) []string { return names }

// served are the states in which the primary domain has a certificate that is to be renewed.
var served = only(Ready, Upgrading, Withdrawing)

func table() []edge {
	executing := kind.In(session.Executing)
	return slices.Concat(
		[]edge{{From: only(machines.None, RolledBack, Cancelled, Retired), On: CommandRequest, If: itsOwn, To: Requested, Do: request, Emit: only(EventRequested, EventPlanning), Effects: only("plan")}},
		kind.PlanEdges(&Stages[0]),
		[]edge{
			{From: only(AllocatingInstance), On: "provision-failed", If: anotherSlug, To: machines.Same, Reenter: true, Do: nextSlug, Emit: only(EventSlugTaken, EventAllocating), Effects: only("provision")},
			{From: only(Copying), On: ReportProgressed, If: executing, To: machines.Same, Rearm: true, Do: progressed, Emit: only(EventDataProgress)},
			{From: only(Deploying, Upgrading), On: ReportRollout, If: executing, To: machines.Same, Rearm: true, Do: rolling, Emit: only(EventDeploymentProgress, EventRollout)},
			{From: only(Copying, Deploying, Upgrading, Withdrawing, Ready), On: ReportLookFailed, To: machines.Same, Noop: true},
			{From: served, On: ReportRenewed, If: sameCertificate, To: machines.Same, Noop: true},
			{From: served, On: ReportRenewed, To: machines.Same, Do: renewed, Emit: only(EventCertRenewed)},
			{From: served, On: ReportUnrenewed, If: sameTrouble, To: machines.Same, Noop: true},
			{From: served, On: ReportUnrenewed, To: machines.Same, Do: unrenewed, Emit: only(EventCertUnrenewed)},
		},
		ofNewTenants(),
		kind.StageEdges(Stages),
		upgrades(),
		[]edge{
			{From: only(Ready), On: CommandRetire, If: closable, To: Retiring, Do: retire, Emit: only(EventRetiring, session.EventTransitioned), Effects: only(EffectUndo)},
			{From: only(Retiring), On: session.ReportUndone, If: kind.Clean(), To: Retired, Do: retired, Emit: only(EventRetired, session.EventTransitioned)},
		},
		kind.Leaving(Retiring),
		kind.FailedEdges())
}

// ofNewTenants are the ways past what is for rows that are moved.
func ofNewTenants() []edge {
	return []edge{
		past(kind.Stage(Migrating, ""), kind.Stage(ConfiguringDomain, ""), EventDataSkipped),
		past(kind.Stage(Verifying, stepReadiness), kind.Stage(Verifying, stepSwitch), EventVerificationCompleted),
	}
}

// past is the edge from a stage to one after the next, for a new tenant, with an event more.
func past(g, to *session.Stage, event string) edge {
	e := kind.Done(g, session.And(kind.In(session.Executing), "new", func(s *step) bool { return !s.Data.Request.moves() }), to.State, to)
	goOn := e.Do
	e.Do = func(s *step) {
		kind.Tell(s, event, nil)
		goOn(s)
	}
	e.Emit = slices.Insert(e.Emit, len(g.Ended), event)
	return e
}

// certificates are looked at while the tenant is served.
var certificates = &machines.Poll{Every: 15 * time.Second, Effect: EffectLook}

func states() []machines.State[Data] {
	list := append(kind.States(Stages), machines.State[Data]{Name: Ready, Doc: "The tenant has its own instance, and its traffic goes there.", Poll: certificates})
	list = append(list, kind.States(upgradeStages)...)
	for i := range list {
		switch s := &list[i]; s.Name {
		case Copying:
			s.Poll = &machines.Poll{Every: time.Second, Effect: EffectLook}
		case Deploying:
			s.Poll = &machines.Poll{Every: 2 * time.Second, Effect: EffectLook}
		case Upgrading:
			s.Doc, s.Poll = "The tenant gets another version, and is served meanwhile.", &machines.Poll{Every: 2 * time.Second, Effect: EffectLook}
		case Verifying:
			s.Doc = "The application is asked whether it is ready, what was moved is compared, and the traffic is sent there."
		}
	}
	return append(list,
		machines.State[Data]{Name: Withdrawing, Doc: "All traffic goes back to the version that the tenant had, and the other one is removed.", Transitional: true, Poll: certificates},
		machines.State[Data]{Name: Retiring, Doc: "The tenant is being closed, and everything of its instance taken away.", Transitional: true},
		machines.State[Data]{Name: Retired, Doc: "The tenant is closed. Its database is dropped after the grace period; request begins anew.", Terminal: true},
		machines.State[Data]{Name: Failed, Doc: "It went no further; retry, rollback or resolve leads on.", Failed: true},
		machines.State[Data]{Name: RolledBack, Doc: "Everything that was created is taken back; request begins anew.", Terminal: true},
		machines.State[Data]{Name: Cancelled, Doc: "It was cancelled, and everything that was created is taken back; request begins anew.", Terminal: true})
}

func effects() []machines.Effect[Data] {
	return append(kind.Effects(slices.Concat(Stages, ownOfUpgrades()), task, Task{}),
		machines.Effect[Data]{Name: EffectHalt, Doc: "Stop what an earlier attempt still does.", Done: session.ReportHalted, Failed: session.ReportHaltFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 5}},
		machines.Effect[Data]{Name: EffectLook, Doc: "Read how far a copy or a deployment is, or how the certificate is.", Done: ReportProgressed, Failed: ReportLookFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 1}, Looks: true},
		machines.Effect[Data]{Name: EffectWithdraw, Doc: "Send all traffic to the version that the tenant had, and remove the other one.", Done: ReportWithdrawn, Failed: ReportWithdrawFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 5}, Timeout: 10 * time.Minute},
		machines.Effect[Data]{Name: EffectUndo, Doc: "Take back what was created, last first.", Done: session.ReportUndone, Failed: session.ReportUndoFailed, Payload: task, Task: Task{}, Retry: machines.Retry{Attempts: 3, Base: 5 * time.Second, Cap: 5 * time.Minute}, Timeout: 65 * time.Minute})
}

func inputs() []machines.Command {
	return slices.Concat(
		[]machines.Command{{Name: CommandRequest, Doc: "Give the tenant an instance of its own.", Body: RequestBody{}, Birth: true}},
		session.Commands(),
		[]machines.Command{
			{Name: CommandUpgrade, Doc: "Give the tenant another version, beside the one that it has, weight by weight. rollback takes it back.", Body: UpgradeBody{}},
			{Name: CommandDowngrade, Doc: "Give the tenant the version that it had before, in the same way.", Body: DowngradeBody{}},
			{Name: CommandPrune, Doc: "Remove the releases that upgrades have left."},
			{Name: CommandRetire, Doc: "Close the tenant: nobody gets in, and everything of its instance is taken away.", Body: RetireBody{}, Admin: true, Destructive: true},
			{Name: ReportProgressed, Doc: "How far the copy is.", Body: database.Progress{}, Report: true},
			{Name: ReportRollout, Doc: "How far the deployment is.", Body: Rollout{}, Report: true},
			{Name: ReportLookFailed, Doc: "It could not be read how far it is; the idle limit tells of what stands still.", Body: machines.Failure{}, Report: true},
			{Name: ReportRenewed, Doc: "The certificate of the primary domain is another one than before.", Body: Certificate{}, Report: true},
			{Name: ReportUnrenewed, Doc: "The certificate of the primary domain could not be renewed yet.", Body: Trouble{}, Report: true},
			{Name: ReportWithdrawn, Doc: "The tenant has the version that it had, and nothing of the other one is left.", Report: true},
			{Name: ReportWithdrawFailed, Doc: "The other version could not be taken back whole.", Body: machines.Failure{}, Report: true},
		},
		session.Reports(slices.Concat(Stages, ownOfUpgrades())))
}
