package relay

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	Starting = "starting"
	Running  = "running"
	Lagging  = "lagging"
	Stalled  = "stalled"
	Draining = "draining"
	Paused   = "paused"
	Failed   = "failed"
	Deleting = "deleting"
	Deleted  = "deleted"
)

// Inputs: commands of users, reports of the provider and its observer, timeouts.
const (
	CommandRegister  = "register"
	CommandConfigure = "configure"
	CommandPause     = "pause"
	CommandResume    = "resume"
	CommandDrain     = "drain"
	CommandRefresh   = "refresh"
	CommandDelete    = "delete"
	CommandPurge     = "purge"

	ReportStarted       = "started"
	ReportStartFailed   = "start-failed"
	ReportStopped       = "stopped"
	ReportStopFailed    = "stop-failed"
	ReportDrained       = "drained"
	ReportDrainFailed   = "drain-failed"
	ReportRemoved       = "removed"
	ReportRemoveFailed  = "remove-failed"
	ReportObserved      = "observed"
	ReportObserveFailed = "observe-failed"

	TimeoutStart  = "start-deadline"
	TimeoutDrain  = "drain-deadline"
	TimeoutDelete = "delete-deadline"
)

// Effects.
const (
	EffectStart  = "start"
	EffectStop   = "stop"
	EffectDrain  = "drain"
	EffectRemove = "remove"
	EffectLook   = "look"
)

// Events.
const (
	EventRegistered        = "relay.registered"
	EventConfigured        = "relay.configured"
	EventStarting          = "relay.starting"
	EventStarted           = "relay.started"
	EventRunning           = "relay.running"
	EventLagging           = "relay.lagging"
	EventStalled           = "relay.stalled"
	EventRecovered         = "relay.recovered"
	EventFailed            = "relay.failed"
	EventProblem           = "relay.problem"
	EventPaused            = "relay.paused"
	EventResumed           = "relay.resumed"
	EventStopped           = "relay.stopped"
	EventStopFailed        = "relay.stop.failed"
	EventDraining          = "relay.draining"
	EventDrained           = "relay.drained"
	EventDrainExpired      = "relay.drain.expired"
	EventObserved          = "relay.observed"
	EventObservationFailed = "relay.observation.failed"
	EventParked            = "relay.parked"
	EventUnparked          = "relay.unparked"
	EventSlotGrowing       = "relay.slot.growing"
	EventAudit             = "relay.audit.recorded"
	EventDeletionRequested = "relay.deletion.requested"
	EventDeletionStalled   = "relay.deletion.stalled"
	EventDeletionRefused   = "relay.deletion.refused"
	EventDeleted           = "relay.deleted"
	EventPurged            = "relay.purged"
)

// Machine is the lifecycle of a relayed database.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "relay", Plural: "relays", Doc: "What brings the outbox of one database into a stream.",
	States: states, Inputs: inputs, Effects: effects, Events: events, Columns: columns, Edges: table,
})

// Groups of states and of effects that several rows share.
var (
	unborn  = []string{machines.None, Deleted}
	moving  = []string{Running, Lagging}
	active  = []string{Running, Lagging, Stalled}
	up      = []string{Starting, Running, Lagging, Stalled, Draining, Failed}
	standby = []string{Paused, Failed, Draining}
	living  = []string{Starting, Running, Lagging, Stalled, Draining, Paused, Failed}
	live    = []string{Starting, Running, Lagging, Stalled, Draining, Paused, Failed, Deleting}

	start  = []string{EffectStart}
	stop   = []string{EffectStop}
	flush  = []string{EffectDrain}
	remove = []string{EffectRemove}
	look   = []string{EffectLook}
)

func only(state string) []string      { return []string{state} }
func emit(events ...string) []string  { return events }
func sight(events ...string) []string { return append([]string{EventObserved}, events...) }

