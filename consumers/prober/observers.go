package prober

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines/instance"
)

// observation is what a node tells the owner of an instance.
type observation struct {
	instance.Evidence
	OK bool `json:"ok"`
}

// view is the last observation of another node.
type view struct {
	observation
	at time.Duration
}

func several(t *tracked) bool { return probing(t.kind) && t.rec.Data.Check.ObserversOf() > 1 }

// observes reports whether this node probes an instance of another owner: it is among the n that rank highest for it.
func (l *loop) observes(key string, rec *instance.Record) bool {
	if rec == nil || len(l.nodes) < 2 || !probing(rec.Data.Check.Kind()) {
		return false
	}
	n := rec.Data.Check.ObserversOf()
	if n < 2 {
		return false
	}
	mine, better := rank(l.Node, key), 0
	for _, node := range l.nodes {
		if node != l.Node && rank(node, key) > mine {
			better++
		}
	}
	return better < n
}

// rank is the place of a node for a key, by rendezvous.
func rank(node, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node + "\x00" + key)) // never fails
	x := h.Sum64()
	x ^= x >> 33 // FNV's last bytes hardly reach its first bits
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// share tells the owner what this node saw; what speaks against an instance only when this node trusts itself.
func (l *loop) share(t *tracked, r *instance.Result) {
	if t.owned || !r.OK && (!l.trusted(t.zone, l.now()) || t.zone.darkened() && unanswered(r.Class)) {
		return
	}
	o := observation{Evidence: l.evidence(t), OK: r.OK}
	o.Consecutive, o.Status, o.Output, o.Latency = max(t.passes, t.fails), r.Status, r.Output, float64(r.Latency.Microseconds())/1000
	body, err := json.Marshal(o)
	if err == nil {
		err = l.NC.Publish(l.Names.Observation(t.key), body)
	}
	if err != nil {
		l.log.Debug("cannot tell what was observed", "instance", t.key, "error", err)
	}
}

// told keeps what another node saw.
func (l *loop) told(m *nats.Msg) {
	defer panics.Recover(l.log, "observation", "subject", m.Subject)
	key, err := l.Names.ParseObservation(m.Subject)
	if err != nil || len(m.Data) > maxBeat {
		return
	}
	t := l.tracked[key]
	var o observation
	if t == nil || !t.owned || !several(t) || json.Unmarshal(m.Data, &o) != nil {
		return
	}
	if o.Generation != t.rec.Generation || o.Observer == l.Node || !slices.Contains(l.nodes, o.Observer) {
		return
	}
	if t.views == nil || len(t.views) > 16 {
		t.views = map[string]view{}
	}
	now := l.now()
	t.views[o.Observer] = view{o, now}
	l.decide(t, now)
	l.plan(t, now)
}

// opinions are what the observers see, this node's own first, as far as it is fresh.
func (l *loop) opinions(t *tracked, now time.Duration) []view {
	var list []view
	if t.passes > 0 || t.fails > 0 && l.trusted(t.zone, now) && (!t.zone.darkened() || t.last == nil || !unanswered(t.last.Class)) {
		o := observation{Evidence: l.failure(t), OK: t.passes > 0}
		o.Consecutive = max(t.passes, t.fails)
		list = append(list, view{o, now})
	}
	c := &t.rec.Data.Check
	fresh := 6*c.IntervalOf() + c.TimeoutOf() // while it is unhealthy it is probed half as often
	for name, v := range t.views {
		if now-v.at > fresh || !slices.Contains(l.nodes, name) {
			delete(t.views, name)
			continue
		}
		list = append(list, v)
	}
	return list
}

// voted tells the machine of an observer that sees something else than it is known for. The machine counts.
func (l *loop) voted(t *tracked, now time.Duration) bool {
	if t.state == instance.Flapping {
		return false
	}
	for _, v := range l.opinions(t, now) {
		v.Observers = max(len(l.nodes), 1) // there may be fewer than the check asks for
		input := report(t, &v)
		if input == "" {
			continue
		}
		lost := !v.OK && l.lost(t, now) != nil
		if (lost || !v.OK && t.rec.Data.Protected) && l.keeps(t, now) {
			continue
		}
		if l.askOut(t, now, input, v.Evidence, lost && t.leaves()) {
			return true
		}
	}
	return false
}

// report is what an opinion changes, or empty.
func report(t *tracked, v *view) string {
	d := &t.rec.Data
	fallen, risen := !v.OK && v.Consecutive >= d.Fall(), v.OK && v.Consecutive >= d.Rise()
	switch t.state {
	case instance.Unknown:
		if risen {
			return instance.ReportPassed
		}
		if fallen {
			return instance.ReportFailed
		}
	case instance.Warming, instance.Healthy:
		known := slices.Contains(d.Failing, v.Observer)
		if fallen && !known {
			return instance.ReportFailed
		}
		if risen && known {
			return instance.ReportPassed
		}
	case instance.Suspect:
		n := d.Suspicion
		if fallen && n != nil && v.Observer != n.By && !slices.Contains(n.Confirmed, v.Observer) {
			return instance.ReportConfirmed
		}
		if risen && v.at > t.entered {
			return instance.ReportPassed
		}
	case instance.Unhealthy:
		known := slices.Contains(d.Passing, v.Observer)
		if risen && !known {
			return instance.ReportPassed
		}
		if fallen && (known || d.Policy.MaxFailures > 0 && v.Consecutive > d.Retries) {
			return instance.ReportFailed
		}
	}
	return ""
}

func equal(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
