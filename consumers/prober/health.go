package prober

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// When this node doubts itself.
const (
	late       = 250 * time.Millisecond // a timer that is later counts
	standstill = time.Second            // one that is later was a standstill: nothing was heard meanwhile
	recover1   = time.Second            // without a late one, doubt falls by one
	maxDoubt   = 7
	silentFrom = 3 // from here on it keeps what it sees to itself

	blindSpan  = 10 * time.Second // probes of this time are looked at together
	blindCount = 5                // so many that were found give no answer, and fewer do
	blindFor   = 30 * time.Second // then zones are protected where it would take any of them out
)

// health is what this node thinks of itself.
type health struct {
	lastTick time.Duration
	score    int // by late timers
	calm     time.Duration
	floor    time.Duration // nobody is silent since before then
	unheard  time.Duration // until then watchers may have spoken that were not heard
	epoch    uint64        // of results in a row
	deaf     uint64        // how often heartbeats were dropped: a silence of before is none

	failed  map[*tracked]time.Duration // instances that were found and give no answer, as they may by this node's fault
	weighed time.Duration
	dark    map[string]time.Duration // scopes in which most probes give no answer, and since when
}

// doubt is how much this node doubts what it sees of a zone, 0 to 7: by its own timers, and by the scopes of the zone.
func (l *loop) doubt(z *zone, now time.Duration) int {
	if l.blinded(z, now) {
		return maxDoubt
	}
	return l.score
}

// trusted reports whether this node may speak against the instances of a zone.
func (l *loop) trusted(z *zone, now time.Duration) bool {
	return l.doubt(z, now) < silentFrom && l.NC.IsConnected()
}

// wake comes before anything that may be decided: after a standstill the ticker is not always the first to tell of it.
func (l *loop) wake() {
	if l.now()-l.lastTick > tick+late {
		l.tick()
	}
}

// tick measures how late the loop is.
func (l *loop) tick() {
	now := l.now()
	lag := now - l.lastTick - tick
	l.lastTick = now
	l.counts.lag = max(l.counts.lag, lag)
	switch {
	case lag > standstill:
		l.score, l.calm = min(l.score+silentFrom, maxDoubt), now
		l.amnesty("this process stood still")
	case lag > late:
		l.score, l.calm = min(l.score+1, maxDoubt), now
	case l.score > 0 && now-l.calm > recover1:
		l.score, l.calm = l.score-1, now
	}
}

// amnesty gives everybody a whole TTL, and lets failures be counted anew.
func (l *loop) amnesty(why string) {
	l.floor = l.now()
	l.unheard = l.floor
	l.epoch++
	l.log.Info("every instance has a whole TTL from now", "reason", why, "instances", len(l.tracked))
}

// epochOf changes whenever failures of an instance that came before count no more. Of none it is that of all.
func (l *loop) epochOf(t *tracked) uint64 {
	if t == nil {
		return l.epoch
	}
	return l.epoch + t.pardons
}

// deafened: what was dropped on the way to this loop may have been anybody's. Of heartbeats nobody is silent then, and of
// confirmations no drain ends early; neither says anything about the other, nor about probes.
func (l *loop) deafened() {
	for _, s := range l.subs {
		n, err := s.Dropped()
		if err != nil { // the connection is closed
			return
		}
		lost := n - l.dropped[s]
		if lost <= 0 {
			continue
		}
		l.dropped[s] = n
		switch s.Subject {
		case l.Names.Heartbeats():
			l.floor = l.now()
			l.deaf++
			for _, s := range l.services {
				for t := range s.draining {
					t.idle = false // a call may have begun
				}
			}
			l.log.Warn("heartbeats came faster than they were read: every instance has a whole TTL from now", "dropped", lost)
		case l.Names.Acknowledgements():
			l.unheard = l.now()
			l.log.Warn("confirmations of watchers came faster than they were read: no drain ends early for a while", "dropped", lost)
		}
	}
}

// weighDoubt looks at the probes together. Whatever was answered, be it by a refusal, shows that the network is there, as
// far as that instance; what gives no answer any more is held against it, as long as it is waited for.
func (l *loop) weighDoubt(t *tracked, r *instance.Result, now time.Duration) {
	if !unanswered(r.Class) {
		t.answers = now
		delete(l.failed, t)
		return
	}
	t.answers = 0
	if !t.found() && t.state != instance.Suspect {
		delete(l.failed, t)
		return
	}
	if l.failed == nil {
		l.failed = map[*tracked]time.Duration{}
	}
	l.failed[t] = now
	if now-l.weighed > tick {
		l.weigh(now)
	}
}

// everywhere is the scope of all that this node looks after.
const everywhere = ""

