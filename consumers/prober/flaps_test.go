package prober

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

// beats makes it one that sends heartbeats.
func beats(t *tracked) *tracked {
	terms := *t.rec.Data.Terms
	terms.Check = ttl("2s", "1s")
	t.rec.Data.Terms, t.kind = &terms, instance.CheckTTL
	return t
}

// unsteady makes its results change all the time.
func unsteady(t *tracked) {
	for n := range 21 {
		t.flaps.Add(n%2 == 0)
	}
}

// What is held down for flapping is never the last of its service that is found.
func TestFlappingLeavesOne(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	l.at = time.Minute
	lone := l.instance("default.lone.a", instance.Healthy)
	require.False(t, l.mayHold(lone, l.at))
	pair := l.instances("default.pair", 2, instance.Healthy)
	require.True(t, l.mayHold(pair[0], l.at))
	pair[0].lastReport, pair[0].inFlight = lastReport{what: instance.ReportFlap}, true
	require.False(t, l.mayHold(pair[1], l.at), "the other one is on its way to be held down")
	pair[0].inFlight, pair[0].state = false, instance.Flapping
	require.False(t, l.mayHold(pair[1], l.at))
	pair[0].state = instance.Unhealthy
	require.False(t, l.mayHold(pair[1], l.at))
	trio := l.instances("default.trio", 3, instance.Healthy)
	trio[0].state = instance.Flapping
	require.True(t, l.mayHold(trio[2], l.at))
	for name, other := range map[string]func(*tracked){
		"suspect":              func(it *tracked) { it.state = instance.Suspect },
		"in maintenance":       func(it *tracked) { it.rec.Data.Maintenance = &instance.Maintenance{} },
		"without weight":       func(it *tracked) { it.rec.Data.Pinned = new(int) },
		"about to be failed":   func(it *tracked) { it.inFlight, it.lastReport.what = true, instance.ReportFailed },
		"refusing in its turn": func(it *tracked) { l.fails(refused, it) },
		"silent in its turn":   func(it *tracked) { beats(it).seen = 0 },
		"about to be suspect":  func(it *tracked) { it.await, it.lastReport.what = it.revision+1, instance.ReportMissed },
	} {
		pair := l.instances("default."+strings.ReplaceAll(name, " ", "-"), 2, instance.Healthy)
		other(pair[1])
		require.False(t, l.mayHold(pair[0], l.at), "the other one is %s", name)
	}
	guarded := l.instances("default.guarded", 2, instance.Healthy)
	guarded[1].rec.Data.Protected = true
	l.fails(refused, guarded[1])
	require.True(t, l.mayHold(guarded[0], l.at), "the other one stays")
}

// Beside others that are dead in their zones, and go one after the other, one that flaps is what is left.
func TestFlappingBesideTheDead(t *testing.T) {
	t.Parallel()
	l := newStill(setup(t))
	var all []*tracked
	for i := range 4 {
		it := l.instance(fmt.Sprint("default.web.i-", i), instance.Healthy)
		rec := *it.rec
		rec.Data.Zone, rec.Generation = fmt.Sprint("z", i), 2
		l.revision++
		l.take(&index.Item{Key: it.key, State: rec.State, Revision: l.revision, Value: &rec})
		it.passes, it.answers = rec.Data.Rise(), l.at
		all = append(all, it)
	}
	unsteady(all[0])
	l.fails(refused, all[1:]...)
	for _, it := range all[1:] {
		l.decide(it, l.at)
	}
	require.Equal(t, []string{instance.ReportFailed, instance.ReportFailed}, l.sent(), "the third waits for the next sweep")
	l.decide(all[0], l.at)
	require.Empty(t, l.sent())
	l.count(all[3], instance.Result{OK: true})
	l.decide(all[0], l.at)
	require.Equal(t, []string{instance.ReportFlap}, l.sent())
}

// While NATS is away, silence is this node's own.
func TestSilenceOfADeafNodeIsNotCalm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := newStill(w)
	held := beats(l.instance("default.web.a", instance.Flapping))
	held.rec.Data.Flap = &instance.Flap{}
	unsteady(held)
	l.at += 10 * time.Second
	l.NC = new(nats.Conn) // one that is not connected
	l.decide(held, l.at)
	require.Empty(t, l.sent())
	l.NC = w.NC
	l.decide(held, l.at)
	require.Equal(t, []string{instance.ReportCalm}, l.sent())
}

// One that is held down and becomes the last that clients could find is let go, if it answers, and is not held again for
// what it did before.
func TestTheLastOneIsLetGo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := newStill(w)
	pair := l.instances("default.pair", 2, instance.Healthy)
	held, other := pair[0], pair[1]
	turns := func(it *tracked, state string, flap *instance.Flap) {
		rec := *it.rec
		rec.State, rec.Data.Flap = state, flap
		l.revision++
		l.take(&index.Item{Key: it.key, State: state, Revision: l.revision, Value: &rec})
	}
	unsteady(held)
	turns(held, instance.Flapping, &instance.Flap{Until: time.Now().Add(time.Hour)})
	held.passes = 1
	l.decide(held, l.at)
	require.Empty(t, l.sent(), "the other one is found")
	turns(other, instance.Draining, nil)
	held.passes = 0
	l.decide(held, l.at)
	l.NC, held.passes = new(nats.Conn), 1 // one that is not connected
	l.decide(held, l.at)
	require.Empty(t, l.sent(), "it does not answer, and then nobody could hear it")
	l.NC = w.NC
	l.decide(held, l.at)
	require.Len(t, l.inFlight.waiting, 1)
	require.Contains(t, string(l.inFlight.waiting[0].cmd.Body), `"last":true`)
	require.Equal(t, []string{instance.ReportCalm}, l.sent())
	held.inFlight = false
	turns(held, instance.Healthy, nil)
	turns(other, instance.Healthy, nil)
	l.decide(held, l.at)
	require.Empty(t, l.sent())
}
