package service

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// ReadyStale is how old the evidence of a stable READY may grow before it is written anew.
const ReadyStale = 15 * time.Minute

// evidence is one observation beside what is known of the service: what guards judge. It reads and never changes.
type evidence struct {
	state    string
	data     *Data
	pending  bool // the gateway has not yet answered the apply under way
	degraded bool
	o        *Observation
}

func weigh(e *machines.Entity, d *Data, o *Observation) evidence {
	_, pending := e.Effects[EffectApply]
	return evidence{state: e.State, data: d, pending: pending, degraded: holds(e, Degraded), o: o}
}

func holds(e *machines.Entity, condition string) bool {
	c, ok := e.Condition(condition)
	return ok && c.Status == machines.True
}

// current: the gateway's own status speaks of the object as it is, not as it was before the last apply.
func (v evidence) current() bool { return v.o.Exists && v.o.ObservedGeneration == v.o.Generation }

// replaced: others made the object anew. Until an apply is answered its UID is not known.
func (v evidence) replaced() bool {
	return v.o.Exists && !v.pending && v.data.Applied != nil && v.data.Applied.UID != "" && v.o.UID != "" && v.o.UID != v.data.Applied.UID
}

// older: the observation was made before the last apply that the gateway took.
func (v evidence) older() bool {
	return v.o.Exists && !v.pending && !v.replaced() && v.data.Applied != nil && v.o.Generation < v.data.Applied.Generation
}

// wanted: the observation speaks of the specification that is wanted, and of our object. While an apply is under
// way the hash proves that only when the object did not carry it before: not for a replacement by the same
// specification, nor for an object whose fields differ under the right hash.
func (v evidence) wanted() bool {
	if v.pending && (v.data.Spec.ForceReplace || len(v.o.Fields) > 0) {
		return false
	}
	return v.current() && v.o.SpecHash == v.data.SpecHash && !v.replaced() && !v.older()
}

func (v evidence) up() bool {
	return v.current() && v.o.Ready == machines.True && v.o.Route != machines.False
}

func (v evidence) converged() bool { return v.wanted() && v.up() }

// counts: one more Ready=False of the specification that is under way.
func (v evidence) counts() bool { return v.wanted() && v.o.Ready == machines.False }

func (v evidence) failing() bool {
	return v.counts() && (failedKind(v.o.Reason) || v.data.Failures+1 >= v.data.Policy.failureThreshold())
}

// failedKind: the gateway says that it has given up.
func failedKind(reason string) bool {
	switch reason {
	case ReasonRevisionFailed, ReasonContainerMissing, ReasonInvalid, ReasonProbeFailed:
		return true
	}
	return strings.HasPrefix(reason, ReasonExited) // ExitCode1, ExitCode137, ...
}

// down: what was READY is not: missing, not ready, or out of reach through its route.
func (v evidence) down() bool {
	if v.older() {
		return false
	}
	return !v.o.Exists || v.o.Route == machines.False || v.current() && v.o.Ready == machines.False
}

func (v evidence) wornOut() bool {
	return v.down() && v.data.Failures+1 >= v.data.Policy.degradeThreshold()
}

func (v evidence) degrades() bool { return v.down() && !v.degraded }

// sound: ours, and up.
func (v evidence) sound() bool { return v.up() && !v.replaced() && !v.older() }

func (v evidence) recovers() bool { return v.degraded && v.sound() }

// difference is a hash of how the world differs from the specification, or empty.
func (v evidence) difference() string {
	if v.older() || v.o.Exists && v.o.SpecHash == v.data.SpecHash && len(v.o.Fields) == 0 {
		return ""
	}
	h, err := machines.Hash([]any{v.o.Exists, v.o.SpecHash, v.o.Fields})
	if err != nil {
		return "unknown" // strings always have a hash
	}
	return h
}

// undrifted: the object is there as it was specified.
func (v evidence) undrifted() bool { return v.o.Exists && !v.older() && v.difference() == "" }

// drifts: a difference that was not told yet. A missing object is no drift: it is down.
func (v evidence) drifts() bool { return v.o.Exists && v.differsAnew() }

