package prober

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// beat is the body of a heartbeat.
type beat struct {
	Generation uint64 `json:"generation"`
	Status     string `json:"status"`
	Output     string `json:"output"`
	InFlight   *int   `json:"inFlight"`
	Weight     *int   `json:"weight"`
}

const (
	maxBeat   = 4 << 10
	maxOutput = 512
	maxWeight = 65535
)

// hear takes what has come, up to a bound, so that the loop chooses less often.
func (l *loop) hear(m *nats.Msg) {
	now := l.now()
	l.beat(m, now)
	for range 255 {
		select {
		case m = <-l.beats:
			l.beat(m, now)
		default:
			return
		}
	}
}

func (l *loop) beat(m *nats.Msg, now time.Duration) {
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
	b := &plain
	if len(m.Data) > 0 {
		if b = read(m.Data); b == nil {
			l.malformed++
			return
		}
	}
	switch {
	case t == nil || !t.owned:
		if !l.ahead(key, b, now) {
			l.unknown++
		}
		return
	case b.Generation > t.rec.Generation && l.ahead(key, b, now):
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
	l.lives(t, b, now)
}

// early is a heartbeat that was faster than the news of its registration.
type early struct {
	beat
	at time.Duration
}

const (
	maxEarly  = 10000
	earlyLife = 5 * time.Second
)

// ahead keeps a heartbeat that names a generation until that is known: it may be the first one after a registration, and
// the next one comes much later.
func (l *loop) ahead(key string, b *beat, now time.Duration) bool {
	if b.Generation == 0 || len(l.early) >= maxEarly {
		return false
	}
	if l.early == nil {
		l.early = map[string]early{}
	}
	l.early[key] = early{*b, now}
	return true
}

// overtook takes the heartbeat that was ahead of this generation.
func (l *loop) overtook(t *tracked, now time.Duration) {
	e, ok := l.early[t.key]
	if !ok || !t.owned || e.Generation > t.rec.Generation {
		return
	}
	delete(l.early, t.key)
	if e.Generation < t.rec.Generation {
		l.outdated++
		return
	}
	l.taken++
	l.lives(t, &e.beat, now)
}

// forget drops heartbeats whose registration does not come, and who ended too long ago to be known by anybody who was not heard.
func (l *loop) forget(now time.Duration) {
	for key, gained := range l.ended {
		if now-gained > watcherLife {
			delete(l.ended, key)
		}
	}
	for key, e := range l.early {
		if now-e.at > earlyLife {
			delete(l.early, key)
			l.unknown++
		}
	}
}

// plain is the heartbeat without a body; it is not changed.
var plain beat

// read returns nil for a body that is none of a heartbeat.
func read(body []byte) *beat {
	var b beat
	if len(body) > maxBeat || machines.Unmarshal(body, &b) != nil || !b.valid() {
		return nil
	}
	return &b
}

func (b *beat) valid() bool {
	switch b.Status {
	case "", "passing", "warning", "critical":
	default:
		return false
	}
	return (b.InFlight == nil || *b.InFlight >= 0) && (b.Weight == nil || *b.Weight >= 0 && *b.Weight <= maxWeight)
}

// lives is what a heartbeat says. That of an instance which is well touches nothing but a few numbers.
func (l *loop) lives(t *tracked, b *beat, now time.Duration) {
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
		l.settles(t, r.OK)
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
