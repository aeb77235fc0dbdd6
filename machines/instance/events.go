package instance

import "github.com/bcc94042/instar/machines"

// Events.
const (
	EventRegistered         = "instance.registered"
	EventAdmitted           = "instance.admitted"
	EventRegistrationFailed = "instance.registration.failed"
	EventWarming            = "instance.warmup.started"
	EventHealthy            = "instance.healthy"
	EventWeightReported     = "instance.weight.reported"
	EventUnhealthy          = "instance.unhealthy"
	EventFailureCounted     = "instance.failure.counted"
	EventSuspected          = "instance.suspected"
	EventSuspicionConfirmed = "instance.suspicion.confirmed"
	EventVoted              = "instance.observer.voted"
	EventSpared             = "instance.spared"
	EventOverdue            = "instance.overdue"
	EventFlapping           = "instance.flapping"
	EventFlapScored         = "instance.flapping.scored"
	EventFlapProlonged      = "instance.flapping.prolonged"
	EventFlapCleared        = "instance.flapping.cleared"
	EventDraining           = "instance.draining"
	EventDrainShortened     = "instance.drain.shortened"
	EventDrainCancelled     = "instance.drain.cancelled"
	EventDrainCompleted     = "instance.drain.completed"
	EventDrainExpired       = "instance.drain.expired"
	EventDeregistered       = "instance.deregistered"
	EventProtected          = "instance.protected"
	EventUnprotected        = "instance.unprotected"
	EventMaintenanceBegun   = "instance.maintenance.started"
	EventMaintenanceEnded   = "instance.maintenance.ended"
	EventWeightPinned       = "instance.weight.pinned"
	EventLabels             = "instance.labels.updated"
)

var events = []machines.EventType{
	{Name: EventRegistered, Class: machines.ClassState, Doc: "A generation was registered: its address and check, and what it replaces."},
	{Name: EventAdmitted, Class: machines.ClassProgress, Doc: "The record was read back; from now on the checks determine the state."},
	{Name: EventRegistrationFailed, Class: machines.ClassError, Doc: "The registration was given up or refused, and why."},
	{Name: EventWarming, Class: machines.ClassState, Doc: "The instance passed its checks and its weight is growing; with the evidence."},
	{Name: EventHealthy, Class: machines.ClassState, Doc: "The instance is found with its full weight; with the evidence."},
	{Name: EventWeightReported, Class: machines.ClassResource, Doc: "The instance reported a new weight."},
	{Name: EventUnhealthy, Class: machines.ClassState, Doc: "The instance is no longer found; with the evidence and, if it was suspect, who agreed."},
	{Name: EventFailureCounted, Class: machines.ClassProgress, Doc: "Another failed check of an unhealthy instance, or the one that deregisters it."},
	{Name: EventSuspected, Class: machines.ClassState, Doc: "The instance is silent, or one of several observers saw it fail; until when it is found with half its weight."},
	{Name: EventSuspicionConfirmed, Class: machines.ClassProgress, Doc: "Another observer confirms the failure; the suspect window is shorter."},
	{Name: EventVoted, Class: machines.ClassProgress, Doc: "One of several observers changed its verdict; more of them are needed for a change of state."},
	{Name: EventSpared, Class: machines.ClassProgress, Doc: "The registration deadline passed, but nobody had checked the instance yet."},
	{Name: EventOverdue, Class: machines.ClassProgress, Doc: "The instance was unhealthy for too long; it is deregistered when its owner has confirmed that it is dead."},
	{Name: EventFlapping, Class: machines.ClassState, Doc: "The instance changed too often and is held down: the score, how many times so far, and until when."},
	{Name: EventFlapScored, Class: machines.ClassProgress, Doc: "While the instance is held down, its results became stable, or change too often again: the score."},
	{Name: EventFlapProlonged, Class: machines.ClassProgress, Doc: "The hold-down time is over, but the results are not stable yet: the instance is held down until they are."},
	{Name: EventFlapCleared, Class: machines.ClassState, Doc: "The instance is no longer held down, because its results are stable or it is the last one of its service (`last`); it is checked again."},
	{Name: EventDraining, Class: machines.ClassState, Doc: "The instance drains: no new traffic, and its deadline."},
	{Name: EventDrainShortened, Class: machines.ClassProgress, Doc: "The drain deadline was shortened."},
	{Name: EventDrainCancelled, Class: machines.ClassState, Doc: "The drain was cancelled; the instance is checked again."},
	{Name: EventDrainCompleted, Class: machines.ClassProgress, Doc: "No traffic is sent to the instance any more: how many watchers acknowledged, and why."},
	{Name: EventDrainExpired, Class: machines.ClassError, Doc: "The drain deadline passed."},
	{Name: EventDeregistered, Class: machines.ClassState, Doc: "The instance left the registry: why, and the last observation. Its record stays."},
	{Name: EventProtected, Class: machines.ClassState, Doc: "Self-preservation protects its service and zone: nothing expires."},
	{Name: EventUnprotected, Class: machines.ClassState, Doc: "The protection ended: a suspect or unhealthy instance gets its full deadline from now on."},
	{Name: EventMaintenanceBegun, Class: machines.ClassState, Doc: "The instance was taken out of traffic, why, and until when."},
	{Name: EventMaintenanceEnded, Class: machines.ClassState, Doc: "The instance is back in traffic."},
	{Name: EventWeightPinned, Class: machines.ClassState, Doc: "An administrator pinned the weight, or unpinned it."},
	{Name: EventLabels, Class: machines.ClassState, Doc: "The labels were replaced."},
}
