package prober

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
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
	for i := range maxWatchers {
		w.acknowledge(t, "default.crowd", fmt.Sprint("made-up-", i), 1<<40)
	}
	require.Eventually(t, func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return told.last.Watchers == maxWatchers
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
	defer l.hush()
	l.deafened()
	require.Zero(t, l.epoch, "nothing was dropped")
	for range 50 {
		w.beat(t, "default.web.a", "")
	}
	require.NoError(t, w.NC.Flush())
	require.Eventually(t, func() bool { l.deafened(); return l.epoch > 0 }, patience, 5*time.Millisecond)
	require.Positive(t, l.floor)
}
