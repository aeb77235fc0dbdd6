package instance

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Machine is the lifecycle of an instance.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "instance", Plural: "instances", Parent: "service", Doc: "One instance of a service in the registry.",
	States: states, Inputs: inputs, Events: events, Columns: columns, Edges: table,
	Alarms: []machines.Alarm[Data]{{Name: "maintenance", Input: ReportMaintenanceEnd, Until: maintenanceUntil}},
})

// until gives a state the deadline that the data holds.
func until(input string, at func(*step) time.Time) *machines.Timeout[Data] {
	return &machines.Timeout[Data]{Input: input, Until: at}
}

var states = []machines.State[Data]{
	{Name: Pending, Doc: "Registered; the owner reads the record back before anybody can find it.", Timeout: until(TimeoutRegistration, func(s *step) time.Time { return s.Data.AdmitUntil })},
	{Name: Unknown, Doc: "Admitted, and not checked yet or to be checked anew: not found."},
	{Name: Warming, Doc: "Passed its checks: found, with a growing part of its weight.", Timeout: until(TimeoutWarmup, func(s *step) time.Time { return s.Data.WarmSince.Add(s.Data.Warmup()) })},
	{Name: Healthy, Doc: "Found."},
	{Name: Suspect, Doc: "Silent, or failing for one of several observers: still found, with half its weight, for a bounded time.", Timeout: until(TimeoutSuspect, suspectUntil)},
	{Name: Unhealthy, Doc: "Not found; deregistered when it lasts too long and whoever looks at it sees that.", Failed: true, Timeout: until(TimeoutCritical, criticalUntil)},
	{Name: Flapping, Doc: "Changed too often: held down until the time is over and its results are steady again, or nobody else of its service is found; not found.", Timeout: until(TimeoutFlap, flapUntil)},
	{Name: Draining, Doc: "Ends: no new traffic; found only when it is asked for.", Timeout: until(TimeoutDrain, func(s *step) time.Time { return s.Data.Drain.Until })},
	{Name: Deregistered, Doc: "Out of the registry; the record stays, and register begins the next generation.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandRegister, Doc: "Enter it, or begin its next generation.", Body: RegisterBody{}, Birth: true},
	{Name: CommandShutdown, Doc: "End it: no new traffic, then out.", Body: ShutdownBody{}, Destructive: true},
	{Name: CommandForce, Doc: "Take it out at once.", Body: ForceBody{}, Destructive: true},
	{Name: CommandCancelDrain, Doc: "Let it not end after all."},
	{Name: CommandMaintenance, Doc: "Take it out of traffic without ending it, or put it back.", Body: MaintenanceBody{}},
	{Name: CommandPin, Doc: "Set its weight by hand, or take that back.", Body: PinBody{}},
	{Name: CommandLabel, Doc: "Replace the labels.", Body: LabelBody{}},
	{Name: ReportPersisted, Doc: "The owner has read the record back.", Body: Admission{}, Report: true},
	{Name: ReportRefused, Doc: "It is not admitted.", Body: RefusalReport{}, Report: true},
	{Name: ReportPassed, Doc: "A check passed, so often in a row.", Body: Evidence{}, Report: true},
	{Name: ReportFailed, Doc: "A check failed, so often in a row.", Body: Evidence{}, Report: true},
	{Name: ReportMissed, Doc: "It was not heard for longer than it may be silent.", Body: Evidence{}, Report: true},
	{Name: ReportConfirmed, Doc: "Another observer suspects it, too.", Body: Evidence{}, Report: true},
	{Name: ReportGone, Doc: "It was unhealthy for too long, and who has looked at it for long enough since sees no life.", Body: Evidence{}, Report: true},
	{Name: ReportFlap, Doc: "Its results change too often.", Body: FlapReport{}, Report: true},
	{Name: ReportCalm, Doc: "Its results do not change too often any more, or nobody else of its service is found.", Body: FlapReport{}, Report: true},
	{Name: ReportDrained, Doc: "Nothing is sent to it any more.", Body: DrainReport{}, Report: true},
	{Name: ReportProtect, Doc: "Its service and zone preserve themselves.", Report: true},
	{Name: ReportUnprotect, Doc: "Its service and zone do so no longer.", Report: true},
	{Name: ReportMaintenanceEnd, Doc: "The time of its maintenance is over.", Report: true},
	{Name: TimeoutRegistration, Doc: "It was not admitted in time.", Report: true},
	{Name: TimeoutWarmup, Doc: "It is warm.", Report: true},
	{Name: TimeoutSuspect, Doc: "It was suspect for too long.", Report: true},
	{Name: TimeoutFlap, Doc: "It was held down long enough.", Report: true},
	{Name: TimeoutCritical, Doc: "It was unhealthy for too long.", Report: true},
	{Name: TimeoutDrain, Doc: "Its time to end is over.", Report: true},
}

var columns = []machines.Column{
	{Title: "ADDRESS", Path: "data.nodeAddress"},
	{Title: "ZONE", Path: "data.zone"},
	{Title: "RELEASE", Path: "data.version"},
	{Title: "WEIGHT", Path: "data.weight"},
	{Title: "CHECK", Path: "data.check.type"},
}