// mends: the policy wants the specification applied again; once per difference, so that a field which the gateway
// always changes back does not make it go round for ever.
func (v evidence) mends() bool { return v.data.Policy.Drift == DriftReapply && v.differsAnew() }

func (v evidence) differsAnew() bool {
	d := v.difference()
	return d != "" && d != v.data.Drift
}

// gone: nothing is left of ours; what others made under the name is not for us to delete.
func (v evidence) gone() bool { return !v.o.Exists || v.replaced() }

// Meaningful reports whether the observation would change anything: what is known of the service, a count, a
// condition or its state. One that would not is not sent. That a stable READY is still so is meaningful once its
// evidence is older than [ReadyStale].
func Meaningful(e *machines.Entity, o *Observation) bool {
	d, ok := e.Data.(*Data)
	switch {
	case e.State == machines.None || e.State == Deleted:
		return false
	case !ok || d.Spec == nil || d.Snapshot == nil:
		return true
	}
	c, looked := e.Condition(Observed)
	if looked && c.Status != machines.True || !bytes.Equal(canonical(&o.Snapshot), canonical(d.Snapshot)) {
		return true
	}
	v := weigh(e, d, o)
	if o.Exists && v.replaced() != holds(e, Replaced) || v.undrifted() && (d.Drift != "" || holds(e, Drifted)) {
		return true
	}
	switch e.State {
	case Creating, Updating:
		return v.converged() || v.counts()
	case Ready:
		old := o.At.Sub(d.ObservedAt) >= ReadyStale
		return old || v.down() || v.drifts() || v.mends() || v.recovers() || d.Failures > 0 && v.sound()
	case Failed:
		return v.converged()
	default:
		return v.gone()
	}
}

// HasMissing reports whether a snapshot lacks what a service that runs has: url, latestCreated, latestReady,
// traffic, or a known Ready.
func HasMissing(s *Snapshot) bool {
	return s == nil || s.URL == "" || s.LatestCreated == "" || s.LatestReady == "" || len(s.Traffic) == 0 || s.Ready == ""
}

// SameSight reports whether the observation shows what the service's snapshot shows.
func SameSight(e *machines.Entity, o *Observation) bool {
	d, ok := e.Data.(*Data)
	return ok && d.Snapshot != nil && bytes.Equal(canonical(d.Snapshot), canonical(&o.Snapshot))
}

// Skip reports whether nothing is to be learnt by looking at the service now: it has ended, or it is a stable READY
// (no count, and no condition that tells of trouble) with whole evidence younger than readyStale.
func Skip(e *machines.Entity, now time.Time, readyStale time.Duration) bool {
	if e.State == machines.None || e.State == Deleted {
		return true
	}
	d, ok := e.Data.(*Data)
	if !ok || e.State != Ready || d.Failures > 0 || HasMissing(d.Snapshot) || now.Sub(d.ObservedAt) >= readyStale {
		return false
	}
	c, looked := e.Condition(Observed)
	return !holds(e, Degraded) && !holds(e, Replaced) && !holds(e, Drifted) && (!looked || c.Status == machines.True)
}

// maxText bounds what is kept of a gateway's words.
const maxText = 1024

// tidy is the snapshot in the one form in which it is kept and compared: lists in order, texts bounded.
func tidy(s *Snapshot) *Snapshot {
	t := *s
	t.Reason, t.Message = clip(s.Reason), clip(s.Message)
	t.Conditions, t.Traffic, t.Revisions = slices.Clone(s.Conditions), slices.Clone(s.Traffic), slices.Clone(s.Revisions)
	for i := range t.Conditions {
		t.Conditions[i].Message = clip(t.Conditions[i].Message)
	}
	slices.SortStableFunc(t.Conditions, func(a, b ObservedCondition) int { return cmp.Compare(a.Type, b.Type) })
	slices.SortStableFunc(t.Traffic, func(a, b Traffic) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.SortStableFunc(t.Revisions, func(a, b ObservedRevision) int { return cmp.Compare(a.Name, b.Name) })
	return &t
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") // the cut may have gone through a letter
}

func canonical(s *Snapshot) []byte {
	raw, _ := json.Marshal(tidy(s)) // structs of texts and numbers
	return raw
}
