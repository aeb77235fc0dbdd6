package prober

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober/localhealth"
	"github.com/bcc94042/instar/consumers/prober/quorum"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// still is a loop that owns everything, sends nothing, and whose clock only the test moves.
type still struct {
	*loop
	at       time.Duration
	revision uint64
}

func newStill(w *world) *still {
	s := &still{at: time.Second}
	p := &Prober{Deps: w.Deps, Shares: cluster.Everything{}, Instances: w.instances, Preservations: w.preservations, Node: "node-a", clock: func() time.Duration { return s.at }}
	s.loop = p.newLoop(w.ctx)
	s.claim(cluster.All, 0)
	s.inFlight.running = 2 * maxAsking
	return s
}

// instance tracks one in that state, which is probed; key is namespace.service.id.
func (s *still) instance(key, state string) *tracked {
	ns, service, id, _ := streams.SplitKey(key)
	s.revision++
	rec := &instance.Record{Namespace: ns, Service: service, ID: id, State: state, Generation: 1, Data: instance.Known{Terms: &instance.Terms{Check: quick}, Weight: 100}}
	s.take(&index.Item{Key: key, State: state, Revision: s.revision, Value: rec})
	t := s.tracked[key]
	t.passes, t.answers, t.probing = rec.Data.Rise(), s.at, true
	return t
}

func (s *still) instances(service string, n int, state string) []*tracked {
	var all []*tracked
	for i := range n {
		all = append(all, s.instance(fmt.Sprintf("%s.i-%d", service, i), state))
	}
	return all
}

// fails makes all probes of it fail with a result from now on.
func (s *still) fails(r instance.Result, all ...*tracked) {
	for _, t := range all {
		for range t.rec.Data.Fall() {
			s.count(t, r)
		}
		s.noteAnswer(t, &r, s.at)
	}
}

// news is how a zone stands in the index.
func (s *still) news(z *zone, state string) {
	s.preservation(&index.Item{Key: z.key, State: state, Value: &preservation.Data{}})
}

// sent are the reports that wait to be sent, which are taken.
func (s *still) sent() []string {
	names := []string{}
	for _, a := range s.inFlight.waiting {
		names = append(names, a.cmd.Name)
	}
	s.inFlight.waiting = nil
	return names
}

// That a zone is well again is seen, also by a node that misses its own timers: only what speaks against somebody waits
// until it trusts itself.
func TestDoubtDelaysNoRelease(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	all := l.instances("default.web", 4, instance.Healthy)
	z := all[0].zone
	l.news(z, preservation.Protected)
	l.timers.Score = localhealth.Max
	l.at += lossesAgain
	l.renew(z.service, l.at)
	require.Equal(t, []string{preservation.ReportRenewals}, l.sent())

	l.news(z, preservation.Recovering)
	l.fails(refused, all...)
	l.at += lossesAgain
	l.renew(z.service, l.at)
	require.Empty(t, l.sent())
	l.timers.Score = 0
	l.renew(z.service, l.at)
	require.Equal(t, []string{preservation.ReportLosses}, l.sent())
}

// A report that was repeated because its answer took long changes nothing. That says nothing about the next protection.
func TestAReleaseThatWasToldTwiceDelaysNoOther(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	z := l.instances("default.web", 4, instance.Healthy)[0].zone
	l.news(z, preservation.Protected)
	for range 2 {
		l.at += lossesAgain
		l.renew(z.service, l.at)
		require.Equal(t, []string{preservation.ReportRenewals}, l.sent())
	}
	for _, outcome := range []string{machines.Applied, machines.Unchanged} {
		l.onZoneAnswer(&answer{ask: ask{z: z, cmd: publish.Command{Name: preservation.ReportRenewals}}, answer: machines.Answer{Outcome: outcome}}, l.at)
	}
	l.news(z, preservation.Recovering)
	l.news(z, preservation.Protected)
	l.at += lossesAgain
	l.renew(z.service, l.at)
	require.Equal(t, []string{preservation.ReportRenewals}, l.sent())
}