// scopes are those whose darkness says something about a zone: itself, its namespace, and the whole node.
func (z *zone) scopes() [3]string {
	namespace, _, _ := strings.Cut(z.key, ".")
	return [3]string{z.key, namespace, everywhere}
}

// tally is what gives answers in a scope and what does not: instances of a zone, zones of a namespace, namespaces of the
// node. Each has one vote in the scope above, however many are in it: none of them alone turns off what is found out
// about the others, neither by bad luck nor on purpose. Where most do give answers, nothing is doubted for what is dark
// elsewhere, however much that is: the nearest evidence counts.
type tally struct{ failed, answered, instances int }

func (y *tally) dark() bool { return y.failed > y.answered }

func (y *tally) vote(below *tally) {
	if y.instances += below.instances; below.dark() {
		y.failed++
	} else {
		y.answered++
	}
}

// weigh finds out where more of what this node probes has ceased to answer than does answer. That only some of them do is
// no evidence for the others.
func (l *loop) weigh(now time.Duration) {
	l.weighed = now
	if len(l.failed) < blindCount && len(l.dark) == 0 {
		return
	}
	tallies := l.tallies(now)
	var began []string
	light := map[string]bool{}
	for scope, y := range tallies {
		light[scope] = y.answered > y.failed
		_, was := l.dark[scope]
		alone := y.failed < 2 && !strings.Contains(scope, ".") // the one vote for it is doubted in its own scope
		if y.dark() && !alone && (y.instances >= blindCount || was) {
			if !was {
				began = append(began, scope)
			}
			continue
		}
		delete(tallies, scope)
	}
	for scope := range l.dark {
		if tallies[scope] == nil {
			delete(l.dark, scope)
		}
	}
	if l.dark == nil {
		l.dark = map[string]time.Duration{}
	}
	for _, scope := range began {
		l.dark[scope] = now
	}
	for _, s := range l.services {
		for _, z := range s.zones {
			l.shade(z, light)
		}
	}
	if len(began) == 0 {
		return
	}
	l.log.Warn("most probes fail at once: this node doubts what it sees there", "scopes", len(began), "widest", cmp.Or(slices.MinFunc(began, shorter), "all"), "instances", len(l.failed))
}

func shorter(a, b string) int { return cmp.Compare(len(a), len(b)) }

// tallies are the votes of all scopes. That of what failed long ago is void.
func (l *loop) tallies(now time.Duration) map[string]*tally {
	fresh := func(t *tracked, at time.Duration) bool {
		return at != 0 && now-at <= max(blindSpan, 2*t.rec.Data.Check.IntervalOf())
	}
	zones := map[*zone]*tally{}
	of := func(z *zone) *tally {
		if zones[z] == nil {
			zones[z] = &tally{}
		}
		return zones[z]
	}
	for t, at := range l.failed {
		if !fresh(t, at) {
			delete(l.failed, t)
			continue
		}
		y := of(t.zone)
		y.failed, y.instances = y.failed+1, y.instances+1
	}
	for _, t := range l.tracked {
		if fresh(t, t.answers) {
			of(t.zone).answered++
		}
	}
	all, node := map[string]*tally{}, &tally{}
	for z, y := range zones {
		scopes := z.scopes()
		if all[scopes[1]] == nil {
			all[scopes[1]] = &tally{}
		}
		all[scopes[1]].vote(y)
	}
	for _, y := range all {
		node.vote(y)
	}
	all[everywhere] = node
	for z, y := range zones {
		all[z.key] = y
	}
	return all
}

// shade notes since when a zone is in the dark: by its narrowest scope in which most give answers, and those within. When
// it is not any more, failures without an answer are forgotten: they may have been this node's fault. What answered that
// it is not well has said so itself.
func (l *loop) shade(z *zone, light map[string]bool) {
	was := z.dark
	z.dark = 0
	for _, scope := range z.scopes() {
		z.dark = max(z.dark, l.dark[scope])
		if light[scope] {
			break
		}
	}
	if was == 0 || z.dark != 0 {
		return
	}
	for t := range z.service.members {
		if t.zone != z {
			continue
		}
		if t.lit++; t.last != nil && unanswered(t.last.Class) {
			t.pardons++
		}
	}
}

// darkened: most probes in a scope that speaks for the zone fail.
func (z *zone) darkened() bool { return z.dark != 0 }

// blinded: most probes in a scope of the zone fail, and that is new. What lasts longer is not believed either: see
// [loop.losses].
func (l *loop) blinded(z *zone, now time.Duration) bool { return z.darkened() && l.new(z.dark, now) }

func (l *loop) new(since, now time.Duration) bool { return now-since < cmp.Or(l.blinds, blindFor) }

// worst is the greatest doubt of any zone.
func (l *loop) worst(now time.Duration) int {
	for _, since := range l.dark {
		if l.new(since, now) {
			return maxDoubt
		}
	}
	return l.score
}