var table = []machines.Edge[Data]{
	{From: unborn, On: CommandRegister, To: Starting, Do: register, Emit: emit(EventRegistered, EventStarting), Effects: start},
	{From: living, On: CommandConfigure, If: nothingNew, To: machines.Same, Noop: true},
	{From: living, On: CommandConfigure, To: machines.Same, Do: configure, Emit: emit(EventConfigured)},
	{From: up, On: CommandPause, To: Paused, Do: pause, Emit: emit(EventPaused), Effects: stop},
	{From: only(Paused), On: CommandPause, To: machines.Same, Noop: true},
	{From: standby, On: CommandResume, To: Starting, Do: resume, Emit: emit(EventResumed, EventStarting), Effects: start},
	{From: active, On: CommandResume, To: machines.Same, Noop: true},
	{From: active, On: CommandDrain, To: Draining, Do: drain, Emit: emit(EventDraining), Effects: flush},
	{From: only(Draining), On: CommandDrain, To: machines.Same, Noop: true},
	{From: live, On: CommandRefresh, To: machines.Same, Do: audit, Emit: emit(EventAudit), Effects: look},
	{From: living, On: CommandDelete, To: Deleting, Do: markDeleting, Emit: emit(EventDeletionRequested), Effects: remove},
	{From: live, On: CommandPurge, If: forced, To: Deleted, Do: purge, Emit: emit(EventPurged, EventDeleted, EventAudit)},

	{From: only(Starting), On: ReportStarted, To: Running, Do: started, Emit: emit(EventStarted, EventRunning)},
	{From: only(Starting), On: ReportStartFailed, To: Failed, Do: startFailed, Emit: emit(EventFailed)},
	{From: only(Starting), On: TimeoutStart, To: Failed, Do: startLate, Emit: emit(EventFailed)},

	{From: active, On: ReportObserved, If: hopeless, To: Failed, Do: giveUp, Emit: sight(EventFailed)},
	{From: moving, On: ReportObserved, If: stuck, To: Stalled, Do: stall, Emit: sight(EventStalled)},
	{From: only(Running), On: ReportObserved, If: behind, To: Lagging, Do: lag, Emit: sight(EventLagging)},
	{From: only(Lagging), On: ReportObserved, If: caughtUp, To: Running, Do: heal, Emit: sight(EventRecovered, EventRunning)},
	{From: []string{Stalled, Failed}, On: ReportObserved, If: movesBehind, To: Lagging, Do: lag, Emit: sight(EventRecovered, EventLagging)},
	{From: []string{Stalled, Failed}, On: ReportObserved, If: moves, To: Running, Do: heal, Emit: sight(EventRecovered, EventRunning)},
	{From: live, On: ReportObserved, To: machines.Same, Do: absorb, Emit: sight()},
	{From: live, On: ReportObserveFailed, If: blindAlready, To: machines.Same, Noop: true},
	{From: live, On: ReportObserveFailed, To: machines.Same, Do: blind, Emit: emit(EventObservationFailed)},

	{From: only(Paused), On: ReportStopped, To: machines.Same, Do: stopped, Emit: emit(EventStopped)},
	{From: only(Paused), On: ReportStopFailed, To: machines.Same, Do: stopFailed, Emit: emit(EventStopFailed)},
	{From: only(Draining), On: ReportDrained, To: Paused, Do: drained, Emit: emit(EventDrained, EventPaused)},
	{From: only(Draining), On: ReportDrainFailed, To: Paused, Do: drainFailed, Emit: emit(EventDrainExpired, EventPaused), Effects: stop},
	{From: only(Draining), On: TimeoutDrain, To: Paused, Do: drainLate, Emit: emit(EventDrainExpired, EventPaused), Effects: stop},
	{From: only(Deleting), On: ReportRemoved, To: Deleted, Do: removed, Emit: emit(EventDeleted)},
	{From: only(Deleting), On: ReportRemoveFailed, If: unread, To: Paused, Do: deletionRefused, Emit: emit(EventDeletionRefused, EventPaused)},
	{From: only(Deleting), On: ReportRemoveFailed, To: machines.Same, Do: deletionFailed, Emit: emit(EventDeletionStalled)},
	{From: only(Deleting), On: TimeoutDelete, To: machines.Same, Do: deletionLate, Emit: emit(EventDeletionStalled), Effects: remove},
}

// every is how often a relay is looked at.
var every = &machines.Poll{Every: 5 * time.Second, Effect: EffectLook}

func deadline(input string, of func(Policy) time.Duration) *machines.Timeout[Data] {
	return &machines.Timeout[Data]{Input: input, After: func(d *Data) time.Duration { return of(d.Policy) }}
}

