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
	EventAudit             = "relay.audit.recorded"
	EventDeletionRequested = "relay.deletion.requested"
	EventDeletionStalled   = "relay.deletion.stalled"
	EventDeleted           = "relay.deleted"
	EventPurged            = "relay.purged"
)

// Machine is the lifecycle of a relayed database.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "relay", Plural: "relays", Doc: "The relay that publishes the outbox of one database to a stream.",
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
	{From: only(Deleting), On: ReportRemoveFailed, To: machines.Same, Do: deletionFailed, Emit: emit(EventDeletionStalled)},
	{From: only(Deleting), On: TimeoutDelete, To: machines.Same, Do: deletionLate, Emit: emit(EventDeletionStalled), Effects: remove},
}

// every is how often a relay is looked at.
var every = &machines.Poll{Every: 5 * time.Second, Effect: EffectLook}

func deadline(input string, of func(Policy) time.Duration) *machines.Timeout[Data] {
	return &machines.Timeout[Data]{Input: input, After: func(d *Data) time.Duration { return of(d.Policy) }}
}

var states = []machines.State[Data]{
	{Name: Starting, Doc: "The relay is connecting to the database and the stream.", Timeout: deadline(TimeoutStart, Policy.startDeadline), Poll: every},
	{Name: Running, Doc: "Rows are published as they are committed.", Poll: every},
	{Name: Lagging, Doc: "Rows are published, but too many wait, or for too long.", Poll: every},
	{Name: Stalled, Doc: "Rows wait and none is published; the problem says why. The relay continues when the cause is gone.", Failed: true, Poll: every},
	{Name: Draining, Doc: "The waiting rows are published; then the relay pauses.", Timeout: deadline(TimeoutDrain, Policy.drainDeadline), Poll: every},
	{Name: Paused, Doc: "The relay is paused; rows wait in the database.", Poll: every},
	{Name: Failed, Doc: "The relay cannot work, and waiting does not help.", Failed: true, Poll: every},
	{Name: Deleting, Doc: "The state of the relay in the database and in NATS is being removed; rows and messages stay.", Timeout: deadline(TimeoutDelete, Policy.deleteDeadline)},
	{Name: Deleted, Doc: "The relay is gone; register begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandRegister, Doc: "Start to relay a source of the configuration; its name is the id.", Body: RegisterBody{}, Birth: true, Replaces: true},
	{Name: CommandConfigure, Doc: "Replace thresholds and deadlines.", Body: ConfigureBody{}, Replaces: true},
	{Name: CommandPause, Doc: "Stop publishing at once; rows wait in the database.", Destructive: true},
	{Name: CommandResume, Doc: "Continue where the relay stopped."},
	{Name: CommandDrain, Doc: "Publish the waiting rows, then pause.", Destructive: true},
	{Name: CommandRefresh, Doc: "Observe the relay now."},
	{Name: CommandDelete, Doc: "Delete the relay and what it reported of the lag, which limits appending; rows and messages stay.", Admin: true, Destructive: true},
	{Name: CommandPurge, Doc: "Forget the relay even if nothing could be removed.", Body: PurgeBody{}, Admin: true, Destructive: true},
	{Name: ReportStarted, Doc: "The relay is connected to the database and the stream, and runs.", Body: Observation{}, Report: true},
	{Name: ReportStartFailed, Doc: "The relay could not be started.", Body: machines.Failure{}, Report: true},
	{Name: ReportStopped, Doc: "The relay stopped.", Report: true},
	{Name: ReportStopFailed, Doc: "The relay did not stop.", Body: machines.Failure{}, Report: true},
	{Name: ReportDrained, Doc: "All waiting rows were published.", Body: Observation{}, Report: true},
	{Name: ReportDrainFailed, Doc: "Not all waiting rows could be published.", Body: machines.Failure{}, Report: true},
	{Name: ReportRemoved, Doc: "The state of the relay was removed.", Report: true},
	{Name: ReportRemoveFailed, Doc: "The state of the relay could not be removed.", Body: machines.Failure{}, Report: true},
	{Name: ReportObserved, Doc: "The current state of the relay.", Body: Observation{}, Report: true},
	{Name: ReportObserveFailed, Doc: "The relay could not be observed.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutStart, Doc: "The relay did not start in time.", Report: true},
	{Name: TimeoutDrain, Doc: "The drain did not finish in time.", Report: true},
	{Name: TimeoutDelete, Doc: "The deletion did not finish in time.", Report: true},
}

// The deadline, not the number of tries, ends a start.
var effects = []machines.Effect[Data]{
	{Name: EffectStart, Doc: "Start the relay.", Done: ReportStarted, Failed: ReportStartFailed, Retry: machines.Retry{Attempts: 50, Cap: 10 * time.Second}, Payload: task, Task: Task{}},
	{Name: EffectStop, Doc: "Stop the relay.", Done: ReportStopped, Failed: ReportStopFailed, Payload: task, Task: Task{}},
	{Name: EffectDrain, Doc: "Publish the waiting rows, then stop the relay.", Done: ReportDrained, Failed: ReportDrainFailed, Retry: machines.Retry{Attempts: 50, Cap: 10 * time.Second}, Timeout: 24 * time.Hour, Payload: task, Task: Task{}},
	{Name: EffectRemove, Doc: "Remove what the relay reported of the lag.", Done: ReportRemoved, Failed: ReportRemoveFailed, Payload: task, Task: Task{}},
	{Name: EffectLook, Doc: "Read the current state of the relay.", Done: ReportObserved, Failed: ReportObserveFailed, Retry: machines.Retry{Attempts: 3}, Payload: task, Task: Task{}, Looks: true},
}
