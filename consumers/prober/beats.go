package prober

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/prober/heartbeat"
	"github.com/bcc94042/instar/consumers/prober/watchers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// maxOutput bounds what is kept of what an instance says.
const maxOutput = 512

// onHeartbeats takes what has come, up to a bound, so that the loop chooses less often.
func (l *loop) onHeartbeats(m *nats.Msg) {
	now := l.now()
	batch(m, l.beats, func(m *nats.Msg) { l.onHeartbeat(m, now) })
}

// batch does something with a message, and with those that have come behind it, up to 256.
func batch(m *nats.Msg, more <-chan *nats.Msg, do func(*nats.Msg)) {
	do(m)
	for range 255 {
		select {
		case m = <-more:
			do(m)
		default:
			return
		}
	}
}

func (l *loop) onHeartbeat(m *nats.Msg, now time.Duration) {
	defer panics.Recover(l.log, "heartbeat", "subject", m.Subject)
	key, err := l.Names.ParseHeartbeat(m.Subject)
	if err != nil {
		l.malformed++
		return
	}
	t := l.tracked[key]
	if (t == nil || !t.owned) && !l.owned.Has(streams.Partition(instance.Machine.Name, key)) {
		return
	}
	b := heartbeat.Read(m.Data)
	if b == nil {
		l.malformed++
		return
	}
	switch {
	case t == nil || !t.owned:
		if !l.early.Keep(key, b, now) {
			l.unknown++
		}
		return
	case b.Generation > t.rec.Generation && l.early.Keep(key, b, now):
		return
	}
	if b.Generation != 0 && b.Generation != t.rec.Generation {
		if l.outdated++; !t.stale {
			t.stale = true
			l.log.Warn("heartbeats of another generation are dropped", "instance", key, "theirs", b.Generation, "registered", t.rec.Generation)
		}
		return
	}
	l.taken++
	l.takeHeartbeat(t, b, now)
}

// takeEarly takes the heartbeat that was ahead of this generation.
func (l *loop) takeEarly(t *tracked, now time.Duration) {
	if !t.owned {
		return
	}
	switch b := l.early.Take(t.key, t.rec.Generation); {
	case b == nil:
	case b.Generation < t.rec.Generation:
		l.outdated++
	default:
		l.taken++
		l.takeHeartbeat(t, b, now)
	}
}

// forget drops heartbeats whose registration does not come, and who ended too long ago to be known by anybody who was not heard.
func (l *loop) forget(now time.Duration) {
	for key, gained := range l.ended {
		if now-gained > watchers.Life {
			delete(l.ended, key)
		}
	}
	l.unknown += l.early.Expire(now)
}

// tellHeard says when some instances of a service were heard last, which is stored nowhere: who owns the service has heard them.
func (l *loop) tellHeard(m *nats.Msg) {
	service, ids := heartbeat.Question(string(m.Data))
	if !l.owned.Has(streams.Partition(instance.Machine.Name, service)) {
		return
	}
	heard, now := heartbeat.Heard{}, l.now()
	for _, id := range ids {
		if t := l.tracked[service+"."+id]; t != nil {
			heard.Add(id, t.heard, now)
		}
	}
	l.background.Go(func() { consumers.Respond(l.log, m, heard) }) // beside the loop, which all instances wait for
}

// takeHeartbeat is what a heartbeat says. That of an instance which is well touches nothing but a few numbers.
func (l *loop) takeHeartbeat(t *tracked, b *heartbeat.Beat, now time.Duration) {
	critical := b.Status == "critical"
	if b.InFlight != nil {
		t.idle = t.state == instance.Draining && *b.InFlight == 0
	}
	if b.Weight != nil {
		t.weight = *b.Weight
	}
	if t.kind == instance.CheckTTL {
		t.seen, t.heard = now, now
		r := instance.Result{OK: !critical}
		if critical {
			r.Output = b.Output[:min(len(b.Output), maxOutput)]
		}
		if l.count(t, r); critical {
			t.fails = max(t.fails, t.rec.Data.Fall()) // its own word needs no repetition
		}
		l.scoreFlapping(t, r.OK)
	}
	if t.held {
		t.retryAt = now
	}
	if t.found() && !critical && b.Weight == nil {
		return
	}
	l.decide(t, now)
	l.plan(t, now)
}
