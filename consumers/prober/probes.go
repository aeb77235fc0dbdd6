package prober

// From a probe that is due to its result. probe hands a job to the pool, whose workers call the Checker; onResult, called by the loop (prober.go), counts results in a row,
// shares them (observers.go), decides (decide.go) and sets the time of the next probe. An alias takes its health from another instance instead (followAlias).

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers/prober/pool"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

// maxTimeout bounds the timeout of a probe, however bad the health of this node is.
const maxTimeout = time.Minute

// slow is how long a probe may take before the next one of its instance is slow. Slow ones may take most of the pool, never all: others must be probed meanwhile.
const (
	slow      = 250 * time.Millisecond
	slowAgain = time.Second // at the latest it asks again for its part of the pool
)

// attempt is a probe that is under way, and what it counts for.
type attempt struct {
	t     *tracked
	gen   uint64
	epoch uint64
	lit   uint64
	slow  bool
}

// probe hands a probe to the pool. When all of it is busy, it is late, which is not held against the instance.
func (l *loop) probe(t *tracked, now time.Duration) {
	if t.slow && l.slow >= max(l.workers()*3/4, 1) {
		t.probeAt = now + slowAgain/10 + spread(slowAgain*9/10)
		return
	}
	c := t.rec.Data.Check
	timeout := min(c.TimeoutOf()*time.Duration(l.localHealth(t.zone, now)+1), maxTimeout)
	target := instance.Target{Key: t.key, Address: t.rec.Data.NodeAddress, Check: c, Timeout: timeout}
	if !l.pool.Try(pool.Job[attempt]{For: attempt{t, t.rec.Generation, l.epochOf(t), t.lit, t.slow}, Target: target}) {
		t.probeAt = now + 20*time.Millisecond
		return
	}
	if t.probing = true; t.slow {
		l.slow++
	}
}

func (l *loop) workers() int { return cmp.Or(l.Workers, defaultWorkers) }

// onResult takes the result of a probe.
func (l *loop) onResult(r *pool.Result[attempt]) {
	t, now := r.For.t, l.now()
	if t.probing, t.slow = false, r.Result.Latency > slow; r.For.slow {
		l.slow--
	}
	if t.gone() || l.ctx.Err() != nil {
		return
	}
	if r.For.gen == t.rec.Generation && (r.Result.OK || r.For.epoch == l.epochOf(t) && (r.For.lit == t.lit || !unanswered(r.Result.Class))) { // what began before a standstill, or while most gave no answer, may have failed by it
		if r.Result.Class == instance.FailedForbidden && (t.last == nil || t.last.Class != instance.FailedForbidden) {
			l.log.Warn("a probe is forbidden: its target resolves to a forbidden address", "instance", t.key, "reason", r.Result.Output)
		}
		l.noteAnswer(t, &r.Result, now)
		l.count(t, r.Result)
		l.scoreFlapping(t, r.Result.OK)
		l.share(t, &r.Result)
		l.decide(t, now)
	}
	changing := r.Result.OK == (t.state == instance.Unhealthy)
	every := t.rec.Data.Check.Every(t.state, changing)
	t.probeAt = now + time.Duration(float64(every)*(0.95+0.1*rand.Float64())) // no secret
	l.plan(t, now)
}

// scoreFlapping scores changes of the hard state; a result that does not change it is no flapping. Of one that is held down, results that settle nothing speak for calm.
func (l *loop) scoreFlapping(t *tracked, ok bool) {
	hard := ok && t.passes >= t.rec.Data.Rise() || !ok && t.fails >= t.rec.Data.Fall()
	switch {
	case t.state == instance.Flapping:
		t.flaps.Add(ok && hard || !hard && t.flaps.Last())
	case hasObservers(t): // its observers decide together
		if t.state == instance.Unhealthy || t.found() {
			t.flaps.Add(t.state != instance.Unhealthy)
		}
	case hard:
		t.flaps.Add(ok)
	}
}

// count keeps how often in a row.
func (l *loop) count(t *tracked, r instance.Result) {
	l.renewed(t)
	if r.OK {
		t.passes, t.fails, t.last = t.passes+1, 0, nil
		return
	}
	t.passes, t.fails, t.last = 0, t.fails+1, &r
}

// renewed forgets failures that do not count any more. A pass is one, whatever this node went through.
func (l *loop) renewed(t *tracked) {
	if e := l.epochOf(t); t.epoch != e {
		t.epoch, t.fails = e, 0
	}
}

// aliasKey is the key of the instance that an alias follows.
func aliasKey(rec *instance.Record) string {
	service, id, _ := strings.Cut(rec.Data.Check.Alias, "/")
	return rec.Namespace + "." + service + "." + id
}

func (l *loop) unfollow(t *tracked) {
	if followers := l.aliases[t.follows]; t.follows != "" {
		if delete(followers, t); len(followers) == 0 {
			delete(l.aliases, t.follows)
		}
		t.follows = ""
	}
}

// maxAliases is how many may follow one another.
const maxAliases = 8

// circular reports whether the chain of aliases that an instance follows has no end, or is too long: in a circle they would keep each other alive.
func (l *loop) circular(item index.Item) bool {
	for range maxAliases {
		rec, ok := item.Value.(*instance.Record)
		if !ok || rec.Data.Check.Kind() != instance.CheckAlias {
			return false
		}
		if item, ok = l.Instances.Get(aliasKey(rec)); !ok {
			return false
		}
	}
	return true
}

// followAlias makes an alias as healthy as what it follows, at once: that one's own thresholds were applied already.
func (l *loop) followAlias(t *tracked) {
	now := l.now()
	if t.gone() || !t.active() {
		return
	}
	t.probeAt = now + t.rec.Data.Check.IntervalOf()
	item, ok := l.Instances.Get(t.follows)
	r := instance.Result{Output: t.rec.Data.Check.Alias + " is " + strings.TrimPrefix(item.State, "active.")}
	switch {
	case !ok:
		r.Output = t.rec.Data.Check.Alias + " is not registered"
	case l.circular(item):
		r.Output = t.rec.Data.Check.Alias + " follows others in a circle, or too many"
	case item.State == instance.Healthy || item.State == instance.Warming || item.State == instance.Suspect:
		r.OK = true
	}
	l.count(t, r)
	if r.OK {
		t.passes = max(t.passes, t.rec.Data.Rise())
	} else {
		t.fails = max(t.fails, t.rec.Data.Fall())
	}
	l.scoreFlapping(t, r.OK)
	l.decide(t, now)
	l.plan(t, now)
}