var states = []machines.State[Data]{
	{Name: Starting, Doc: "The database and the stream are being reached.", Timeout: deadline(TimeoutStart, Policy.startDeadline), Poll: every},
	{Name: Running, Doc: "Rows go into the stream as they come.", Poll: every},
	{Name: Lagging, Doc: "Rows go into the stream, but more wait, or longer, than they should.", Poll: every},
	{Name: Stalled, Doc: "Rows wait and none moves; the problem says why. It goes on by itself when that ends.", Failed: true, Poll: every},
	{Name: Draining, Doc: "What is there goes into the stream; then it stands.", Timeout: deadline(TimeoutDrain, Policy.drainDeadline), Poll: every},
	{Name: Paused, Doc: "It stands because somebody asked for it; rows wait in the database.", Poll: every},
	{Name: Failed, Doc: "It cannot work, and waiting does not mend it.", Failed: true, Poll: every},
	{Name: Deleting, Doc: "What the relay keeps in the database and in NATS is taken away; rows and messages stay.", Timeout: deadline(TimeoutDelete, Policy.deleteDeadline)},
	{Name: Deleted, Doc: "It is gone; register begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandRegister, Doc: "Begin to relay a source of the configuration; its name is the id.", Body: RegisterBody{}, Birth: true},
	{Name: CommandConfigure, Doc: "Replace thresholds and deadlines.", Body: ConfigureBody{}},
	{Name: CommandPause, Doc: "Stand still at once; rows wait in the database.", Destructive: true},
	{Name: CommandResume, Doc: "Go on where it stands."},
	{Name: CommandDrain, Doc: "Publish what is there, then stand still.", Destructive: true},
	{Name: CommandRefresh, Doc: "Look at it now."},
	{Name: CommandDelete, Doc: "End the relay: its replication slot and leases go, rows and messages stay. It is paused instead when the slot has events that were not read.", Body: DeleteBody{}, Admin: true, Destructive: true},
	{Name: CommandPurge, Doc: "Forget it even when nothing could be taken away.", Body: PurgeBody{}, Admin: true, Destructive: true},
	{Name: ReportStarted, Doc: "The database and the stream were reached, and the engine runs.", Body: Observation{}, Report: true},
	{Name: ReportStartFailed, Doc: "The engine could not be started.", Body: machines.Failure{}, Report: true},
	{Name: ReportStopped, Doc: "The engine stands.", Report: true},
	{Name: ReportStopFailed, Doc: "The engine did not stop.", Body: machines.Failure{}, Report: true},
	{Name: ReportDrained, Doc: "Everything that was there is in the stream.", Body: Observation{}, Report: true},
	{Name: ReportDrainFailed, Doc: "What was there could not all be published.", Body: machines.Failure{}, Report: true},
	{Name: ReportRemoved, Doc: "What the relay kept is gone.", Report: true},
	{Name: ReportRemoveFailed, Doc: "What the relay kept could not be taken away.", Body: machines.Failure{}, Report: true},
	{Name: ReportObserved, Doc: "How the relay stands.", Body: Observation{}, Report: true},
	{Name: ReportObserveFailed, Doc: "The relay could not be looked at.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutStart, Doc: "It did not start in time.", Report: true},
	{Name: TimeoutDrain, Doc: "It was not empty in time.", Report: true},
	{Name: TimeoutDelete, Doc: "It was not gone in time.", Report: true},
}

// The deadline, not the number of tries, ends a start.
var effects = []machines.Effect[Data]{
	{Name: EffectStart, Doc: "Run the engine.", Done: ReportStarted, Failed: ReportStartFailed, Retry: machines.Retry{Attempts: 50, Cap: 10 * time.Second}, Payload: task, Task: Task{}},
	{Name: EffectStop, Doc: "Let the engine stand.", Done: ReportStopped, Failed: ReportStopFailed, Payload: task, Task: Task{}},
	{Name: EffectDrain, Doc: "Publish what is there, then let the engine stand.", Done: ReportDrained, Failed: ReportDrainFailed, Retry: machines.Retry{Attempts: 50, Cap: 10 * time.Second}, Timeout: 24 * time.Hour, Payload: task, Task: Task{}},
	{Name: EffectRemove, Doc: "Take away what the relay keeps: replication slot, leases.", Done: ReportRemoved, Failed: ReportRemoveFailed, Payload: removal, Task: Task{}},
	{Name: EffectLook, Doc: "See how it stands.", Done: ReportObserved, Failed: ReportObserveFailed, Retry: machines.Retry{Attempts: 3}, Payload: task, Task: Task{}, Looks: true},
}