// A report of losses that did not arrive is repeated with what is lost by then, be it long ago; when that is not too much
// any more, the zone is not protected.
func TestLossesThatWereNotHeardAreCountedAnew(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	all := l.instances("default.web", 4, instance.Healthy)
	z := all[0].zone
	l.fails(timedOut, all...)
	l.decide(all[0], l.at)
	require.Contains(t, l.sent(), preservation.ReportLosses)
	require.True(t, z.tripped)
	l.at += time.Hour
	l.renew(z.service, l.at)
	require.Equal(t, []string{preservation.ReportLosses}, l.sent())
	require.Equal(t, 4, z.losses.Expiring)
	for _, it := range all[1:] {
		l.count(it, instance.Result{OK: true})
	}
	l.at += lossesAgain
	l.renew(z.service, l.at)
	require.Empty(t, l.sent())
	require.False(t, z.protects())
}

// A takeout that was refused, or not sent, took nobody out: another instance may go instead.
func TestARefusedTakeoutLeavesItsPlace(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *still, first ask){
		"refused": func(l *still, first ask) {
			l.onAnswer(&answer{ask: first, answer: machines.Answer{Outcome: machines.Refused}})
		},
		"ended by somebody else": func(l *still, first ask) {
			l.end(first.t)
			l.onAnswer(&answer{ask: first, answer: machines.Answer{Outcome: machines.Refused}})
		},
		"not sent": func(l *still, first ask) {
			l.inFlight.waiting, l.inFlight.running = []ask{first}, 0
			l.claims[first.fence.Partition]++
			l.sendNext()
			l.claims[first.fence.Partition]--
			l.inFlight.running = 2 * maxAsking
		},
		"ended before it was sent": func(l *still, first ask) {
			l.end(first.t)
			l.inFlight.waiting, l.inFlight.running = []ask{first}, 0
			l.sendNext()
			l.inFlight.running = 2 * maxAsking
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newStill(setup(t))
			l.Preservations = nil
			all := l.instances("default.web", leastExpired+1, instance.Healthy)
			l.fails(refused, all...)
			for _, it := range all {
				l.decide(it, l.at)
			}
			require.Len(t, l.inFlight.waiting, leastExpired, "so many go in a sweep")
			first := l.inFlight.waiting[0]
			l.sent()
			end(l, first)
			if name == "refused" {
				for range 5 { // it was said, and is not said again at once: that takes no place either
					l.decide(first.t, l.at)
				}
			} else {
				l.sent()
			}
			last := all[leastExpired]
			last.retryAt = 0
			l.decide(last, l.at)
			require.True(t, last.inFlight)
		})
	}
}

// Namespaces that are dark make a node doubt what it sees of others; not of a zone or a namespace in which most of what it
// probes does answer: their evidence is nearer.
func TestWhatAnswersIsNotDarkenedFromElsewhere(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	dark := append(l.instances("red.web", 6, instance.Healthy), l.instances("blue.web", 6, instance.Healthy)...)
	ours := l.instances("green.web", 10, instance.Healthy)
	alone := l.instance("green.batch.a", instance.Healthy)
	other := l.instance("black.web.a", instance.Healthy)
	l.fails(timedOut, dark...)
	l.fails(timedOut, ours[0], alone, other)
	l.at += time.Second
	l.weigh(l.at)
	require.True(t, dark[0].zone.unreachable())
	require.True(t, other.zone.unreachable(), "nothing speaks for it but the others")
	require.False(t, ours[0].zone.unreachable())
	require.True(t, l.trusted(ours[0].zone, l.at))

	for _, it := range dark {
		l.count(it, instance.Result{OK: true})
		l.noteAnswer(it, &instance.Result{OK: true}, l.at)
	}
	l.at += time.Second
	l.weigh(l.at)
	require.False(t, dark[0].zone.unreachable())
	require.False(t, other.zone.unreachable())
	l.renewed(ours[0])
	l.renewed(other)
	require.Positive(t, ours[0].fails, "it was no doubt of this one that ended")
	require.Zero(t, other.fails)
}

