package relay

import "github.com/bcc94042/instar/machines"

var events = []machines.EventType{
	{Name: EventRegistered, Class: machines.ClassState, Doc: "A source is relayed from now on."},
	{Name: EventConfigured, Class: machines.ClassResource, Doc: "Thresholds and deadlines were replaced."},
	{Name: EventStarting, Class: machines.ClassProgress, Doc: "The engine is being started."},
	{Name: EventStarted, Class: machines.ClassResource, Doc: "The engine runs, and how it found the database."},
	{Name: EventRunning, Class: machines.ClassState, Doc: "It is running."},
	{Name: EventLagging, Class: machines.ClassState, Doc: "More rows wait, or longer, than they should."},
	{Name: EventStalled, Class: machines.ClassState, Doc: "Rows wait and none moves, and why."},
	{Name: EventRecovered, Class: machines.ClassState, Doc: "It works again without anybody's doing."},
	{Name: EventFailed, Class: machines.ClassState, Doc: "It cannot work, and why."},
	{Name: EventProblem, Class: machines.ClassError, Doc: "Something holds it up; it may be over soon."},
	{Name: EventPaused, Class: machines.ClassState, Doc: "It stands, who asked for it, and why."},
	{Name: EventResumed, Class: machines.ClassState, Doc: "It is to go on."},
	{Name: EventStopped, Class: machines.ClassProgress, Doc: "The engine stands."},
	{Name: EventStopFailed, Class: machines.ClassError, Doc: "The engine did not stop."},
	{Name: EventDraining, Class: machines.ClassState, Doc: "What is there is being published."},
	{Name: EventDrained, Class: machines.ClassState, Doc: "Everything that was there is in the stream."},
	{Name: EventDrainExpired, Class: machines.ClassError, Doc: "Not everything could be published in time; the rest waits in the database."},
	{Name: EventObserved, Class: machines.ClassProgress, Doc: "How it was seen to stand, whole."},
	{Name: EventObservationFailed, Class: machines.ClassError, Doc: "It could not be looked at; what is known grows old."},
	{Name: EventParked, Class: machines.ClassError, Doc: "Aggregates wait behind a row that cannot be published."},
	{Name: EventUnparked, Class: machines.ClassResource, Doc: "Aggregates wait no more."},
	{Name: EventSlotGrowing, Class: machines.ClassError, Doc: "The replication slot keeps more of the log than it should."},
	{Name: EventAudit, Class: machines.ClassResource, Doc: "Somebody did by hand what is not the usual way, and who."},
	{Name: EventDeletionRequested, Class: machines.ClassState, Doc: "Its end was asked for."},
	{Name: EventDeletionStalled, Class: machines.ClassError, Doc: "The deletion does not come to its end."},
	{Name: EventDeletionRefused, Class: machines.ClassError, Doc: "It was not deleted, because events would have gone with its replication slot; it is paused."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "It is deleted."},
	{Name: EventPurged, Class: machines.ClassState, Doc: "It was forgotten by force; a replication slot may still be there."},
}

var columns = []machines.Column{
	{Title: "MODE", Path: "data.seen.mode"},
	{Title: "LAG", Path: "data.seen.lag"},
	{Title: "OLDEST", Path: "data.seen.oldestSeconds"},
	{Title: "PROBLEM", Path: "data.seen.problem"},
}
