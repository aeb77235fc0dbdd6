package prober

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/instance"
)

// What waits for its turn is not sent after an amnesty, nor when the partition was lost, or lost and claimed again.
func TestReportsThatWaitAreFenced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*loop, *shares){
		"an amnesty":        func(l *loop, _ *shares) { l.amnesty("a test") },
		"lost":              func(l *loop, s *shares) { s.give(0); l.claim(0, l.now()) },
		"lost and back":     func(l *loop, s *shares) { s.give(0); l.claim(0, 1); s.give(consumers.All); l.claim(consumers.All, 2) },
		"back at once":      func(l *loop, s *shares) { s.give(0); s.give(consumers.All); l.claim(consumers.All, 1) },
		"lost, and untold":  func(l *loop, s *shares) { s.give(0); l.claim(consumers.All, 1) },
		"nothing, it stays": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := &shares{set: consumers.All}
			l := (&Prober{Shares: own, Preservations: new(kv.Index)}).newLoop(t.Context())
			l.claim(consumers.All, 0)
			rec := &instance.Record{Namespace: "default", Service: "web", Data: instance.Known{Terms: &instance.Terms{Check: quick}}, Generation: 1}
			at := l.track(&kv.Item{Key: "default.web.a", State: instance.Healthy}, rec, true, 1)
			l.update(at, &kv.Item{Key: at.key, State: instance.Healthy, Revision: 1}, rec, 1)
			l.asking.running = maxAsking // all that may be under way is
			require.True(t, l.ask(at, 1, instance.ReportFailed, l.failure(at)))
			l.tell(at.zone, "losses", l.losses(at.zone, 1, all), 1)
			require.Len(t, l.asking.waiting, 2)
			for _, a := range l.asking.waiting {
				require.NotEmpty(t, a.cmd.Fence)
			}
			if change == nil {
				require.True(t, l.holds(&l.asking.waiting[0]) && l.holds(&l.asking.waiting[1]))
				return
			}
			change(l, own)
			l.asking.running = 0
			l.pump()
			require.Empty(t, l.asking.waiting)
			require.Zero(t, l.asking.running, "none was sent")
			require.False(t, at.asking && !at.gone())
		})
	}
}
