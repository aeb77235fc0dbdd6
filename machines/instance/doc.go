// Package instance is the lifecycle of one instance of a service in the registry: registered, checked, found, drained,
// gone. Its key is <namespace>.<service>.<instanceId>; [InstanceID] makes the id from the address, so that a process that
// registers again is the next generation of one instance.
//
// What is guaranteed of every instance:
//   - It is found ([Routable]) only while it is warming, healthy or suspect and not in maintenance, and, unless it is not
//     checked at all, only after a pass of this generation.
//   - Evidence and ends that speak of another generation than the one registered are refused, with the reason; evidence
//     without a generation is taken. Evidence that changes nothing is accepted and writes nothing: neither a beat of a
//     healthy instance nor a result below the threshold is a version.
//   - Who observes counts results in a row ([Evidence].Consecutive) and says so when a threshold is reached; the table
//     compares with rise, fall and maxFailures. Results that are in the entity are those that something was decided from.
//   - Where a check has several observers, so many as agree makes (the majority by default) must see it fall before it is
//     unhealthy, and so many must see it rise that those left could not agree. One that is overruled is remembered in
//     Failing. Evidence says how many observers there are when there are fewer than the check asks for.
//   - Silence makes a found instance suspect, never unhealthy at once; an unknown one was never found, so silence makes it
//     unhealthy. A suspicion ends with a pass, with enough confirmations, or with its window ([Data.SuspectWindow]).
//   - While it is protected (its service and zone are in self-preservation) only people and registrations take it out: what
//     would make it unhealthy, flapping or deregistered makes it suspect at most, or is put off.
//   - What is unhealthy is not deregistered by a timer: the registry may have been away while its time passed. When it is
//     over the instance is Overdue, and deregistered as soon as whoever looks at it has done so for long enough and
//     confirms it ([ReportGone]).
//   - One that flaps is held down until its time is over and its score has fallen below flapLow: what began above the
//     one mark ends below the other one.
//   - It can be ended in every live state. The end keeps the record: last evidence, last error, and the version and
//     generation for the next life.
//
// A registration of a live instance begins its next generation at the beginning: what was learned is forgotten; what
// operators said of the address (maintenance, pinned weight, protection) stays, and so does the count of its holds for
// flapping. One of an ended instance keeps none of these. A heartbeat is not implied by registering: an instance that is
// checked is unknown until its first pass.
//
// The weight at which it is found is [Weight]; the deadline of each state stands in the entity and survives every process.
// The time of a maintenance is a timer of its own, which survives them as well; readers ignore one that is over.
package instance
