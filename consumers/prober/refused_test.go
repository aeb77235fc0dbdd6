package prober

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams/publish"
)

// A report about a zone that is refused as one of an earlier claim is nobody's decision: the zone stays protected.
func TestARefusedReportDecidesNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := (&Prober{Deps: w.Deps, Shares: &shares{set: cluster.All}, Preservations: new(index.Index)}).newLoop(t.Context())
	l.claim(cluster.All, 0)
	rec := &instance.Record{Namespace: "default", Service: "web", Data: instance.Known{Terms: &instance.Terms{Check: quick}}, Generation: 1}
	at := l.track(&index.Item{Key: "default.web.a", State: instance.Healthy}, rec, true, 1)
	l.update(at, &index.Item{Key: at.key, State: instance.Healthy, Revision: 1}, rec, 1)
	z := at.zone
	for outcome, tripped := range map[string]bool{machines.Refused: true, machines.Dead: true, machines.Unchanged: false} {
		z.tripped = true
		a := &answer{ask: ask{z: z, cmd: publish.Command{Name: preservation.ReportLosses}}, answer: machines.Answer{Outcome: outcome}}
		l.inFlight.running = 1
		l.onAnswer(a)
		require.Equal(t, tripped, z.tripped, outcome)
	}
}
