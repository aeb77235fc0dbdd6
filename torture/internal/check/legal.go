package check

import (
	"fmt"
	"slices"
)

// The states of a service, as its specification names them.
const (
	none     = ""
	creating = "CREATING"
	updating = "UPDATING"
	ready    = "READY"
	failed   = "FAILED"
	deleting = "DELETING"
	deleted  = "DELETED"
)

// edge is one row of the specification's table of transitions: what may lead where, and which events must tell of it,
// in that order (others may stand between).
type edge struct {
	from   []string
	on     string
	to     string // "=" stays
	events []string
}

const same = "="

func of(states ...string) []string { return states }

var (
	converging = of(creating, updating)
	settled    = of(ready, failed)
	unmarked   = of(creating, updating, ready, failed)
	live       = of(creating, updating, ready, failed, deleting)

	updates = []string{"service.update.requested", "service.spec.accepted", "service.spec.apply.started"}
)

// legal is specs/service.md, sections 1 and its gaps: written by hand, not taken from the machine.
var legal = []edge{
	{of(none, deleted), "create", creating, of("service.creation.requested", "service.spec.accepted", "service.spec.apply.started")},
	{settled, "update", updating, updates},
	{converging, "update", updating, updates},                                                   // gap 6: supersede
	{of(ready), "update", ready, of("service.update.requested", "service.updated")},             // gap 14: policy and labels only
	{of(updating, ready, failed), "rollback", updating, updates},                                // gap 5
	{unmarked, "delete", deleting, of("service.deletion.requested", "service.deletion.marked")}, // gap 6
	{live, "refresh", same, of("service.audit.recorded")},
	{live, "label", same, of("service.labels.updated")},
	{live, "purge", deleted, of("service.external.purged", "service.deleted")}, // gap 8

	{converging, "applied", same, of("service.spec.applied")},
	{of(creating), "apply-failed", failed, of("service.creation.failed", "service.failed")}, // gap 7
	{of(updating), "apply-failed", failed, of("service.convergence.failed", "service.failed")},
	{converging, "progress-deadline", failed, of("service.convergence.failed", "service.failed")}, // gap 1

	{of(creating), "observed", ready, of("service.snapshot.updated", "service.convergence.confirmed", "service.ready")},
	{of(updating), "observed", ready, of("service.snapshot.updated", "service.convergence.confirmed", "service.updated", "service.ready")}, // gap 13
	{converging, "observed", failed, of("service.snapshot.updated", "service.convergence.failed", "service.failed")},
	{of(ready), "observed", updating, of("service.snapshot.updated", "service.drift.detected", "service.spec.apply.started")}, // gap 10
	{of(ready), "observed", failed, of("service.snapshot.updated", "service.failed")},                                         // gap 3
	{of(failed), "observed", ready, of("service.snapshot.updated", "service.recovered", "service.ready")},                     // gap 4
	{of(deleting), "observed", deleted, of("service.snapshot.updated", "service.deleted")},
	{live, "observed", same, of("service.snapshot.updated")},
	{live, "observe-failed", same, of("service.observation.failed")},

	{of(deleting), "delete-accepted", same, of("service.deletion.started")},
	{of(deleting), "delete-failed", same, of("service.deletion.stalled")},
	{of(deleting), "delete-deadline", same, of("service.deletion.stalled")}, // gap 8
	{of(deleting), "deleted-observed", deleted, of("service.snapshot.updated", "service.deleted")},

	// Tries of an effect: the engine's own inputs, which leave the state alone.
	{live, "failed", same, nil},
	{live, "elapsed", same, nil},
}

// judge says what is wrong with a transition, or nothing.
func judge(from, on, to string, events []string) string {
	known := false
	for _, e := range legal {
		if e.on != on || !slices.Contains(e.from, from) || e.to != to && (e.to != same || from != to) {
			continue
		}
		known = true
		if within(e.events, events) {
			return ""
		}
	}
	if !known {
		return fmt.Sprintf("no edge leads from %q to %q on %s", from, to, on)
	}
	return fmt.Sprintf("%s from %q to %q told %v, which lacks what the table says or its order", on, from, to, events)
}

// within reports whether all of part stand in all, in that order.
func within(part, all []string) bool {
	for _, p := range part {
		i := slices.Index(all, p)
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}
