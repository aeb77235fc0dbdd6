package prober

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers/prober/heartbeat"
	"github.com/bcc94042/instar/consumers/prober/quorum"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines/instance"
)

func hasObservers(t *tracked) bool { return probing(t.kind) && t.rec.Data.Check.ObserversOf() > 1 }

// observes reports whether this node probes an instance of another owner: it is among the n that rank highest for it.
func (l *loop) observes(key string, rec *instance.Record) bool {
	if rec == nil || len(l.nodes) < 2 || !probing(rec.Data.Check.Kind()) {
		return false
	}
	n := rec.Data.Check.ObserversOf()
	if n < 2 {
		return false
	}
	return quorum.Observes(l.Node, l.nodes, key, n)
}

// share tells the owner what this node saw; what speaks against an instance only when this node trusts itself.
func (l *loop) share(t *tracked, r *instance.Result) {
	if t.owned || !r.OK && (!l.trusted(t.zone, l.now()) || t.zone.unreachable() && unanswered(r.Class)) {
		return
	}
	o := quorum.Observation{Evidence: l.evidence(t), OK: r.OK}
	o.Consecutive, o.Status, o.Output, o.Latency = max(t.passes, t.fails), r.Status, r.Output, float64(r.Latency.Microseconds())/1000
	body, err := json.Marshal(o)
	if err == nil {
		err = l.NC.Publish(l.Names.Observation(t.key), body)
	}
	if err != nil {
		l.log.Debug("cannot report an observation", "instance", t.key, "error", err)
	}
}

// onObservation keeps what another node saw.
func (l *loop) onObservation(m *nats.Msg) {
	defer panics.Recover(l.log, "observation", "subject", m.Subject)
	key, err := l.Names.ParseObservation(m.Subject)
	if err != nil || len(m.Data) > heartbeat.MaxBody {
		return
	}
	t := l.tracked[key]
	var o quorum.Observation
	if t == nil || !t.owned || !hasObservers(t) || json.Unmarshal(m.Data, &o) != nil {
		return
	}
	if o.Generation != t.rec.Generation || o.Observer == l.Node || !slices.Contains(l.nodes, o.Observer) {
		return
	}
	if t.observations == nil || len(t.observations) > 16 {
		t.observations = map[string]quorum.View{}
	}
	now := l.now()
	t.observations[o.Observer] = quorum.View{Observation: o, At: now}
	l.decide(t, now)
	l.plan(t, now)
}

// opinions are what the observers see, this node's own first, as far as it is fresh.
func (l *loop) opinions(t *tracked, now time.Duration) []quorum.View {
	var list []quorum.View
	if t.passes > 0 || t.fails > 0 && l.trusted(t.zone, now) && (!t.zone.unreachable() || t.last == nil || !unanswered(t.last.Class)) {
		o := quorum.Observation{Evidence: l.failure(t), OK: t.passes > 0}
		o.Consecutive = max(t.passes, t.fails)
		list = append(list, quorum.View{Observation: o, At: now})
	}
	c := &t.rec.Data.Check
	fresh := 6*c.IntervalOf() + c.TimeoutOf() // while it is unhealthy it is probed half as often
	for name, v := range t.observations {
		if now-v.At > fresh || !slices.Contains(l.nodes, name) {
			delete(t.observations, name)
			continue
		}
		list = append(list, v)
	}
	return list
}

// reportViews tells the machine of an observer that sees something else than it is known for. The machine counts.
func (l *loop) reportViews(t *tracked, now time.Duration) bool {
	if t.state == instance.Flapping {
		return false
	}
	for _, v := range l.opinions(t, now) {
		v.Observers = max(len(l.nodes), 1) // there may be fewer than the check asks for
		input := quorum.Report(t.state, &t.rec.Data, t.entered, &v)
		if input == "" {
			continue
		}
		lost := !v.OK && l.lost(t, now) != nil
		if (lost || !v.OK && t.rec.Data.Protected) && l.isPreserved(t, now) {
			continue
		}
		if l.reportRemoval(t, now, input, v.Evidence, lost && t.mayBeRemoved()) {
			return true
		}
	}
	return false
}
