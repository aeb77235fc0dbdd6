package prober

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober/watchers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams/publish"
)

// Whoever fills the places of the watchers does not make a drain end without those who found none.
func TestATurnedAwayWatcherIsWaitedFor(t *testing.T) {
	t.Parallel()
	w, told := setup(t), &standings{}
	p := w.prober(&script{})
	p.Metrics = told
	w.start(p)
	key := "default.crowd.a"
	w.register(t, key, instance.RegisterBody{})
	w.becomes(t, key, instance.Healthy, patience)
	for i := range watchers.Max {
		w.acknowledge(t, "default.crowd", fmt.Sprint("made-up-", i), 1<<40)
	}
	require.Eventually(t, func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return told.last.Watchers == watchers.Max
	}, patience, 10*time.Millisecond)
	w.acknowledge(t, "default.crowd", "honest", 1)
	w.tell(t, "instance", key, instance.CommandShutdown, instance.ShutdownBody{Drain: "4s"})
	w.becomes(t, key, instance.Draining, patience)
	w.beat(t, key, `{"inFlight":0}`)
	w.becomes(t, key, instance.Deregistered, patience)
	require.Contains(t, w.events(t, key), "drain.expired", "it had all its time")
}

// What did not fit may have been anybody's heartbeat.
func TestDroppedHeartbeatsAreNoSilence(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := w.prober(&script{}).newLoop(w.ctx)
	l.beats = make(chan *nats.Msg, 1)
	require.NoError(t, l.listen())
	defer l.unsubscribe()
	l.checkDropped()
	require.Zero(t, l.floor, "nothing was dropped")
	l.owned = cluster.All
	leaving := &tracked{idle: true}
	l.service("default.leaving").draining = map[*tracked]struct{}{leaving: {}}
	missed := &ask{cmd: publish.Command{Name: instance.ReportMissed}}
	require.True(t, l.stillTrue(missed))
	for range 50 {
		w.beat(t, "default.web.a", "")
	}
	require.NoError(t, w.NC.Flush())
	require.Eventually(t, func() bool { l.checkDropped(); return l.floor > 0 }, patience, 5*time.Millisecond)
	require.Zero(t, l.epoch, "what probes found is known")
	require.False(t, l.stillTrue(missed), "a report that waits is of a silence that may be none")
	require.False(t, leaving.idle, "a call may have begun")
	require.Zero(t, l.unheard, "and so is what watchers have confirmed")
}

// Of confirmations that did not fit only the early end of drains is put off: whoever may only confirm turns nothing off.
func TestDroppedConfirmationsPutOffDrainsOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := w.prober(&script{}).newLoop(w.ctx)
	l.acks = make(chan *nats.Msg, 1)
	require.NoError(t, l.listen())
	defer l.unsubscribe()
	for range 50 {
		w.acknowledge(t, "default.web", "w", 1)
	}
	require.NoError(t, w.NC.Flush())
	require.Eventually(t, func() bool { l.checkDropped(); return l.unheard > 0 }, patience, 5*time.Millisecond)
	require.Zero(t, l.floor, "nobody's silence is forgiven")
	require.Zero(t, l.epoch)
	require.False(t, l.listened(&tracked{fresh: true}, l.now()))
}

// Names that are no services cost this node no more than one service does; who finds no room there is waited for when the
// service comes. A confirmation looks at the drains that it reaches, however many instances there are.
func TestConfirmationsOfNothingAreBounded(t *testing.T) {
	t.Parallel()
	l := (&Prober{Shares: cluster.Everything{}}).newLoop(t.Context())
	l.owned = cluster.All
	ready := map[*tracked]struct{}{}
	say := func(service, watcher string, index uint64) {
		l.acknowledge(&nats.Msg{Subject: l.Names.Acknowledge("default", service), Data: fmt.Appendf(nil, `{"watcher":%q,"index":%d}`, watcher, index)}, ready)
	}
	for i := range 2 * watchers.Max {
		say(fmt.Sprint("none-", i), "w", 1)
	}
	require.Len(t, l.services, watchers.Max)
	require.Positive(t, l.strays.Turned)
	say("none-0", "w", 2)
	require.EqualValues(t, 2, l.services["default.none-0"].watchers.Of("w").Index, "it has its place")
	web := l.service("default.web")
	a, b, c := &tracked{service: web}, &tracked{service: web, drainAt: 5}, &tracked{service: web, drainAt: 9}
	web.join(a, l.strays.Turned)
	require.Equal(t, l.strays.Turned, web.watchers.Turned, "somebody may watch it who was turned away")
	web.draining = map[*tracked]struct{}{b: {}, c: {}}
	say("web", "w", 4)
	require.Empty(t, ready)
	say("web", "w", 7)
	require.Equal(t, map[*tracked]struct{}{b: {}}, ready)
}

// What a heartbeat makes panic is that heartbeat: the loop looks after all instances.
func TestAHeartbeatThatPanics(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := w.prober(&script{}).newLoop(w.ctx)
	l.tracked["default.web.a"] = &tracked{owned: true} // without a record, which cannot be
	before := panics.Counts()["heartbeat"]
	l.onHeartbeat(&nats.Msg{Subject: w.Names.Heartbeat("default", "web", "a"), Data: []byte(`{"generation":1}`)}, 0)
	require.Equal(t, before+1, panics.Counts()["heartbeat"])
}
