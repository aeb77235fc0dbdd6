package instance

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// How long an instance that changes too often is held down: longer each time, as Envoy ejects.
const (
	FlapHold   = 30 * time.Second // times the number of holds in a row
	FlapCap    = 5 * time.Minute
	FlapForget = time.Hour // without a hold, the count begins anew
)

func holdDown(s *step) {
	f := &Flap{Score: machines.Body[FlapReport](s).Score, Holds: 1}
	if before := s.Data.Flap; before != nil && s.Now().Sub(before.Until) < FlapForget {
		f.Holds = before.Holds + 1
	}
	f.Until = s.Now().Add(min(FlapHold*time.Duration(f.Holds), FlapCap))
	s.Data.Flap, s.Data.Suspicion, s.Data.WarmSince, s.Data.Overdue = f, nil, time.Time{}, time.Time{}
	votes(s, nil, nil)
	s.Detail(EventFlapping, f)
}

// settle and unsettle keep what the results of one that is held down are like.
func settle(s *step)   { score(s, true) }
func unsettle(s *step) { score(s, false) }

func score(s *step, calm bool) {
	f := *s.Data.Flap
	f.Score, f.Calm = machines.Body[FlapReport](s).Score, calm
	s.Data.Flap = &f
	s.Detail(EventFlapScored, map[string]any{"score": f.Score, "calm": calm, "until": f.Until})
}

// holdOn: hysteresis, as Nagios has it. What began above the high mark ends below the low one, when that is reported.
func holdOn(s *step) {
	s.Detail(EventFlapProlonged, map[string]any{"score": s.Data.Flap.Score, "flapLow": s.Data.FlapLow()})
}

// flapUntil: once the time is over, only its results let it go.
func flapUntil(s *step) time.Time {
	if over(s) {
		return time.Time{}
	}
	return s.Data.Flap.Until
}

func over(s *step) bool { return !s.Now().Before(s.Data.Flap.Until) }

func calm(s *step) {
	s.Data.Retries = 0
	told := map[string]any{"holds": s.Data.Flap.Holds}
	if r, ok := s.Body.(*FlapReport); ok && r.Last {
		told["last"] = true
	}
	s.Detail(EventFlapCleared, told)
}

func drainUntil(s *step) time.Time {
	wait := s.Data.DrainTime()
	if d := machines.Body[ShutdownBody](s).Drain; d != "" {
		wait = duration(d, wait)
	}
	return s.Now().Add(wait)
}

func drain(s *step) {
	s.Data.Drain = &Drain{Since: s.Now(), Until: drainUntil(s), Reason: s.In.Reason, From: s.State()}
	s.Data.Suspicion, s.Data.WarmSince, s.Data.AdmitUntil, s.Data.Overdue = nil, time.Time{}, time.Time{}, time.Time{}
	votes(s, nil, nil)
	s.Detail(EventDraining, s.Data.Drain)
}

func hurry(s *step) {
	d := *s.Data.Drain
	d.Until = drainUntil(s)
	s.Data.Drain = &d
	s.Detail(EventDrainShortened, &d)
}

// cancelDrain lets it be checked anew. One that was asked to end before it was admitted is admitted first.
func cancelDrain(s *step) {
	d := s.Data.Drain
	s.Data.Drain, s.Data.Retries = nil, 0
	s.Data.AdmitUntil = time.Time{}
	if d.From == Pending {
		s.Data.AdmitUntil = s.Now().Add(AdmitWithin)
	}
	s.Fail(nil)
	s.Detail(EventDrainCancelled, map[string]any{"drained": s.Now().Sub(d.Since).String(), "from": d.From})
}

func drained(s *step) {
	b := machines.Body[DrainReport](s)
	told := early(s, b.Reason)
	told["watchers"] = b.Watchers
	s.Detail(EventDrainCompleted, told)
	end(s, "drained")
}

func drainOver(s *step) {
	s.Detail(EventDrainExpired, map[string]any{"drain": s.Data.Drain})
	end(s, TimeoutDrain)
}

// early keeps why a drain ended before its deadline.
func early(s *step, why string) map[string]any {
	d := *s.Data.Drain
	d.Early = why
	s.Data.Drain = &d
	return map[string]any{"reason": why, "after": s.Now().Sub(d.Since).String()}
}

func force(s *step) { end(s, CommandForce) }
