// Package localhealth is what a node thinks of itself before it speaks against others, as Lifeguard has it: [Timers] is a score by its own
// timers, [Scopes] says where most of what it probes has ceased to answer, which may be its own fault.
//
// Whoever misses its own timers, or sees more of the instances that were found cease to answer its probes (five at least,
// by a time-out or as unreachable) than do answer, doubts itself (0 to 7; the score): timeouts and TTLs grow by
// that factor, and above 2 it neither reports silence nor failures nor confirmations. Doubt of the second kind holds where
// it arose: in the zone of a service by its instances, in a namespace by its zones, at least two, and everywhere by
// namespaces, at least two, with one vote each; where most of a zone or a namespace do answer, nothing is doubted for what
// is dark elsewhere. It is for 30 s; what lasts longer protects each zone there that has a loss, until as many answer as do
// not. Then failures without an answer are counted anew, those that were answered are not. What speaks for an instance, or
// for a zone that is protected, is told in any doubt.
package localhealth

import (
	"strings"
	"time"
)

const (
	// Max is the worst score.
	Max = 7
	// Untrusted is the score from which a node keeps what it sees to itself.
	Untrusted = 3

	late       = 250 * time.Millisecond // a timer that is later counts
	standstill = time.Second            // one that is later was a standstill: nothing was heard meanwhile
	recovery   = time.Second            // without a late one, the score falls by one
)

// Timers is the score of a node by how late its own timers are: 0 is well, [Max] the worst.
type Timers struct {
	Score int
	Every time.Duration // between two ticks
	last  time.Duration
	calm  time.Duration
}

// Start is the tick from which the first one is counted.
func (t *Timers) Start(now time.Duration) { t.last = now }

// Overdue reports whether a tick is so late that it counts: after a standstill the ticker is not always the first to tell of it.
func (t *Timers) Overdue(now time.Duration) bool { return now-t.last > t.Every+late }

// Tick measures how late this one is, and reports whether the process stood still.
func (t *Timers) Tick(now time.Duration) (lag time.Duration, stood bool) {
	lag = now - t.last - t.Every
	t.last = now
	switch {
	case lag > standstill:
		t.Score, t.calm = min(t.Score+Untrusted, Max), now
		return lag, true
	case lag > late:
		t.Score, t.calm = min(t.Score+1, Max), now
	case t.Score > 0 && now-t.calm > recovery:
		t.Score, t.calm = t.Score-1, now
	}
	return lag, false
}

// Votes are what gives answers in a scope and what does not: instances of a zone, zones of a namespace, namespaces of the
// node. Each has one vote in the scope above, however many are in it: none of them alone turns off what is found out
// about the others, neither by bad luck nor on purpose. Where most do give answers, nothing is doubted for what is dark
// elsewhere, however much that is: the nearest evidence counts.
type Votes struct{ Failed, Answered, Instances int }

func (v *Votes) dark() bool { return v.Failed > v.Answered }

func (v *Votes) add(below *Votes) {
	if v.Instances += below.Instances; below.dark() {
		v.Failed++
	} else {
		v.Answered++
	}
}

// Scopes are those in which more of what this node probes has ceased to answer than does answer, and since when: zones
// (<namespace>.<service>.<zone>), namespaces, and everything, which is "".
type Scopes struct {
	Count int // so many instances at least make a scope dark
	dark  map[string]time.Duration
	light map[string]bool // where most did answer when that was weighed last
}

// of are the scopes whose darkness says something about a zone: itself, its namespace, and the whole node.
func of(zone string) [3]string {
	namespace, _, _ := strings.Cut(zone, ".")
	return [3]string{zone, namespace, ""}
}

// Any reports whether any scope is dark.
func (s *Scopes) Any() bool { return len(s.dark) > 0 }

// Weigh finds out which scopes are dark, by the votes of the zones, and returns those that have become so. That only some of a scope
// give no answer is no evidence for the others.
func (s *Scopes) Weigh(zones map[string]*Votes, now time.Duration) (began []string) {
	all, node := map[string]*Votes{}, &Votes{}
	for zone, v := range zones {
		namespace := of(zone)[1]
		if all[namespace] == nil {
			all[namespace] = &Votes{}
		}
		all[namespace].add(v)
	}
	for _, v := range all {
		node.add(v)
	}
	all[""] = node
	for zone, v := range zones {
		all[zone] = v
	}
	s.light = map[string]bool{}
	dark := map[string]time.Duration{}
	for scope, v := range all {
		s.light[scope] = v.Answered > v.Failed
		since, was := s.dark[scope]
		alone := v.Failed < 2 && !strings.Contains(scope, ".") // the one vote for it is doubted in its own scope
		if !v.dark() || alone || v.Instances < s.Count && !was {
			continue
		}
		if !was {
			since, began = now, append(began, scope)
		}
		dark[scope] = since
	}
	s.dark = dark
	return began
}

// Since is since when a zone is in the dark: by its narrowest scope in which most give answers, and those within. 0 is that it is not.
func (s *Scopes) Since(zone string) time.Duration {
	since := time.Duration(0)
	for _, scope := range of(zone) {
		since = max(since, s.dark[scope])
		if s.light[scope] {
			break
		}
	}
	return since
}

// Latest is since when the scope is dark that has become so last; 0 when none is.
func (s *Scopes) Latest() time.Duration {
	latest := time.Duration(0)
	for _, since := range s.dark {
		latest = max(latest, since)
	}
	return latest
}
