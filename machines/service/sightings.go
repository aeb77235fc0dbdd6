package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
)

// Actions of an observation. Each begins with absorb.

// absorb keeps what was seen and tells what is new in it. It decides nothing.
func absorb(s *step) {
	v, before := of(s), s.Data.Snapshot
	now := tidy(&v.o.Snapshot)
	s.Data.Snapshot, s.Data.ObservedAt = now, s.Now()
	if at := v.o.At; !at.IsZero() && at.Before(s.Now()) {
		s.Data.ObservedAt = at
	}
	s.Detail(EventSnapshot, now)
	count(s, v)
	aspects(s, v)
	revisions(s, before, now)
	if routed(now) && (before == nil || !sameRoute(before, now)) {
		s.Emit(EventRouteAligned, map[string]any{"url": now.URL, "serving": now.Serving, "traffic": now.Traffic})
	}
}

func count(s *step, v evidence) {
	switch {
	case slices.Contains(converging, v.state) && v.counts(), v.state == Ready && v.down():
		s.Data.Failures++
	case v.state == Ready && v.sound():
		s.Data.Failures = 0
	}
}

// aspects sets the conditions that no edge is about. A condition that was never True is not mentioned.
func aspects(s *step, v evidence) {
	if c, ok := s.Entity().Condition(Observed); ok && c.Status != machines.True {
		s.Condition(Observed, machines.True, "Observed", "")
	}
	if v.replaced() {
		s.Condition(Replaced, machines.True, "OtherUID", fmt.Sprintf("the object has uid %s, ours had %s", v.o.UID, v.data.Applied.UID))
	} else if v.o.Exists {
		lower(s, Replaced, "OurUID")
	}
	if v.undrifted() {
		s.Data.Drift = ""
		lower(s, Drifted, "AsSpecified")
	}
}

func lower(s *step, condition, reason string) {
	if holds(s.Entity(), condition) {
		s.Condition(condition, machines.False, reason, "")
	}
}

// revisions tells of each revision that the snapshot before did not have.
func revisions(s *step, before, now *Snapshot) {
	known := map[string]bool{"": true}
	if before != nil {
		known[before.LatestCreated], known[before.LatestReady], known[before.Serving] = true, true, true
		for _, r := range before.Revisions {
			known[r.Name] = true
		}
	}
	all := append(slices.Clone(now.Revisions), ObservedRevision{Name: now.LatestCreated}, ObservedRevision{Name: now.LatestReady}, ObservedRevision{Name: now.Serving})
	for _, r := range all {
		if !known[r.Name] {
			known[r.Name] = true
			s.Emit(EventRevisionCreated, r)
		}
	}
}

func routed(n *Snapshot) bool { return n.URL != "" || n.Serving != "" || len(n.Traffic) > 0 }

func sameRoute(a, b *Snapshot) bool {
	return a.URL == b.URL && a.Serving == b.Serving && slices.Equal(a.Traffic, b.Traffic)
}

// confirm: the specification runs. It is what a rollback may go back to; that it was to replace is done with.
func confirm(s *step) {
	adopt(s)
	absorb(s)
	d := s.Data
	spec := *d.Spec
	spec.ForceReplace = false
	if d.Converged != nil && d.Converged.Hash != d.SpecHash {
		d.Previous = d.Converged
	}
	d.Spec, d.Failures = &spec, 0
	d.Converged = &Accepted{Hash: d.SpecHash, Generation: s.Entity().Generation, At: s.Now()}
	s.Fail(nil)
	lower(s, Degraded, "Ready")
	s.Condition(Available, machines.True, "Converged", "")
	told := map[string]any{"desiredSpecHash": d.SpecHash, "generation": s.Entity().Generation}
	s.Detail(EventConfirmed, told)
	s.Detail(EventUpdated, told)
	s.Detail(EventReady, map[string]any{"url": d.Snapshot.URL, "serving": d.Snapshot.Serving})
}

