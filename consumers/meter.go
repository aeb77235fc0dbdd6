package consumers

import (
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Meter is told what happens; all methods must be quick and safe for concurrent use.
type Meter interface {
	Transition(machine, from, to, input string, stayed time.Duration)
	Refused(machine, code string)
	Conflict(machine string)
	Attempt(effect, outcome string)
	DeadLetter(consumer string)
	Restarted(consumer string)
	Reconciled(machine, problem string)
	Skipped(view string)
	DropFailed(machine string)
}

// NoMeter measures nothing.
type NoMeter struct{}

func (NoMeter) Transition(string, string, string, string, time.Duration) {}
func (NoMeter) Refused(string, string)                                   {}
func (NoMeter) Conflict(string)                                          {}
func (NoMeter) Attempt(string, string)                                   {}
func (NoMeter) DeadLetter(string)                                        {}
func (NoMeter) Restarted(string)                                         {}
func (NoMeter) Reconciled(string, string)                                {}
func (NoMeter) Skipped(string)                                           {}
func (NoMeter) DropFailed(string)                                        {}

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
func SeriesOf(ms ...*machines.Machine) Series {
	s := Series{Outcomes: []string{OutcomeDone, OutcomeFailed, OutcomeUnwanted}, Problems: []string{ProblemValueLost, ProblemValueOlder, ProblemEventsLost}}
	for n := range streams.Partitions {
		s.Consumers = append(s.Consumers, PartitionName(n))
	}
	for _, m := range ms {
		for _, fx := range m.Effects {
			s.Consumers, s.Effects = append(s.Consumers, streams.WorkerName(m.Name, fx.Name)), append(s.Effects, m.Name+"."+fx.Name)
		}
		for _, v := range m.Views {
			s.Consumers, s.Views = append(s.Consumers, ViewName(m, v)), append(s.Views, ViewName(m, v))
		}
	}
	return s
}

// The outcomes of a try of an effect.
const (
	OutcomeDone     = "done"
	OutcomeFailed   = "failed"
	OutcomeUnwanted = "unwanted" // nobody waits for it any more
)

// PartitionName is the name of the consumer of a partition.
func PartitionName(n int) string { return fmt.Sprintf("p%02d", n) }

// ViewName is the name of the consumer of a view.
func ViewName(m *machines.Machine, v machines.View) string { return "view-" + m.Name + "-" + v.Name }

// What a reconciliation finds that cannot be put right.
const (
	ProblemValueLost  = "value-lost"  // there are events or answers, but no value
	ProblemValueOlder = "value-older" // the value is older than its events or answers
	ProblemEventsLost = "events-lost" // events that the value says were stored are gone

	ProblemRepaired = "repaired" // the value could not be used, and somebody has given another one

	ProblemRestored = "restored" // the value is that of a backup
)
