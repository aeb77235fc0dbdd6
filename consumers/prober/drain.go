package prober

// Services, their watchers, and drains that end early. onAcknowledgements, called by the loop (prober.go), takes from core NATS up to which revision each watcher has acted;
// drained, called by decide, reports a drain as complete when the instance has nothing in flight and every watcher has confirmed the revision in which the drain began.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers/prober/heartbeat"
	"github.com/bcc94042/instar/consumers/prober/watchers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/internal/strictjson"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// service is what instances of one have in common.
type service struct {
	name     string // <namespace>.<service>
	members  map[*tracked]struct{}
	draining map[*tracked]struct{} // of these
	watchers watchers.Watchers
	zones    map[string]*zone

	sweepAt time.Duration       // when this sweep of expiry began
	expired map[string]struct{} // keys of what went in it, also of what is deregistered and not known any more
}

func (l *loop) service(name string) *service {
	s := l.services[name]
	if s == nil {
		s = &service{name: name, members: map[*tracked]struct{}{}, draining: map[*tracked]struct{}{}, expired: map[string]struct{}{}}
		l.services[name] = s
	}
	return s
}

// unused: nothing would be lost by forgetting it.
func (s *service) unused() bool {
	for _, z := range s.zones {
		if z.protects() {
			return false
		}
	}
	return len(s.members) == 0 && s.watchers.Len() == 0
}

// onAcknowledgements takes what has arrived, up to a bound, so that drains are checked less often.
func (l *loop) onAcknowledgements(m *nats.Msg) {
	ready := map[*tracked]struct{}{}
	batch(m, l.acks, func(m *nats.Msg) { l.acknowledge(m, ready) })
	now := l.now()
	for t := range ready {
		l.decide(t, now)
		l.plan(t, now)
	}
}

// acknowledge adds the drains to ready that a watcher has reached.
func (l *loop) acknowledge(m *nats.Msg, ready map[*tracked]struct{}) {
	defer panics.Recover(l.log, "acknowledgement", "subject", m.Subject)
	name, err := l.Names.ParseAcknowledge(m.Subject)
	if err != nil || !l.owned.Has(streams.Partition(instance.Machine.Name, name)) {
		return
	}
	var b struct {
		Watcher string `json:"watcher"`
		Index   uint64 `json:"index"`
	}
	if len(m.Data) > heartbeat.MaxBody || strictjson.Unmarshal(m.Data, &b) != nil || b.Watcher == "" || len(b.Watcher) > watchers.MaxName {
		return
	}
	now, s := l.now(), l.services[name]
	var strays *watchers.Strays
	if s == nil || len(s.members) == 0 { // it may be watched before it has its first instance, or be no service at all
		if strays = &l.strays; s == nil && strays.Full(now) {
			return
		}
		s = l.service(name)
	}
	before, taken := s.watchers.Confirm(b.Watcher, b.Index, now, strays)
	if !taken {
		return
	}
	for t := range s.draining {
		if before < t.drainAt && t.drainAt <= b.Index {
			ready[t] = struct{}{}
		}
	}
}

// join makes an instance one of its service. Who watched that before it had any may have been turned away.
func (s *service) join(t *tracked, turned time.Duration) {
	if len(s.members) == 0 {
		s.watchers.Turned = max(s.watchers.Turned, turned)
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
	return t.fresh && since == 0 || now-since > cmp.Or(l.listens, watchers.Life)
}

// end drops an instance that has ended, or is not this node's any more. One that comes back while this node has its partition has no watchers from before.
func (l *loop) end(t *tracked) {
	gained := l.gained[t.partition()]
	if t.fresh && t.owned && l.now()-gained <= watchers.Life {
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

// confirms reports whether a watcher acts on a drain. An index that nobody here has yet is of a history that was lost, or will arrive in a moment.
func (l *loop) confirms(w watchers.Watcher, t *tracked) bool {
	return w.Index >= t.drainAt && (w.Index <= l.Instances.Revision() || w.Index >= hasLeft)
}

// drained completes a drain when nothing is in flight and everybody knows.
func (l *loop) drained(t *tracked, now time.Duration) {
	if !t.idle || !l.listened(t, now) {
		return
	}
	n, all := t.service.watchers.All(now, l.unheard, func(w watchers.Watcher) bool { return l.confirms(w, t) })
	if !all {
		return
	}
	reason := fmt.Sprintf("nothing in flight, %d watchers confirmed revision %d", n, t.drainAt)
	if n == 0 {
		reason = "nothing in flight, nobody watches"
	}
	l.report(t, now, instance.ReportDrained, instance.DrainReport{Watchers: n, Reason: reason, Generation: t.rec.Generation, Since: t.rec.Since})
}
