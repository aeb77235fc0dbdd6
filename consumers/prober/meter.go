package prober

import "time"

// Meter is told what happens. All methods must be quick and safe for concurrent use.
type Meter interface {
	// Probed tells of one probe; the outcome is "passed", or a class of [instance.Result].
	Probed(kind, outcome string, latency time.Duration)
	// Beats tells how many heartbeats were heard since the last time; the outcome is "taken", "unknown" (of an instance
	// that is not registered), "outdated" (of another generation) or "malformed".
	Beats(outcome string, n int)
	// Reported tells of a command that was sent and what became of it: an outcome of [machines.Answer], or "unanswered".
	Reported(input, outcome string)
	// Status is told every second.
	Status(Status)
}

// Status is how a prober is.
type Status struct {
	Tracked     int           // instances that it looks after, or observes for another node
	HealthScore int           // local health, 0 (well) to 7, where it is worst
	Lag         time.Duration // the most that it was late in the last second
	Asking      int           // commands on their way, and waiting to be sent
	Protected   int           // services and zones that are in self-preservation
	Watchers    int           // that confirm what they are told
}

type noMeter struct{}

func (noMeter) Probed(string, string, time.Duration) {}
func (noMeter) Beats(string, int)                    {}
func (noMeter) Reported(string, string)              {}
func (noMeter) Status(Status)                        {}

// counts are what is told once a second.
type counts struct {
	taken, unknown, outdated, malformed int
	lag                                 time.Duration
}

func (l *loop) flush() {
	for _, c := range []struct {
		outcome string
		n       *int
	}{{"taken", &l.taken}, {"unknown", &l.unknown}, {"outdated", &l.outdated}, {"malformed", &l.malformed}} {
		l.metrics.Beats(c.outcome, *c.n) // also none: a counter that is there can be seen to rise
		*c.n = 0
	}
	s := Status{Tracked: len(l.tracked), HealthScore: l.worst(l.now()), Lag: l.counts.lag, Asking: l.inFlight.running + len(l.inFlight.waiting)}
	for _, v := range l.services {
		s.Watchers += v.watchers.Len()
		for _, z := range v.zones {
			if z.protects() {
				s.Protected++
			}
		}
	}
	l.counts.lag = 0
	l.metrics.Status(s)
}
