package instance

import (
	"slices"

	"github.com/bcc94042/instar/machines"
)

// Groups of states that several rows share.
var (
	checked  = []string{Unknown, Warming, Healthy, Suspect, Unhealthy} // results decide where they go
	active   = append(slices.Clone(checked), Flapping)
	found    = []string{Warming, Healthy}
	starting = slices.Concat(only(Pending), active)
	live     = slices.Concat(starting, only(Draining))
	anywhere = slices.Concat([]string{machines.None, Deregistered}, live)
)

type edge = machines.Edge[Data]

func only(state string) []string     { return []string{state} }
func emit(events ...string) []string { return events }

func but(states []string, not ...string) []string {
	return slices.DeleteFunc(slices.Clone(states), func(s string) bool { return slices.Contains(not, s) })
}

// table: evidence that changes nothing is accepted and leaves no trace, because most of it is like that; evidence, and
// the end, of another generation than the one registered is refused by every row (the guards of fences).
var table = slices.Concat(registration, results, silence, ending, flags)

var registration = slices.Concat([]edge{
	{From: anywhere, On: CommandRegister, To: Pending, Reenter: true, Do: register, Emit: emit(EventRegistered)},
	{From: only(Pending), On: TimeoutRegistration, If: nobodyLooked, To: machines.Same, Rearm: true, Do: waitForOwner, Emit: emit(EventSpared)},
	{From: only(Pending), On: TimeoutRegistration, To: Deregistered, Do: registrationLate, Emit: emit(EventRegistrationFailed, EventDeregistered)},
	{From: only(Pending), On: ReportRefused, If: current, To: Deregistered, Do: registrationRefused, Emit: emit(EventRegistrationFailed, EventDeregistered)},
	{From: only(Pending), On: ReportPersisted, If: heardWarm, To: Warming, Do: both(admit, warm), Emit: emit(EventAdmitted, EventWarming)},
	{From: only(Pending), On: ReportPersisted, If: heard, To: Healthy, Do: both(admit, well), Emit: emit(EventAdmitted, EventHealthy)},
}, begin(Pending, ReportPersisted, admit, EventAdmitted), []edge{
	{From: but(live, Pending), On: ReportPersisted, If: current, To: machines.Same, Noop: true}, // told twice
})

// begin is how an instance becomes active: what is not checked goes on at once, all else waits for its first results.
func begin(from, on string, do func(*step), told string) []edge {
	return []edge{
		{From: only(from), On: on, If: uncheckedWarm, To: Warming, Do: both(do, warm), Emit: emit(told, EventWarming)},
		{From: only(from), On: on, If: unchecked, To: Healthy, Do: both(do, well), Emit: emit(told, EventHealthy)},
		{From: only(from), On: on, If: current, To: Unknown, Do: do, Emit: emit(told)},
	}
}

var results = []edge{
	{From: []string{Unknown, Unhealthy}, On: ReportPassed, If: risenWarm, To: Warming, Do: warm, Emit: emit(EventWarming)},
	{From: []string{Unknown, Unhealthy}, On: ReportPassed, If: risen, To: Healthy, Do: well, Emit: emit(EventHealthy)},
	{From: only(Suspect), On: ReportPassed, If: stillWarm, To: Warming, Do: resume, Emit: emit(EventWarming)},
	{From: only(Suspect), On: ReportPassed, If: current, To: Healthy, Do: well, Emit: emit(EventHealthy)},
	{From: only(Unhealthy), On: ReportPassed, If: oneRose, To: machines.Same, Do: rise, Emit: emit(EventVoted)},
	{From: found, On: ReportPassed, If: relented, To: machines.Same, Do: relent, Emit: emit(EventVoted)},
	{From: found, On: ReportPassed, If: newWeight, To: machines.Same, Do: weigh, Emit: emit(EventWeightReported)},
	{From: but(live, Suspect), On: ReportPassed, If: current, To: machines.Same, Noop: true},
	{From: only(Warming), On: TimeoutWarmup, To: Healthy, Do: warmedUp, Emit: emit(EventHealthy)},

	{From: []string{Unknown, Warming, Healthy, Unhealthy}, On: ReportFailed, If: tooMany, To: Deregistered, Do: giveUp, Emit: emit(EventFailureCounted, EventDeregistered)},
	{From: found, On: ReportFailed, If: fallenAmongOthers, To: Suspect, Do: suspect, Emit: emit(EventSuspected)},
	{From: []string{Unknown, Warming, Healthy, Suspect}, On: ReportFailed, If: condemned, To: Unhealthy, Do: ail, Emit: emit(EventUnhealthy)},
	{From: only(Suspect), On: ReportFailed, If: alsoFallen, To: machines.Same, Rearm: true, Do: confirm, Emit: emit(EventSuspicionConfirmed)},
	{From: only(Unhealthy), On: ReportFailed, If: anotherFailure, To: machines.Same, Do: count, Emit: emit(EventFailureCounted)},
	{From: live, On: ReportFailed, If: current, To: machines.Same, Noop: true},

	{From: checked, On: ReportFlap, If: unsteady, To: Flapping, Do: holdDown, Emit: emit(EventFlapping)},
	{From: only(Flapping), On: ReportFlap, If: unsteadyAgain, To: machines.Same, Do: unsettle, Emit: emit(EventFlapScored)},
	{From: live, On: ReportFlap, If: current, To: machines.Same, Noop: true},
	{From: only(Flapping), On: ReportCalm, If: steadyAtLast, To: Unknown, Do: calm, Emit: emit(EventFlapCleared)},
	{From: only(Flapping), On: ReportCalm, If: steady, To: machines.Same, Do: settle, Emit: emit(EventFlapScored)},
	{From: live, On: ReportCalm, If: current, To: machines.Same, Noop: true},
	{From: only(Flapping), On: TimeoutFlap, If: calmed, To: Unknown, Do: calm, Emit: emit(EventFlapCleared)},
	{From: only(Flapping), On: TimeoutFlap, To: machines.Same, Rearm: true, Do: holdOn, Emit: emit(EventFlapProlonged)},
}

