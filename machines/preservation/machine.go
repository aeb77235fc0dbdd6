package preservation

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Events.
const (
	EventWatched    = "preservation.watched"
	EventProtected  = "preservation.protected"
	EventLosses     = "preservation.losses.updated"
	EventRecovering = "preservation.recovering"
	EventNormal     = "preservation.ended"
	EventHeld       = "preservation.held"
	EventReleased   = "preservation.released"
)

// Machine is the self-preservation of a service in a zone.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "preservation", Plural: "preservations", Parent: "service", Doc: "Self-preservation of one service in one zone: when too many instances are lost at once, none of them is removed.",
	States: states, Inputs: inputs, Events: events, Edges: table,
	Columns: []machines.Column{
		{Title: "EXPIRING", Path: "data.losses.expiring"},
		{Title: "TOTAL", Path: "data.losses.total"},
		{Title: "TIMES", Path: "data.times"},
		{Title: "ENDED", Path: "data.ended"},
	},
})

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

func only(state string) []string     { return []string{state} }
func emit(events ...string) []string { return events }

var every = []string{Normal, Protected, Recovering}

var table = []machines.Edge[Data]{
	{From: []string{machines.None, Normal, Recovering}, On: ReportLosses, If: tooMany, To: Protected, Do: protect, Emit: emit(EventProtected)},
	{From: only(machines.None), On: ReportLosses, To: Normal, Do: update, Emit: emit(EventWatched)},
	{From: only(Protected), On: ReportLosses, If: otherwise, To: machines.Same, Do: worsen, Emit: emit(EventLosses)},
	{From: every, On: ReportLosses, To: machines.Same, Noop: true},
	{From: only(Protected), On: ReportRenewals, If: recovers, To: Recovering, Do: recovering, Emit: emit(EventRecovering)},
	{From: every, On: ReportRenewals, To: machines.Same, Noop: true},
	{From: only(Protected), On: TimeoutDecay, To: Normal, Do: end, Emit: emit(EventNormal)},
	{From: only(Recovering), On: TimeoutSettled, To: Normal, Do: end, Emit: emit(EventNormal)},

	{From: []string{machines.None, Normal, Recovering}, On: CommandHold, To: Protected, Do: holdNew, Emit: emit(EventProtected, EventHeld)},
	{From: only(Protected), On: CommandHold, If: free, To: machines.Same, Rearm: true, Do: hold, Emit: emit(EventHeld)},
	{From: only(Protected), On: CommandHold, To: machines.Same, Noop: true},
	{From: []string{Protected, Recovering}, On: CommandRelease, To: Normal, Do: release, Emit: emit(EventReleased, EventNormal)},
}

var states = []machines.State[Data]{
	{Name: Normal, Doc: "Instances that are silent for too long expire."},
	{Name: Protected, Doc: "Nothing expires: the last known set is served.", Failed: true, Timeout: &machines.Timeout[Data]{Input: TimeoutDecay, Until: decay}},
	{Name: Recovering, Doc: "Enough instances are healthy again; nothing expires until that has lasted.", Timeout: &machines.Timeout[Data]{Input: TimeoutSettled, After: func(*Data) time.Duration { return SettleAfter }}},
}

var inputs = []machines.Command{
	{Name: CommandHold, Doc: "Protect until released.", Birth: true},
	{Name: CommandRelease, Doc: "End the protection and disable it for a while: lost instances are dead.", Body: ReleaseBody{}, Destructive: true},
	{Name: ReportLosses, Doc: "How many instances are lost.", Body: Losses{}, Birth: true, Report: true},
	{Name: ReportRenewals, Doc: "Enough instances are healthy again.", Body: Losses{}, Report: true},
	{Name: TimeoutSettled, Doc: "The recovery has lasted long enough.", Report: true},
	{Name: TimeoutDecay, Doc: "The protection has lasted too long.", Report: true},
}

