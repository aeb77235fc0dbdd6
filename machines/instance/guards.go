package instance

import (
	"slices"

	"github.com/bcc94042/instar/machines"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

// fenced is why an input of another generation is refused. Every guard that looks at evidence says so, because each
// state takes all evidence of its own generation: nothing else can be the reason of a refusal.
const fenced = "it speaks of another generation than the one registered now: an old process has no say in what follows it"

// generation is the one that a body speaks of; 0 is any.
func generation(s *step) uint64 {
	switch b := s.Body.(type) {
	case *Evidence:
		return b.Generation
	case *ShutdownBody:
		return b.Generation
	case *ForceBody:
		return b.Generation
	case *FlapReport:
		return b.Generation
	case *DrainReport:
		return b.Generation
	case *RefusalReport:
		return b.Generation
	case *Admission:
		return b.Generation
	}
	return 0
}

func spokenOf(s *step) bool {
	g := generation(s)
	return g == 0 || g == s.Entity().Generation
}

var current = &guard{Name: "of this generation", Doc: fenced, Holds: spokenOf}

// fence is a guard that is shut for other generations.
func fence(name string, holds func(*step) bool) *guard {
	return &guard{Name: name, Doc: fenced, Holds: func(s *step) bool { return spokenOf(s) && holds(s) }}
}

func when(name string, holds func(*step) bool) *guard { return &guard{Name: name, Holds: holds} }

// Registration.
var (
	nobodyLooked = when("nobody looked yet", func(s *step) bool { return s.Data.Waits < OwnerWaits })
	unchecked    = fence("unchecked", func(s *step) bool { return s.Data.Check.Kind() == CheckNone })
	heard        = fence("passed meanwhile", func(s *step) bool {
		v := evidence(s)
		return v != nil && (v.Generation == 0 || v.Generation == s.Entity().Generation) &&
			s.Data.Check.Kind() != CheckNone && v.times() >= s.Data.Rise()
	})
	heardWarm     = fence("passed meanwhile, warms up", func(s *step) bool { return heard.Holds(s) && s.Data.Warmup() > 0 })
	uncheckedWarm = fence("unchecked, warms up", func(s *step) bool { return s.Data.Check.Kind() == CheckNone && s.Data.Warmup() > 0 })
)

// Passes. Where several observers look, enough of them must see an unhealthy instance rise: so many that those who see
// it fall cannot be enough any more.
var (
	rose  = func(s *step) bool { return machines.Body[Evidence](s).times() >= s.Data.Rise() }
	risen = fence("risen", func(s *step) bool {
		return rose(s) && (s.State() == Unknown || len(with(s.Data.Passing, observer(s))) >= looking(s).RiseOf())
	})
	oneRose   = fence("risen for one of several observers", func(s *step) bool { return rose(s) && !slices.Contains(s.Data.Passing, observer(s)) })
	relented  = fence("risen for one that saw it fall", func(s *step) bool { return rose(s) && slices.Contains(s.Data.Failing, observer(s)) })
	risenWarm = fence("risen, warms up", func(s *step) bool { return risen.Holds(s) && s.Data.Warmup() > 0 })
	stillWarm = fence("still warming up", func(s *step) bool {
		return !s.Data.WarmSince.IsZero() && s.Now().Before(s.Data.WarmSince.Add(s.Data.Warmup()))
	})
	newWeight = fence("another weight", func(s *step) bool {
		w := machines.Body[Evidence](s).Weight
		return w != nil && (s.Data.Reported == nil || *s.Data.Reported != *w)
	})
)

// Failures. Where several observers look, one that sees it fall makes it suspect, and the others decide.
var (
	fallen  = func(s *step) bool { return machines.Body[Evidence](s).times() >= s.Data.Fall() }
	alone   = func(s *step) bool { return looking(s).AgreeOf() <= 1 }
	tooMany = fence("too many failures", func(s *step) bool {
		d := s.Data
		most := d.Policy.MaxFailures
		if most == 0 || d.Protected || d.failures(machines.Body[Evidence](s)) < most {
			return false
		}
		return s.State() == Unhealthy || fallen(s) && alone(s)
	})
	fallenAmongOthers = fence("fallen, others or protection decide", func(s *step) bool {
		return fallen(s) && !overruled(s) && (s.Data.Protected || !outvoted(s))
	})
	condemned = fence("fallen", func(s *step) bool {
		switch {
		case !fallen(s) || s.Data.Protected:
			return false
		case s.State() == Suspect:
			return s.Data.Suspicion.Of == 0 || convinced(s)
		}
		return s.State() == Unknown || outvoted(s) && !overruled(s)
	})
	alsoFallen     = fence("fallen for another observer", func(s *step) bool { return fallen(s) && newcomer(s) })
	anotherFailure = fence("another failure", func(s *step) bool {
		return s.Data.failures(machines.Body[Evidence](s)) > s.Data.Retries || slices.Contains(s.Data.Passing, observer(s))
	})
	unsteadyAgain = fence("unsteady again", func(s *step) bool {
		return s.Data.Flap.Calm && machines.Body[FlapReport](s).Score >= s.Data.FlapHigh()
	})
	steady = fence("steady", func(s *step) bool {
		return !s.Data.Flap.Calm && machines.Body[FlapReport](s).Score < s.Data.FlapLow()
	})
	steadyAtLast = fence("steady at last, or nobody else is found", func(s *step) bool {
		return machines.Body[FlapReport](s).Last || steady.Holds(s) && over(s)
	})
	calmed   = when("steady, or nobody looks", func(s *step) bool { return s.Data.Flap.Calm || s.Data.Check.Kind() == CheckNone })
	unsteady = fence("unsteady", func(s *step) bool {
		d := s.Data
		return !d.Policy.NoFlap && !d.Protected && machines.Body[FlapReport](s).Score >= d.FlapHigh()
	})
)

// looking is the check with as many observers as there are: a cluster may have fewer nodes than it asks for, and what
// nobody looks at cannot be agreed on.
func looking(s *step) *Check {
	c := s.Data.Check
	if v, ok := s.Body.(*Evidence); ok && v.Observers > 0 {
		c.Observers = min(c.ObserversOf(), v.Observers)
	}
	return &c
}

// observer is the one who says so.
func observer(s *step) string { return machines.Body[Evidence](s).by(s) }

// outvoted: with this one, enough observers see it fall.
func outvoted(s *step) bool {
	return alone(s) || len(with(s.Data.Failing, observer(s))) >= looking(s).AgreeOf()
}

// overruled: it said so before, and another observer saw it pass.
func overruled(s *step) bool { return !alone(s) && slices.Contains(s.Data.Failing, observer(s)) }

// newcomer: the evidence comes from an observer that has not said so yet.
func newcomer(s *step) bool {
	by, n := observer(s), s.Data.Suspicion
	return by != n.By && !slices.Contains(n.Confirmed, by)
}

// convinced: with this one, enough observers agree.
func convinced(s *step) bool {
	n := s.Data.Suspicion
	return newcomer(s) && n.Of > 0 && len(n.Confirmed)+1 >= n.Of
}

// Silence, and protection from it.
var (
	mayExpire   = fence("not protected", func(s *step) bool { return !s.Data.Protected })
	another     = fence("another observer", newcomer)
	decides     = fence("enough observers", func(s *step) bool { return convinced(s) && !s.Data.Protected })
	overdue     = fence("overdue", func(s *step) bool { return !s.Data.Overdue.IsZero() && !s.Data.Protected })
	protected   = when("protected", func(s *step) bool { return s.Data.Protected })
	unprotected = when("not protected", func(s *step) bool { return !s.Data.Protected })
)

// Ending, and flags.
var (
	sooner = fence("sooner", func(s *step) bool {
		return machines.Body[ShutdownBody](s).Drain != "" && drainUntil(s).Before(s.Data.Drain.Until)
	})
	sameDrain = &guard{Name: "of this drain", Doc: "it speaks of another generation, or of a drain that was cancelled", Holds: func(s *step) bool {
		since := machines.Body[DrainReport](s).Since
		return spokenOf(s) && (since.IsZero() || since.Equal(s.Data.Drain.Since))
	}}
	notAdmitted = when("was not admitted yet", func(s *step) bool { return s.Data.Drain.From == Pending })
	enables     = when("another maintenance", func(s *step) bool {
		b, m := machines.Body[MaintenanceBody](s), s.Data.Maintenance
		return b.Enabled && (m == nil || m.Reason != b.reason(s) || !m.Until.Equal(b.until(s.Now())))
	})
	disables        = when("ends the maintenance", func(s *step) bool { return !machines.Body[MaintenanceBody](s).Enabled && s.Data.Maintenance != nil })
	maintenanceOver = when("over", func(s *step) bool {
		m := s.Data.Maintenance
		return m != nil && !m.Until.IsZero() && (s.Fired() || !s.Now().Before(m.Until))
	})
	repins = when("another weight", func(s *step) bool {
		w := machines.Body[PinBody](s).Weight
		return (w == nil) != (s.Data.Pinned == nil) || w != nil && *w != *s.Data.Pinned
	})
)
