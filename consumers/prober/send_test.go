package prober

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// What waits for its turn is not sent after an amnesty, nor when the partition was lost, or lost and claimed again.
func TestReportsThatWaitAreFenced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*loop, *shares){
		"an amnesty":        func(l *loop, _ *shares) { l.resetDeadlines("a test") },
		"lost":              func(l *loop, s *shares) { s.give(0); l.claim(0, l.now()) },
		"lost and back":     func(l *loop, s *shares) { s.give(0); l.claim(0, 1); s.give(cluster.All); l.claim(cluster.All, 2) },
		"back at once":      func(l *loop, s *shares) { s.give(0); s.give(cluster.All); l.claim(cluster.All, 1) },
		"lost, and untold":  func(l *loop, s *shares) { s.give(0); l.claim(cluster.All, 1) },
		"nothing, it stays": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := &shares{set: cluster.All}
			l := (&Prober{Shares: own, Preservations: new(index.Index)}).newLoop(t.Context())
			l.claim(cluster.All, 0)
			rec := &instance.Record{Namespace: "default", Service: "web", Data: instance.Known{Terms: &instance.Terms{Check: quick}}, Generation: 1}
			at := l.track(&index.Item{Key: "default.web.a", State: instance.Healthy}, rec, true, 1)
			l.update(at, &index.Item{Key: at.key, State: instance.Healthy, Revision: 1}, rec, 1)
			l.inFlight.running = maxAsking // all that may be under way is
			require.True(t, l.report(at, 1, instance.ReportFailed, l.failure(at)))
			l.reportZone(at.zone, "losses", l.losses(at.zone, 1, all), 1)
			require.Len(t, l.inFlight.waiting, 2)
			for _, a := range l.inFlight.waiting {
				require.NotEmpty(t, a.cmd.Fence)
			}
			if change == nil {
				require.True(t, l.stillTrue(&l.inFlight.waiting[0]) && l.stillTrue(&l.inFlight.waiting[1]))
				return
			}
			change(l, own)
			l.inFlight.running = 0
			l.sendNext()
			require.Empty(t, l.inFlight.waiting)
			require.Zero(t, l.inFlight.running, "none was sent")
			require.False(t, at.inFlight && !at.gone())
		})
	}
}

// reports counts what became of reports.
type reports struct {
	noMeter
	mu       sync.Mutex
	outcomes map[string]int
}

func (r *reports) Reported(_, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = map[string]int{}
	}
	r.outcomes[outcome]++
}

func (r *reports) count(outcome string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[outcome]
}

// While the stream of commands refuses, reports are sent again with back-off, and when it does not any more, they are told.
func TestReportsThatAreRefused(t *testing.T) {
	t.Parallel()
	w, c, told, key := setup(t), &script{}, &reports{}, "default.web.a"
	p := w.prober(c)
	p.Metrics = told
	w.start(p)
	c.set(key, refused)
	w.register(t, key, instance.RegisterBody{Check: quick})
	w.becomes(t, key, instance.Unhealthy, patience)
	s, err := w.JS.Stream(w.ctx, streams.CommandStream)
	require.NoError(t, err)
	cfg := s.CachedInfo().Config
	full := cfg
	full.MaxMsgSize = 1
	_, err = w.JS.UpdateStream(w.ctx, full)
	require.NoError(t, err)
	c.set(key, instance.Result{OK: true})
	require.Eventually(t, func() bool { return told.count("unanswered") > 0 }, patience, time.Millisecond)
	require.Never(t, func() bool { return told.count("unanswered") > 6 }, 4*time.Second, 10*time.Millisecond)
	require.Greater(t, told.count("unanswered"), 1)
	_, err = w.JS.UpdateStream(w.ctx, cfg)
	require.NoError(t, err)
	w.becomes(t, key, instance.Healthy, 2*unsaidMost)
}

// Nothing that puts other looks off puts off the next try: neither protection nor what is probed or heard meanwhile.
func TestRefusedReportsAreNotForgotten(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var now time.Duration
	l := (&Prober{Deps: w.Deps, Shares: cluster.Everything{}, clock: func() time.Duration { return now }}).newLoop(t.Context())
	l.claim(cluster.All, 0)
	rec := &instance.Record{Namespace: "default", Service: "web", ID: "a", State: instance.Unhealthy, Generation: 1, Data: instance.Known{Terms: &instance.Terms{Check: quick}}}
	l.inFlight.running = 2 * maxAsking // nothing is really sent
	l.take(&index.Item{Key: "default.web.a", State: instance.Unhealthy, Revision: 1, Value: rec})
	at := l.tracked["default.web.a"]
	at.passes, at.probing = at.rec.Data.Rise(), true
	l.decide(at, now)
	var pauses []time.Duration
	for range 6 {
		require.Len(t, l.inFlight.waiting, 1)
		l.onAnswer(&answer{ask: l.inFlight.waiting[0], err: errors.New("refused")})
		l.inFlight.waiting = nil
		pause := at.nextReport - now
		pauses = append(pauses, pause)
		for range 5 {
			now += pause / 6
			at.retryAt = now + time.Hour
			l.decide(at, now)
			l.plan(at, now)
			require.Empty(t, l.inFlight.waiting)
		}
		now = at.nextReport
		l.run()
	}
	for i, pause := range pauses {
		most := min(unsaidAgain<<i, unsaidMost)
		require.LessOrEqual(t, pause, most)
		require.GreaterOrEqual(t, pause, most/2)
	}
	l.onAnswer(&answer{ask: l.inFlight.waiting[0], answer: machines.Answer{Outcome: machines.Unchanged}})
	require.Zero(t, at.unanswered)
}