var events = []machines.EventType{
	{Name: EventWatched, Class: machines.ClassProgress, Doc: "Losses were reported for the first time, below the threshold."},
	{Name: EventProtected, Class: machines.ClassState, Doc: "Nothing expires from now on; with the evidence."},
	{Name: EventLosses, Class: machines.ClassProgress, Doc: "The number of lost instances changed during the protection."},
	{Name: EventRecovering, Class: machines.ClassState, Doc: "Enough instances are healthy again."},
	{Name: EventNormal, Class: machines.ClassState, Doc: "The protection ended, and why: settled, decay or release."},
	{Name: EventHeld, Class: machines.ClassState, Doc: "An operator holds the protection."},
	{Name: EventReleased, Class: machines.ClassState, Doc: "An operator ended the protection, and until when it is disabled."},
}

var (
	tooMany = &guard{Name: "too many", Holds: func(s *step) bool {
		return machines.Body[Losses](s).Exceed() && !s.Now().Before(s.Data.ReleasedUntil)
	}}
	otherwise = &guard{Name: "other numbers", Holds: func(s *step) bool {
		b := machines.Body[Losses](s)
		return b.Total != s.Data.Losses.Total || b.Expiring != s.Data.Losses.Expiring
	}}
	free     = &guard{Name: "not held", Holds: func(s *step) bool { return s.Data.Hold == nil }}
	recovers = &guard{Name: "not held, not too many", Holds: func(s *step) bool { return free.Holds(s) && !machines.Body[Losses](s).Exceed() }}
)

// decay is when protection ends by itself: never while an operator holds it.
func decay(s *step) time.Time {
	if s.Data.Hold != nil {
		return time.Time{}
	}
	return s.Now().Add(DecayAfter)
}

func update(s *step) {
	s.Data.Losses = *machines.Body[Losses](s)
	s.Detail(EventWatched, s.Data.Losses)
}

func protect(s *step) {
	b := *machines.Body[Losses](s)
	s.Data.Losses, s.Data.Worst, s.Data.ReleasedUntil = b, b, time.Time{}
	protected(s, b)
}

func protected(s *step, why any) {
	s.Data.ProtectedAt, s.Data.Ended, s.Data.Times = s.Now(), "", s.Data.Times+1
	s.Detail(EventProtected, why)
}

func worsen(s *step) {
	b := *machines.Body[Losses](s)
	s.Data.Losses = b
	if b.Expiring > s.Data.Worst.Expiring {
		s.Data.Worst = b
	}
	s.Detail(EventLosses, b)
}

func recovering(s *step) {
	s.Data.Losses = *machines.Body[Losses](s)
	s.Detail(EventRecovering, s.Data.Losses)
}

func end(s *step) {
	if b, ok := s.Body.(*Losses); ok {
		s.Data.Losses = *b
	}
	s.Data.Hold, s.Data.Ended = nil, s.In.Command
	if s.In.Command == TimeoutDecay { // else those that are silent still would protect it again at once
		s.Data.ReleasedUntil = s.Now().Add(ReleaseFor)
	}
	told := map[string]any{"reason": s.Data.Ended, "losses": s.Data.Losses, "worst": s.Data.Worst}
	if !s.Data.ProtectedAt.IsZero() {
		told["protected"] = s.Now().Sub(s.Data.ProtectedAt).String()
	}
	s.Detail(EventNormal, told)
}

func hold(s *step) {
	s.Data.Hold = &Hold{By: s.In.Actor, Reason: s.In.Reason, Since: s.Now()}
	s.Detail(EventHeld, s.Data.Hold)
}

func holdNew(s *step) {
	s.Data.Worst, s.Data.ReleasedUntil = Losses{}, time.Time{}
	hold(s)
	protected(s, map[string]any{"hold": s.Data.Hold})
}

func release(s *step) {
	b := machines.Body[ReleaseBody](s)
	s.Data.ReleasedUntil = s.Now().Add(b.wait())
	s.Detail(EventReleased, map[string]any{"until": s.Data.ReleasedUntil, "losses": s.Data.Losses})
	end(s)
}