// adopt takes the evidence for the gateway's answer: it may come before the answer, which is refused as late then.
func adopt(s *step) {
	o, known := machines.Body[Observation](s), s.Data.Applied
	a := Applied{UID: o.UID, Generation: o.Generation, ResourceVersion: o.ResourceVersion, Hash: o.SpecHash, At: s.Now()}
	if known == nil || known.Hash != a.Hash {
		took(s, a)
		s.Emit(EventSpecApplied, a)
	} else if known.UID != a.UID && a.UID != "" {
		s.Data.Applied = &a
	}
}

func heal(s *step) {
	confirm(s)
	s.Detail(EventRecovered, map[string]any{"state": s.State()})
}

func giveUp(s *step) {
	absorb(s)
	seen := s.Data.Snapshot
	fail(s, cmp.Or(seen.Reason, FailureUnready), words("", seen.Message, "the gateway says Ready=False"))
}

func degrade(s *step) {
	absorb(s)
	reason, msg := trouble(s.Data.Snapshot)
	s.Condition(Degraded, machines.True, reason, msg)
	s.Detail(EventDegraded, map[string]any{"reason": reason, "message": msg, "failures": s.Data.Failures, "threshold": s.Data.Policy.degradeThreshold()})
}

func wearOut(s *step) {
	absorb(s)
	reason, msg := trouble(s.Data.Snapshot)
	s.Condition(Degraded, machines.True, reason, msg)
	f := &machines.Failure{Code: FailureDegraded, Message: fmt.Sprintf("not ready %d times in a row: %s", s.Data.Failures, words(reason, msg, "")), At: s.Now()}
	s.Fail(f)
	s.Condition(Available, machines.False, FailureDegraded, f.Message)
	s.Detail(EventFailed, map[string]any{"error": f, "serving": s.Data.serving()})
}

func recovered(s *step) {
	absorb(s)
	lower(s, Degraded, "Ready")
	s.Detail(EventRecovered, map[string]any{"state": s.State()})
}

func drift(s *step) {
	v := of(s)
	told := v.difference()
	absorb(s)
	s.Data.Drift = told
	s.Condition(Drifted, machines.True, "Differs", differs(v))
	s.Detail(EventDrift, map[string]any{"desiredSpecHash": v.data.SpecHash, "observedSpecHash": v.o.SpecHash, "exists": v.o.Exists, "fields": v.o.Fields})
}

// reapply keeps the generation: no other specification was accepted.
func reapply(s *step) {
	drift(s)
	s.Data.Failures = 0
	s.Forget(Degraded)
	s.Condition(Available, machines.Unknown, "Reapplying", s.Data.keeps())
	started(s)
}

func vanish(s *step) {
	absorb(s)
	ended(s, "Deleted")
}

// blind: the gateway could not be looked at. What is known stays, with its time.
func blind(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Condition(Observed, machines.False, cmp.Or(f.Code, "Unavailable"), f.Message)
	s.Detail(EventObservationFailed, f)
}

// trouble is why a READY service counts as not ready.
func trouble(n *Snapshot) (reason, message string) {
	switch {
	case !n.Exists:
		return ReasonNotFound, "the gateway has no such object"
	case n.Ready == machines.False:
		return cmp.Or(n.Reason, FailureUnready), n.Message
	default:
		return ReasonRouteProbe, "the gateway says ready, but nothing answers through the route"
	}
}

// differs names the fields that drifted, without their values.
func differs(v evidence) string {
	if !v.o.Exists {
		return "the object is missing"
	}
	names := make([]string, 0, len(v.o.Fields))
	for n := range v.o.Fields {
		names = append(names, n)
	}
	if len(names) == 0 {
		return "the object carries another hash"
	}
	slices.Sort(names)
	return "differs in " + strings.Join(names, ", ")
}

func words(reason, message, otherwise string) string {
	switch {
	case reason != "" && message != "":
		return reason + ": " + message
	default:
		return cmp.Or(message, reason, otherwise)
	}
}
