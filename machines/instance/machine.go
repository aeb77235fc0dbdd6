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
	{Name: Unknown, Doc: "Admitted, but not checked yet or being checked again: not found."},
	{Name: Warming, Doc: "Passed its checks: found, with a growing weight.", Timeout: until(TimeoutWarmup, func(s *step) time.Time { return s.Data.WarmSince.Add(s.Data.Warmup()) })},
	{Name: Healthy, Doc: "Found."},
	{Name: Suspect, Doc: "Silent, or failing for one of several observers: still found, with half its weight, for a bounded time.", Timeout: until(TimeoutSuspect, suspectUntil)},
	{Name: Unhealthy, Doc: "Not found; deregistered if this lasts too long and its owner confirms it.", Failed: true, Timeout: until(TimeoutCritical, criticalUntil)},
	{Name: Flapping, Doc: "Changed too often: not found. Held down until the time is over and its results are stable, or it is the last one of its service.", Timeout: until(TimeoutFlap, flapUntil)},
	{Name: Draining, Doc: "Shutting down: no new traffic; found only on request.", Timeout: until(TimeoutDrain, func(s *step) time.Time { return s.Data.Drain.Until })},
	{Name: Deregistered, Doc: "Out of the registry; the record stays, and register begins the next generation.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandRegister, Doc: "Register the instance, or its next generation.", Body: RegisterBody{}, Birth: true, Replaces: true},
	{Name: CommandShutdown, Doc: "Drain the instance, then deregister it.", Body: ShutdownBody{}, Destructive: true},
	{Name: CommandForce, Doc: "Deregister the instance at once.", Body: ForceBody{}, Destructive: true},
	{Name: CommandCancelDrain, Doc: "Cancel the drain."},
	{Name: CommandMaintenance, Doc: "Take the instance out of traffic without a shutdown, or put it back.", Body: MaintenanceBody{}},
	{Name: CommandPin, Doc: "Pin the weight, or unpin it.", Body: PinBody{}},
	{Name: CommandLabel, Doc: "Replace the labels.", Body: LabelBody{}, Replaces: true},
	{Name: ReportPersisted, Doc: "The owner has read the record back.", Body: Admission{}, Report: true},
	{Name: ReportRefused, Doc: "The instance is not admitted.", Body: RefusalReport{}, Report: true},
	{Name: ReportPassed, Doc: "A check passed, with the number of passes in a row.", Body: Evidence{}, Report: true},
	{Name: ReportFailed, Doc: "A check failed, with the number of failures in a row.", Body: Evidence{}, Report: true},
	{Name: ReportMissed, Doc: "The instance was silent for longer than its TTL.", Body: Evidence{}, Report: true},
	{Name: ReportConfirmed, Doc: "Another observer confirms the suspicion.", Body: Evidence{}, Report: true},
	{Name: ReportGone, Doc: "The instance was unhealthy for too long, and its owner has confirmed that it is dead.", Body: Evidence{}, Report: true},
	{Name: ReportFlap, Doc: "The results change too often.", Body: FlapReport{}, Report: true},
	{Name: ReportCalm, Doc: "The results are stable again, or the instance is the last one of its service.", Body: FlapReport{}, Report: true},
	{Name: ReportDrained, Doc: "No traffic is sent to the instance any more.", Body: DrainReport{}, Report: true},
	{Name: ReportProtect, Doc: "Self-preservation protects its service and zone.", Report: true},
	{Name: ReportUnprotect, Doc: "The protection of its service and zone ended.", Report: true},
	{Name: ReportMaintenanceEnd, Doc: "The maintenance is over.", Report: true},
	{Name: TimeoutRegistration, Doc: "The instance was not admitted in time.", Report: true},
	{Name: TimeoutWarmup, Doc: "The warm-up is complete.", Report: true},
	{Name: TimeoutSuspect, Doc: "The instance was suspect for too long.", Report: true},
	{Name: TimeoutFlap, Doc: "The hold-down time is over.", Report: true},
	{Name: TimeoutCritical, Doc: "The instance was unhealthy for too long.", Report: true},
	{Name: TimeoutDrain, Doc: "The drain deadline passed.", Report: true},
}

var columns = []machines.Column{
	{Title: "ADDRESS", Path: "data.nodeAddress"},
	{Title: "ZONE", Path: "data.zone"},
	{Title: "RELEASE", Path: "data.version"},
	{Title: "WEIGHT", Path: "data.weight"},
	{Title: "CHECK", Path: "data.check.type"},
}
