package relay

import "github.com/bcc94042/instar/machines"

var events = []machines.EventType{
	{Name: EventRegistered, Class: machines.ClassState, Doc: "A relay was registered for a source."},
	{Name: EventConfigured, Class: machines.ClassResource, Doc: "Thresholds and deadlines were replaced."},
	{Name: EventStarting, Class: machines.ClassProgress, Doc: "The relay is being started."},
	{Name: EventStarted, Class: machines.ClassResource, Doc: "The relay runs; with the state of the database."},
	{Name: EventRunning, Class: machines.ClassState, Doc: "The relay is running."},
	{Name: EventLagging, Class: machines.ClassState, Doc: "Too many rows wait, or for too long."},
	{Name: EventStalled, Class: machines.ClassState, Doc: "Rows wait and none is published, and why."},
	{Name: EventRecovered, Class: machines.ClassState, Doc: "The relay recovered by itself."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "The relay cannot work, and why."},
	{Name: EventProblem, Class: machines.ClassError, Doc: "A problem delays the relay; it may be temporary."},
	{Name: EventPaused, Class: machines.ClassState, Doc: "The relay is paused, who requested it, and why."},
	{Name: EventResumed, Class: machines.ClassState, Doc: "The relay was told to continue."},
	{Name: EventStopped, Class: machines.ClassProgress, Doc: "The relay stopped."},
	{Name: EventStopFailed, Class: machines.ClassError, Doc: "The relay did not stop."},
	{Name: EventDraining, Class: machines.ClassState, Doc: "The waiting rows are being published."},
	{Name: EventDrained, Class: machines.ClassState, Doc: "All waiting rows were published."},
	{Name: EventDrainExpired, Class: machines.ClassError, Doc: "Not all rows could be published in time; the others wait in the database."},
	{Name: EventObserved, Class: machines.ClassProgress, Doc: "A complete observation."},
	{Name: EventObservationFailed, Class: machines.ClassError, Doc: "The relay could not be observed; the last known state becomes stale."},
	{Name: EventParked, Class: machines.ClassError, Doc: "Aggregates wait behind a row that cannot be published."},
	{Name: EventUnparked, Class: machines.ClassResource, Doc: "Aggregates are no longer parked."},
	{Name: EventAudit, Class: machines.ClassResource, Doc: "An exceptional manual action, and who took it."},
	{Name: EventDeletionRequested, Class: machines.ClassState, Doc: "Deletion was requested."},
	{Name: EventDeletionStalled, Class: machines.ClassError, Doc: "The deletion has not finished in time."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "The relay is deleted."},
	{Name: EventPurged, Class: machines.ClassState, Doc: "The relay was purged; what it reported of the lag may still exist."},
}

var columns = []machines.Column{
	{Title: "MODE", Path: "data.seen.mode"},
	{Title: "LAG", Path: "data.seen.lag"},
	{Title: "OLDEST", Path: "data.seen.oldestSeconds"},
	{Title: "PROBLEM", Path: "data.seen.problem"},
}