var silence = []edge{
	{From: only(Unknown), On: ReportMissed, If: mayExpire, To: Unhealthy, Do: neverHeard, Emit: emit(EventUnhealthy)},
	{From: found, On: ReportMissed, If: current, To: Suspect, Do: suspect, Emit: emit(EventSuspected)},
	{From: but(live, Warming, Healthy), On: ReportMissed, If: current, To: machines.Same, Noop: true},
	{From: only(Suspect), On: ReportConfirmed, If: decides, To: Unhealthy, Do: agree, Emit: emit(EventSuspicionConfirmed, EventUnhealthy)},
	{From: only(Suspect), On: ReportConfirmed, If: another, To: machines.Same, Rearm: true, Do: confirm, Emit: emit(EventSuspicionConfirmed)},
	{From: live, On: ReportConfirmed, If: current, To: machines.Same, Noop: true},
	{From: only(Suspect), On: TimeoutSuspect, To: Unhealthy, Do: expire, Emit: emit(EventUnhealthy)},
	{From: only(Unhealthy), On: TimeoutCritical, To: machines.Same, Rearm: true, Do: fallDue, Emit: emit(EventOverdue)},
	{From: only(Unhealthy), On: ReportGone, If: overdue, To: Deregistered, Do: criticalTooLong, Emit: emit(EventDeregistered)},
	{From: live, On: ReportGone, If: current, To: machines.Same, Noop: true},
}

var ending = slices.Concat([]edge{
	{From: starting, On: CommandShutdown, If: current, To: Draining, Do: drain, Emit: emit(EventDraining)},
	{From: only(Draining), On: CommandShutdown, If: sooner, To: machines.Same, Rearm: true, Do: hurry, Emit: emit(EventDrainShortened)},
	{From: []string{Draining, Deregistered}, On: CommandShutdown, If: current, To: machines.Same, Noop: true},
	{From: live, On: CommandForce, If: current, To: Deregistered, Do: force, Emit: emit(EventDeregistered)},
	{From: only(Deregistered), On: CommandForce, If: current, To: machines.Same, Noop: true},
	{From: only(Draining), On: ReportDrained, If: sameDrain, To: Deregistered, Do: drained, Emit: emit(EventDrainCompleted, EventDeregistered)},
	{From: only(Draining), On: TimeoutDrain, To: Deregistered, Do: drainOver, Emit: emit(EventDrainExpired, EventDeregistered)},
	{From: only(Draining), On: CommandCancelDrain, If: notAdmitted, To: Pending, Do: cancelDrain, Emit: emit(EventDrainCancelled)},
}, begin(Draining, CommandCancelDrain, cancelDrain, EventDrainCancelled))

var flags = []edge{
	{From: []string{Suspect, Unhealthy}, On: ReportProtect, If: unprotected, To: machines.Same, Rearm: true, Do: protect, Emit: emit(EventProtected)},
	{From: but(live, Suspect, Unhealthy), On: ReportProtect, If: unprotected, To: machines.Same, Do: protect, Emit: emit(EventProtected)},
	{From: live, On: ReportProtect, To: machines.Same, Noop: true},
	{From: []string{Suspect, Unhealthy}, On: ReportUnprotect, If: protected, To: machines.Same, Rearm: true, Do: unprotect, Emit: emit(EventUnprotected)},
	{From: but(live, Suspect, Unhealthy), On: ReportUnprotect, If: protected, To: machines.Same, Do: unprotect, Emit: emit(EventUnprotected)},
	{From: live, On: ReportUnprotect, To: machines.Same, Noop: true},
	{From: live, On: CommandMaintenance, If: enables, To: machines.Same, Do: maintain, Emit: emit(EventMaintenanceBegun)},
	{From: live, On: CommandMaintenance, If: disables, To: machines.Same, Do: maintained, Emit: emit(EventMaintenanceEnded)},
	{From: live, On: CommandMaintenance, To: machines.Same, Noop: true},
	{From: live, On: ReportMaintenanceEnd, If: maintenanceOver, To: machines.Same, Do: maintained, Emit: emit(EventMaintenanceEnded)},
	{From: live, On: ReportMaintenanceEnd, To: machines.Same, Noop: true},
	{From: live, On: CommandPin, If: repins, To: machines.Same, Do: pin, Emit: emit(EventWeightPinned)},
	{From: live, On: CommandPin, To: machines.Same, Noop: true},
	{From: live, On: CommandLabel, To: machines.Same, Do: label, Emit: emit(EventLabels)},
}
