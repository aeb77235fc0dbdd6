package service

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Commands.

func create(s *step) {
	b := machines.Body[CreateBody](s)
	if b.Policy != nil {
		s.Data.Policy = *b.Policy
	}
	s.Label(b.Labels)
	s.Data.UID = lifeID(s)
	s.Detail(EventCreationRequested, map[string]any{"uid": s.Data.UID, "image": b.Spec.Image, "labels": b.Labels, "policy": s.Data.Policy})
	want(s, b.Spec)
	s.Condition(Available, machines.Unknown, "Creating", "")
}

// lifeID names this life of the id: the same for every repetition of the step, and another for every life.
func lifeID(s *step) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", s.Entity().Key(), s.In.Seq, s.Now().UnixNano()))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // RFC 9562, version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func update(s *step) {
	b := machines.Body[UpdateBody](s)
	retune(s)
	want(s, b.Spec)
	s.Condition(Available, machines.Unknown, "Updating", s.Data.keeps())
}

// retune replaces what does not need an apply. A policy that is new judges the drift that is known anew.
func retune(s *step) {
	b := machines.Body[UpdateBody](s)
	detail := map[string]any{"desiredSpecHash": b.Spec.Hash()}
	if b.Policy != nil {
		s.Data.Policy, s.Data.Drift = *b.Policy, ""
		detail["policy"] = b.Policy
	}
	if b.Labels != nil {
		s.Label(b.Labels)
		detail["labels"] = b.Labels
	}
	s.Detail(EventUpdateRequested, detail)
}

func rollback(s *step) {
	to := s.Data.target()
	s.Detail(EventUpdateRequested, map[string]any{"desiredSpecHash": to.Hash, "rollbackTo": to.Generation})
	want(s, *to.Spec)
	s.Condition(Available, machines.Unknown, "RollingBack", s.Data.keeps())
}

// want makes the specification the one that must be observed; nothing that was counted or found before holds for it.
func want(s *step, spec Spec) {
	changes := diff(s.Data.Spec, &spec)
	s.Data.keepConverged()
	s.NextGeneration()
	s.Data.Spec, s.Data.SpecHash, s.Data.Failures, s.Data.Drift = &spec, spec.Hash(), 0, ""
	s.Fail(nil)
	s.Forget(Degraded)
	s.Forget(Drifted)
	accepted := map[string]any{
		"desiredSpecHash": s.Data.SpecHash, "forceReplace": spec.ForceReplace, "generation": s.Entity().Generation, "changes": changes,
	}
	if s.In.Wait > 0 {
		accepted["wait"] = s.In.Wait.String()
	}
	s.Detail(EventSpecAccepted, accepted)
	started(s)
}

func started(s *step) {
	s.Detail(EventApplyStarted, map[string]any{"desiredSpecHash": s.Data.SpecHash, "generation": s.Entity().Generation})
}

func markDeleting(s *step) {
	s.Detail(EventDeletionMarked, DeleteTask{UID: s.Data.UID})
	s.Fail(nil)
	s.Condition(Available, machines.False, "Deleting", "")
}

func audit(s *step) {
	s.Detail(EventAudit, map[string]any{"command": s.In.Command, "state": s.State()})
}

func label(s *step) {
	b := machines.Body[LabelBody](s)
	s.Detail(EventLabels, map[string]any{"labels": b.Labels, "before": s.Entity().Labels})
	s.Label(b.Labels)
}

func purge(s *step) {
	audit(s)
	s.Detail(EventPurged, s.Data.Snapshot)
	ended(s, "Purged")
}

// Payloads.

func applyTask(s *step) any {
	return ApplyTask{UID: s.Data.UID, Generation: s.Entity().Generation, Hash: s.Data.SpecHash, Spec: s.Data.Spec}
}

func deleteTask(s *step) any { return DeleteTask{UID: s.Data.UID} }

func observeTask(s *step) any { return ObserveTask{UID: s.Data.UID, Hash: s.Data.SpecHash} }

// Reports of an apply, and its deadline.

func applied(s *step) {
	a := *machines.Body[Applied](s)
	a.At, a.Hash = s.Now(), s.Data.SpecHash
	took(s, a)
	s.Fail(nil)
	s.Forget(Replaced)
	s.Detail(EventSpecApplied, a)
}

// took keeps what the gateway took; the first time in a life it has an object of ours from now on.
func took(s *step, a Applied) {
	first := s.Data.Applied == nil
	s.Data.Applied = &a
	if first {
		s.Emit(EventPersisted, map[string]any{"uid": a.UID, "life": s.Data.UID})
		s.Emit(EventNamespaceChecked, map[string]any{"namespace": s.Entity().Namespace})
	}
}

func applyFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Detail(EventCreationFailed, f)
	fail(s, f.Code, f.Message)
}

func late(s *step) {
	msg := fmt.Sprintf("not ready within %s", s.Data.Policy.progressDeadline())
	if last := s.Entity().LastError; last != nil {
		msg += ": " + last.Error()
	} else if seen := s.Data.Snapshot; seen != nil {
		msg += ": " + words(seen.Reason, seen.Message, "Ready is "+string(cmp.Or(seen.Ready, machines.Unknown)))
	}
	fail(s, FailureDeadline, msg)
}

// fail keeps why a specification was given up, and says what serves all the same.
func fail(s *step, code, message string) {
	if k := s.Data.keeps(); k != "" {
		message += "; " + k
	}
	f := &machines.Failure{Code: code, Message: message, At: s.Now()}
	s.Fail(f)
	s.Condition(Available, machines.False, code, message)
	s.Detail(EventNotConverged, map[string]any{"desiredSpecHash": s.Data.SpecHash, "generation": s.Entity().Generation, "error": f})
	s.Detail(EventFailed, map[string]any{"error": f, "serving": s.Data.serving()})
}

// Deletion.

func deleteTaken(s *step) {
	s.Detail(EventDeletionStarted, DeleteTask{UID: s.Data.UID})
	s.Fail(nil)
}

func stall(s *step) {
	f := machines.Body[machines.Failure](s)
	stalled(s, &machines.Failure{Code: f.Code, Message: f.Message, At: s.Now()})
}

func overdue(s *step) {
	wait := s.Data.Policy.deleteDeadline()
	msg := fmt.Sprintf("still there %s after the deletion began; it is tried again every %s, purge forgets it", s.Now().Sub(s.Entity().Since).Round(time.Second), wait)
	stalled(s, &machines.Failure{Code: FailureDeleting, Message: msg, At: s.Now()})
}

func stalled(s *step, f *machines.Failure) {
	s.Fail(f)
	s.Condition(DeletionStalled, machines.True, f.Code, f.Message)
	s.Detail(EventDeletionStalled, f)
}

// vanished: the observer found nothing. The last snapshot says so.
func vanished(s *step) {
	s.Data.Snapshot, s.Data.ObservedAt = &Snapshot{Reason: ReasonNotFound}, s.Now()
	s.Detail(EventSnapshot, s.Data.Snapshot)
	ended(s, "Deleted")
}

// ended leaves one condition: those of a running service say nothing of one that has ended.
func ended(s *step, reason string) {
	for _, c := range []string{Degraded, Drifted, Replaced, Observed, DeletionStalled} {
		s.Forget(c)
	}
	s.Fail(nil)
	s.Data.Failures, s.Data.Drift = 0, ""
	s.Condition(Available, machines.False, reason, "")
	s.Detail(EventDeleted, map[string]any{"uid": s.Data.UID, "reason": reason})
}
