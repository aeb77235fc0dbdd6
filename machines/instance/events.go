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
	{Name: EventAdmitted, Class: machines.ClassProgress, Doc: "The record was read back; from now on its checks decide."},
	{Name: EventRegistrationFailed, Class: machines.ClassError, Doc: "The registration was given up or refused, and why."},
	{Name: EventWarming, Class: machines.ClassState, Doc: "It passed its checks and gets a growing part of its weight; with the evidence."},
	{Name: EventHealthy, Class: machines.ClassState, Doc: "It is found, with its whole weight; with the evidence."},
	{Name: EventWeightReported, Class: machines.ClassResource, Doc: "It said another weight than before."},
	{Name: EventUnhealthy, Class: machines.ClassState, Doc: "It is not found any more; with the evidence and, when it was suspect, who agreed."},
	{Name: EventFailureCounted, Class: machines.ClassProgress, Doc: "It failed once more while it was unhealthy already, or once too often."},
	{Name: EventSuspected, Class: machines.ClassState, Doc: "It fell silent or one observer of several saw it fail; it is found with half its weight until a point in time."},
	{Name: EventSuspicionConfirmed, Class: machines.ClassProgress, Doc: "Another observer sees the same; the time is shorter."},
	{Name: EventVoted, Class: machines.ClassProgress, Doc: "One of several observers sees another thing than before; it takes more of them to change anything."},
	{Name: EventSpared, Class: machines.ClassProgress, Doc: "Its registration would have been given up, but nobody had looked at it yet."},
	{Name: EventOverdue, Class: machines.ClassProgress, Doc: "It was unhealthy for too long: it is deregistered as soon as whoever looks at it has looked for long enough and sees no life."},
	{Name: EventFlapping, Class: machines.ClassState, Doc: "It changed too often and is held down: the score, how often by now, and until when."},
	{Name: EventFlapScored, Class: machines.ClassProgress, Doc: "While it is held down, its results became steady, or change too often again: the score."},
	{Name: EventFlapProlonged, Class: machines.ClassProgress, Doc: "Its time is over and its results are not steady yet: it is held down until they are."},
	{Name: EventFlapCleared, Class: machines.ClassState, Doc: "It was held down long enough and its results are steady, or nobody else of its service is found (`last`): it is checked anew."},
	{Name: EventDraining, Class: machines.ClassState, Doc: "It ends: no new traffic, and until when it has time."},
	{Name: EventDrainShortened, Class: machines.ClassProgress, Doc: "It has less time to end."},
	{Name: EventDrainCancelled, Class: machines.ClassState, Doc: "It does not end after all and is checked anew."},
	{Name: EventDrainCompleted, Class: machines.ClassProgress, Doc: "Nothing is sent to it any more: how many watchers confirmed that, and why."},
	{Name: EventDrainExpired, Class: machines.ClassError, Doc: "Its time to end was over."},
	{Name: EventDeregistered, Class: machines.ClassState, Doc: "It is out of the registry: why, and what was seen last. Its record stays."},
	{Name: EventProtected, Class: machines.ClassState, Doc: "Its service and zone preserve themselves: nothing expires."},
	{Name: EventUnprotected, Class: machines.ClassState, Doc: "Expiry goes on: what is suspect or unhealthy has its whole time from now on."},
	{Name: EventMaintenanceBegun, Class: machines.ClassState, Doc: "It is taken out, and why and until when."},
	{Name: EventMaintenanceEnded, Class: machines.ClassState, Doc: "It is no longer taken out."},
	{Name: EventWeightPinned, Class: machines.ClassState, Doc: "An administrator set its weight, or took that back."},
	{Name: EventLabels, Class: machines.ClassState, Doc: "The labels were replaced."},
}
