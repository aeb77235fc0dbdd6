package consumers

import (
	"fmt"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Series are the words that a [Meter] hears, as far as they are known beforehand. A rate sees the first increase of a
// counter only if the counter was there before, at 0.
type Series struct {
	Consumers []string // that may be restarted, or give messages up
	Views     []string
	Effects   []string // of machines: "service.apply"
	Outcomes  []string // of tries of effects
	Problems  []string // that are reconciled
}

// SeriesOf are those of the consumers of some machines.
func SeriesOf(ms []*machines.Machine) Series {
	s := Series{Outcomes: []string{outcomeDone, outcomeFailed, outcomeUnwanted}, Problems: []string{problemValueLost, problemValueOlder, problemEventsLost}}
	for n := range streams.Partitions {
		s.Consumers = append(s.Consumers, partitionName(n))
	}
	for _, m := range ms {
		for _, fx := range m.Effects {
			s.Consumers, s.Effects = append(s.Consumers, streams.WorkerName(m.Name, fx.Name)), append(s.Effects, m.Name+"."+fx.Name)
		}
		for _, v := range m.Views {
			s.Consumers, s.Views = append(s.Consumers, viewName(m, v)), append(s.Views, viewName(m, v))
		}
	}
	return s
}

// The outcomes of a try of an effect.
const (
	outcomeDone     = "done"
	outcomeFailed   = "failed"
	outcomeUnwanted = "unwanted" // nobody waits for it any more
)

func partitionName(n int) string { return fmt.Sprintf("p%02d", n) }

func viewName(m *machines.Machine, v machines.View) string { return "view-" + m.Name + "-" + v.Name }
