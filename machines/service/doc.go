// Package service is the lifecycle of a service: something with an address that runs from a specification.
//
// The contract:
//   - A service is READY only on evidence: the gateway carries the hash of the specification that is wanted, has seen
//     its own current generation, and says Ready=True. A stale, unknown or foreign observation decides nothing.
//   - Ready has three values. False counts, Unknown neither counts nor clears the count, and only True clears it. A
//     reason of the failed kind ends the wait at once, another one after failureThreshold in a row.
//   - CREATING, UPDATING and DELETING have deadlines. The first two end as FAILED; a deletion that is late is told,
//     tried again, and can be cut short by purge. A service can be deleted from every live state.
//   - One specification is under way at a time. Another one takes its place only when the caller says supersede;
//     rollback goes back to the last specification that was READY and is not the one wanted now.
//   - FAILED and READY follow the world: FAILED heals when the same specification converges later, READY degrades at
//     the first Ready=False and fails at degradeThreshold in a row, a difference from the specification is told once.
//   - An object of the same name that others made (another UID) is never ours: it never counts as converged, and in
//     DELETING it means that ours is gone.
//
// machine.go is the table, observe.go judges observations, guards.go and actions.go hold what the rows name.
package service
