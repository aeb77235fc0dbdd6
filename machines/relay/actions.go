package relay

import (
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Commands.

func register(s *step) {
	b := machines.Body[RegisterBody](s)
	s.NextGeneration()
	s.Label(b.Labels)
	s.Data.Policy = b.Policy
	s.Detail(EventRegistered, map[string]any{"source": s.Entity().ID, "policy": b.Policy})
	s.Condition(Publishing, machines.Unknown, "Starting", "")
}

func configure(s *step) {
	b := machines.Body[ConfigureBody](s)
	s.NextGeneration()
	s.Detail(EventConfigured, map[string]any{"policy": b.Policy, "before": s.Data.Policy})
	s.Data.Policy = b.Policy
}

func pause(s *step) {
	s.Detail(EventPaused, left(s))
	s.Fail(nil)
	s.Forget(Behind)
	s.Forget(Emptied)
	s.Condition(Publishing, machines.Unknown, "Pausing", "")
}

// left is what waits in the database, as far as is known.
func left(s *step) map[string]any {
	if s.Data.Seen == nil {
		return nil
	}
	return map[string]any{"lag": s.Data.Seen.Lag, "seenAt": s.Data.SeenAt}
}

func resume(s *step) {
	s.Detail(EventResumed, left(s))
	s.Fail(nil)
	s.Forget(Emptied)
	s.Condition(Publishing, machines.Unknown, "Starting", "")
}

func drain(s *step) {
	s.Detail(EventDraining, left(s))
	s.Forget(Behind)
	s.Fail(nil)
	s.Condition(Emptied, machines.Unknown, "Draining", "")
}

func audit(s *step) {
	s.Detail(EventAudit, map[string]any{"command": s.In.Command, "state": s.State()})
}

func markDeleting(s *step) {
	s.Detail(EventDeletionRequested, left(s))
	s.Fail(nil)
	s.Condition(Publishing, machines.False, "Deleting", "")
}

func purge(s *step) {
	audit(s)
	ended(s, "Purged")
}

func task(s *step) any { return Task{Source: s.Entity().ID} }

// Start.

func started(s *step) {
	o := machines.Body[Observation](s)
	take(s, o)
	s.Fail(nil)
	s.Data.StartedAt = s.Now()
	s.Detail(EventStarted, map[string]any{"mode": o.Mode, "shards": len(o.Shards), "lag": o.Lag, "node": o.Node})
	s.Condition(Publishing, machines.True, "Started", "")
}

func startFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	fail(s, f.Code, f.Message)
}

func startLate(s *step) {
	msg := fmt.Sprintf("not started within %s", s.Data.Policy.startDeadline())
	if last := s.Entity().LastError; last != nil {
		msg += ": " + last.Error()
	}
	fail(s, FailureStart, msg)
}

func fail(s *step, code, message string) {
	f := &machines.Failure{Code: code, Message: clip(message), At: s.Now()}
	s.Fail(f)
	s.Condition(Publishing, machines.False, code, f.Message)
	s.Detail(EventFailed, map[string]any{"error": f})
}

// Observations.

func absorb(s *step) { take(s, machines.Body[Observation](s)) }

func giveUp(s *step) {
	o := machines.Body[Observation](s)
	take(s, o)
	s.Forget(Behind)
	fail(s, FailureFatal, o.Problem)
}

func stall(s *step) {
	o := machines.Body[Observation](s)
	take(s, o)
	why := o.Problem
	if why == "" {
		why = fmt.Sprintf("%d rows wait and none has moved for %.0f s", o.Lag, o.Still)
		if o.FenceWait > 0 {
			why += fmt.Sprintf("; a transaction that may still write events is open for %.0f s", o.FenceWait)
		}
	}
	s.Condition(Publishing, machines.False, "Stalled", clip(why))
	s.Fail(&machines.Failure{Code: "Stalled", Message: clip(why), At: s.Now()})
	s.Detail(EventStalled, map[string]any{"problem": clip(why), "lag": o.Lag, "stillSeconds": o.Still, "fenceWaitSeconds": o.FenceWait})
}

func lag(s *step) {
	o := machines.Body[Observation](s)
	take(s, o)
	s.Fail(nil)
	s.Condition(Publishing, machines.True, "Publishing", "")
	s.Condition(Behind, machines.True, "Behind", fmt.Sprintf("%d rows behind, the oldest is %.0f s old", o.Lag, o.Oldest))
	s.Detail(EventLagging, map[string]any{"lag": o.Lag, "oldestSeconds": o.Oldest, "rate": o.Rate})
	s.Detail(EventRecovered, map[string]any{"from": s.State()})
}

func heal(s *step) {
	take(s, machines.Body[Observation](s))
	s.Fail(nil)
	s.Forget(Behind)
	s.Condition(Publishing, machines.True, "Publishing", "")
	s.Detail(EventRecovered, map[string]any{"from": s.State()})
}

func blind(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Condition(Observed, machines.False, f.Code, clip(f.Message))
	s.Detail(EventObservationFailed, f)
}

// What ends.

func stopped(s *step) { s.Condition(Publishing, machines.False, "Paused", "") }

func stopFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Fail(&machines.Failure{Code: f.Code, Message: clip(f.Message), At: s.Now()})
	s.Detail(EventStopFailed, f)
	s.Condition(Publishing, machines.Unknown, f.Code, clip(f.Message))
}

func drained(s *step) {
	o := machines.Body[Observation](s)
	take(s, o)
	s.Fail(nil)
	s.Condition(Emptied, machines.True, "Drained", "")
	s.Condition(Publishing, machines.False, "Paused", "")
	s.Detail(EventDrained, map[string]any{"lag": o.Lag, "parkedAggregates": o.Waiting})
}

func drainFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	drainEnds(s, f.Code, f.Message)
}

func drainLate(s *step) {
	drainEnds(s, FailureDrain, fmt.Sprintf("not empty within %s", s.Data.Policy.drainDeadline()))
}

func drainEnds(s *step, code, message string) {
	f := &machines.Failure{Code: code, Message: clip(message), At: s.Now()}
	s.Fail(f)
	s.Condition(Emptied, machines.False, code, f.Message)
	s.Condition(Publishing, machines.Unknown, "Pausing", "")
	s.Detail(EventDrainExpired, map[string]any{"error": f, "left": left(s)})
}

func deletionFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	deletionStalls(s, f.Code, f.Message)
}

func deletionLate(s *step) {
	deletionStalls(s, FailureDelete, fmt.Sprintf("still there %s after the deletion began; it is tried again, purge forgets it", s.Now().Sub(s.Entity().Since).Round(time.Second)))
}

func deletionStalls(s *step, code, message string) {
	f := &machines.Failure{Code: code, Message: clip(message), At: s.Now()}
	s.Fail(f)
	s.Condition(Stuck, machines.True, code, f.Message)
	s.Detail(EventDeletionStalled, f)
}

func removed(s *step) { ended(s, "Deleted") }

// ended leaves one condition: those of a relay at work say nothing of one that has ended.
func ended(s *step, reason string) {
	for _, c := range []string{Behind, Troubled, HasParked, Emptied, Observed, Stuck} {
		s.Forget(c)
	}
	s.Fail(nil)
	s.Condition(Publishing, machines.False, reason, "")
	s.Detail(EventDeleted, map[string]any{"reason": reason})
	s.Detail(EventPurged, s.Data.Seen)
}