// Where everything goes dark, what is probed rarely speaks for what is beside it until most of that failed, too.
func TestHowLongAnAnswerSpeaksForOthers(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	dark := append(l.instances("red.web", 6, instance.Healthy), l.instances("blue.web", 6, instance.Healthy)...)
	often, rare := l.instances("green.web", 3, instance.Healthy), l.instances("green.web", 8, instance.Healthy)[3:]
	for _, it := range rare {
		terms := *it.rec.Data.Terms
		terms.Check.Interval = "5m"
		it.rec.Data.Terms = &terms
	}
	l.at += time.Minute
	l.fails(timedOut, append(dark, often...)...)
	l.weigh(l.at)
	require.True(t, dark[0].zone.unreachable())
	require.True(t, l.trusted(often[0].zone, l.at))
	l.fails(timedOut, rare[:2]...)
	l.weigh(l.at)
	require.True(t, often[0].zone.unreachable())
}

// Who is deregistered by what this node reports, and is not known any more, keeps its place in the sweep; who is found again
// gives it back, of whatever generation it is.
func TestWhoIsDeregisteredKeepsItsPlace(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	all := l.instances("default.web", 20, instance.Healthy)
	bad, out := all[:8], []*tracked(nil)
	l.fails(refused, bad...)
	round := func() {
		for _, it := range bad {
			if !it.gone() {
				it.retryAt = 0
				l.decide(it, l.at)
			}
		}
		for _, a := range l.inFlight.waiting {
			require.Equal(t, instance.ReportFailed, a.cmd.Name)
			rec := *a.t.rec
			rec.State = instance.Deregistered // maxFailures: from healthy at once
			l.revision++
			l.take(&index.Item{Key: a.t.key, State: rec.State, Revision: l.revision, Value: &rec})
			out = append(out, a.t)
		}
		l.sent()
	}
	for range 5 {
		round()
		l.at += 200 * time.Millisecond
	}
	require.Len(t, out, bound(len(all)))
	for _, it := range out[:2] { // so many that there is a place in what is left of the service
		l.instance(it.key, instance.Healthy)
	}
	round()
	require.Len(t, out, bound(len(all))+1)
	l.at += expirySweep
	round()
	require.Len(t, out, bound(len(all))+1+leastExpired)
}

// What speaks for an instance is told in any doubt: that one which is held down is calm, and what an observer sees pass.
func TestDoubtHidesNobody(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	held, unsteady := l.instance("default.web.a", instance.Flapping), l.instances("default.web", 3, instance.Healthy)[0]
	held.rec.Data.Flap = &instance.Flap{}
	for n := range 21 {
		held.flaps.Add(true)
		unsteady.flaps.Add(n%2 == 0)
	}
	l.timers.Score = localhealth.Max
	l.decide(held, l.at)
	l.decide(unsteady, l.at)
	require.Equal(t, []string{instance.ReportCalm}, l.sent())
	l.timers.Score = 0
	l.decide(unsteady, l.at)
	require.Equal(t, []string{instance.ReportFlap}, l.sent())

	told, err := l.NC.SubscribeSync(l.Names.Observations())
	require.NoError(t, err)
	unsteady.owned, l.timers.Score = false, localhealth.Max
	l.share(unsteady, &refused)
	l.share(unsteady, &instance.Result{OK: true})
	m, err := told.NextMsg(patience)
	require.NoError(t, err)
	var o quorum.Observation
	require.NoError(t, json.Unmarshal(m.Data, &o))
	require.True(t, o.OK, "what speaks against it is not told")
}

// While NATS is away nothing is asked about zones: nobody could answer.
func TestNothingIsAskedOfNobody(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := newStill(w)
	z := l.instances("default.web", 4, instance.Healthy)[0].zone
	l.news(z, preservation.Protected)
	l.at += lossesAgain
	l.NC = new(nats.Conn) // one that is not connected
	l.renew(z.service, l.at)
	require.Empty(t, l.sent())
	l.NC = w.NC
	l.renew(z.service, l.at)
	require.Equal(t, []string{preservation.ReportRenewals}, l.sent())
}
