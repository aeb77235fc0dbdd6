package prober

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

const (
	watcherLife = 30 * time.Second // without a confirmation it is gone: who listened for so long knows all that are not
	maxWatchers = 10000            // of one service, and of all services without instances together
	maxWatcher  = 640              // bytes of a name: over HTTP, that of the token is in it
)

// service is what instances of one have in common.
type service struct {
	name     string // <namespace>.<service>
	members  map[*tracked]struct{}
	draining map[*tracked]struct{} // of these
	watchers map[string]watcher
	turned   time.Duration // when a watcher was turned away, because there are too many; 0 is never
	zones    map[string]*zone

	sweepAt time.Duration       // when this sweep of expiry began
	expired map[string]struct{} // keys of what went in it, also of what is deregistered and not known any more
}

// watcher is somebody who confirms the revisions of a service that it acts on.
type watcher struct {
	index uint64 // as it said last: one that begins anew, or shares its name with another, may have less than before
	at    time.Duration
}

func (l *loop) service(name string) *service {
	s := l.services[name]
	if s == nil {
		s = &service{name: name, members: map[*tracked]struct{}{}, draining: map[*tracked]struct{}{}, expired: map[string]struct{}{}}
		l.services[name] = s
	}
	return s
}

// unused: nothing is known of it that could not be known anew.
func (s *service) unused() bool {
	for _, z := range s.zones {
		if z.protects() {
			return false
		}
	}
	return len(s.members) == 0 && len(s.watchers) == 0
}

// prune forgets watchers that were not heard for their life. What was said while this node heard nothing is not missed.
func (l *loop) prune(s *service, now time.Duration) {
	for name, w := range s.watchers {
		if now-max(w.at, l.unheard) > watcherLife {
			delete(s.watchers, name)
		}
	}
}

// acknowledgements takes what has come, up to a bound, so that drains are looked at less often.
func (l *loop) acknowledgements(m *nats.Msg) {
	ready := map[*tracked]struct{}{}
	l.acknowledged(m, ready)
	for range 255 {
		select {
		case m = <-l.acks:
			l.acknowledged(m, ready)
			continue
		default:
		}
		break
	}
	now := l.now()
	for t := range ready {
		l.decide(t, now)
		l.plan(t, now)
	}
}

// acknowledged adds the drains to ready that a watcher has reached.
func (l *loop) acknowledged(m *nats.Msg, ready map[*tracked]struct{}) {
	defer panics.Recover(l.log, "acknowledgement", "subject", m.Subject)
	name, err := l.Names.ParseAcknowledge(m.Subject)
	if err != nil || !l.owned.Has(streams.Partition(instance.Machine.Name, name)) {
		return
	}
	var b struct {
		Watcher string `json:"watcher"`
		Index   uint64 `json:"index"`
	}
	if len(m.Data) > maxBeat || machines.Unmarshal(m.Data, &b) != nil || b.Watcher == "" || len(b.Watcher) > maxWatcher {
		return
	}
	now, s := l.now(), l.services[name]
	if s == nil || len(s.members) == 0 { // it may be watched before it has its first instance, or be no service at all
		if s == nil && l.strays >= maxWatchers {
			l.turned = now
			return
		}
		s = l.service(name)
	}
	before, known := s.watchers[b.Watcher]
	if !known && !l.room(s, now) {
		return
	}
	if s.watchers == nil {
		s.watchers = map[string]watcher{}
	}
	s.watchers[b.Watcher] = watcher{b.Index, now}
	for t := range s.draining {
		if before.index < t.drainAt && t.drainAt <= b.Index {
			ready[t] = struct{}{}
		}
	}
}

// room reports whether a service may have one more watcher. Who is turned away is waited for, see [loop.drained].
func (l *loop) room(s *service, now time.Duration) bool {
	switch {
	case len(s.watchers) >= maxWatchers:
		s.turned = now
	case len(s.members) > 0:
		return true
	case l.strays >= maxWatchers:
		l.turned = now
	default:
		l.strays++
		return true
	}
	return false
}

// join makes an instance one of its service. Who watched that before it had any may have been turned away.
func (s *service) join(t *tracked, turned time.Duration) {
	if len(s.members) == 0 {
		s.turned = max(s.turned, turned)
	}
	s.members[t] = struct{}{}
}

// listened reports whether whoever watches an instance is known by now. A watcher that learned of it before this node
// looked after it, or may have spoken while this node heard nothing, is known after the life of a watcher at the latest.
func (l *loop) listened(t *tracked, now time.Duration) bool {
	since := l.unheard
	if !t.fresh {
		since = max(since, l.gained[t.partition()])
	}
	return t.fresh && since == 0 || now-since > cmp.Or(l.listens, watcherLife)
}

// end drops an instance that has ended, or is not this node's any more. When it comes back, and this node has looked after its partition
// all the while, nobody watches it who learned of it before.
func (l *loop) end(t *tracked) {
	gained := l.gained[t.partition()]
	if t.fresh && t.owned && l.now()-gained <= watcherLife {
		if l.ended == nil {
			l.ended = map[string]time.Duration{}
		}
		l.ended[t.key] = gained
	}
	l.drop(t)
}

// known reports whether all of an instance's life before was under this owner.
func (l *loop) known(t *tracked) bool {
	gained, ended := l.ended[t.key]
	delete(l.ended, t.key)
	return ended && t.owned && gained == l.gained[t.partition()]
}

// hasLeft is what a watcher says at last: it acts on nothing any more.
const hasLeft = 1<<53 - 1

// confirms reports whether a watcher acts on a drain. What it says it has, and nobody here has yet, is of a history that was
// lost, or will be here in a moment.
func (l *loop) confirms(w watcher, t *tracked) bool {
	return w.index >= t.drainAt && (w.index <= l.Instances.Revision() || w.index >= hasLeft)
}

// drained completes a drain when nothing is in flight and everybody knows.
func (l *loop) drained(t *tracked, now time.Duration) {
	if !t.idle || !l.listened(t, now) {
		return
	}
	if turned := t.service.turned; turned != 0 && now-turned < watcherLife {
		return // somebody watches who is not among those that are waited for
	}
	n := 0
	for _, w := range t.service.watchers {
		if now-max(w.at, l.unheard) > watcherLife {
			continue
		}
		if !l.confirms(w, t) {
			return
		}
		n++
	}
	reason := fmt.Sprintf("nothing in flight, %d watchers confirmed revision %d", n, t.drainAt)
	if n == 0 {
		reason = "nothing in flight, nobody watches"
	}
	l.ask(t, now, instance.ReportDrained, instance.DrainReport{Watchers: n, Reason: reason, Generation: t.rec.Generation, Since: t.rec.Since})
}
