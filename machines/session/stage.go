package session

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Stage is what is done in a state, or in one step of it: the specification's table of handlers.
type Stage struct {
	State   string
	Step    string // of the state, where it has several
	Effect  string
	Done    string // report
	Failed  string // report
	Next    string // state; the machine has the edge where it is empty
	Timeout time.Duration
	Retries int             // beyond the first attempt
	Wait    time.Duration   // before the second attempt, doubled by each further one up to half an hour, of which at least a half passes; 0 is any part of 5 s, up to 5 min
	Code    string          // of the failure, unless it is TIMEOUT
	Codes   map[string]bool // further codes that stand for themselves, and whether such a failure may be repeated
	Started string          // event when an attempt begins
	Ended   []string        // events when it has succeeded
	Body    any             // of the report
	Doc     string
	Firm    bool // not paused, cancelled or rolled back by itself
}

// Kind is a machine of sessions, as far as the shared edges need to know it. New completes it.
type Kind[D any] struct {
	Prefix    string // of the names of its events, such as provisioning.db
	Stages    []Stage
	Patience  func(*D) time.Duration     // without progress for so long, an attempt has failed
	RollsBack func(*D) bool              // whether a failure is followed by an undo without being asked
	DryRun    func(*machines.Tx[D]) bool // whether the plan is all
	Approval  func(*machines.Tx[D]) bool // whether the plan waits for approve
	Resources func(*D, *Stage) []Entry
	Actions   func(d *D, state string) []Action // of the undo in a state, in order
	About     func(*machines.Tx[D]) map[string]any
	Take      func(k *Kind[D], s *machines.Tx[D], g *Stage, more map[string]any) // the result of a stage into the data; more goes into its events
	Over      func(*D)                                                           // what the data says no more when all is taken back
	Failing   func(*D, machines.Failure)                                         // what the failure that ends a session says of its ledger; nil where it says nothing

	of func(*D) Parts
}

// New is a kind whose data embeds the parts.
func New[D any, P interface {
	*D
	Parts
}](k Kind[D],
) *Kind[D] {
	k.of = func(d *D) Parts { return P(d) }
	return &k
}

// first reports whether no stage before it is in the same state, last whether none after it is.
func first(stages []Stage, i int) bool { return i == 0 || stages[i-1].State != stages[i].State }

func last(stages []Stage, i int) bool {
	return i == len(stages)-1 || stages[i+1].State != stages[i].State
}

// Stage is that of a state and a step, or its first one; nil where there is none.
func (k *Kind[D]) Stage(state, step string) *Stage {
	for i := range k.Stages {
		if g := &k.Stages[i]; g.State == state && (step == "" || g.Step == step) {
			return g
		}
	}
	return nil
}

// now is the stage before the step of the machine.
func (k *Kind[D]) now(s *machines.Tx[D]) *Stage {
	return k.Stage(s.State(), k.of(s.Data).course().Step)
}

// until is when an attempt, or the wait before one, ends. Phases in which somebody has to act have no end.
func (k *Kind[D]) until(s *machines.Tx[D]) time.Time {
	c := k.of(s.Data).course()
	switch c.Phase {
	case RetryWait:
		return c.NextTry
	case Executing:
		g := k.Stage(s.Entity().State, c.Step)
		end, silent := c.AttemptAt.Add(g.Timeout), c.LastProgressAt.Add(k.Patience(s.Data))
		if silent.Before(end) {
			return silent
		}
		return end
	}
	return time.Time{}
}

// failure is why an attempt ended: what the provider says under the code of the stage, or its time.
func (k *Kind[D]) failure(s *machines.Tx[D]) machines.Failure {
	g := k.now(s)
	f, ok := s.Body.(*machines.Failure)
	if !ok || f == nil {
		return machines.Failure{Code: "TIMEOUT", Message: fmt.Sprintf("attempt %d of %s did not end within %s, or made no progress", k.of(s.Data).course().Attempt, g.State, g.Timeout), Retryable: true, At: s.Now()}
	}
	out := *f
	if _, own := g.Codes[out.Code]; own {
		return out
	}
	if out.Code != g.Code {
		out.Message = out.Code + ": " + out.Message
	}
	out.Code = g.Code
	return out
}

// The waits of a stage that has none of its own, and the longest of one that has.
const (
	firstWait   = 5 * time.Second
	mostWait    = 5 * time.Minute
	mostOwnWait = 30 * time.Minute
)

// wait is a random part of what the stage says, and never less than the provider asks for.
func (k *Kind[D]) wait(s *machines.Tx[D], f *machines.Failure) time.Duration {
	before := k.of(s.Data).course().Attempt - 1
	least, most := time.Duration(0), min(firstWait<<before, mostWait)
	if own := k.now(s).Wait; own > 0 {
		most = min(own<<before, mostOwnWait)
		least = most / 2
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", s.Entity().Key(), s.State(), s.Entity().Version)
	part := time.Duration(float64(h.Sum64()>>11) / (1 << 53) * float64(most-least))
	return max(least+part, 500*time.Millisecond, f.RetryAfter)
}

// Planned are the actions of the undo of a state, without what is skipped.
func (k *Kind[D]) Planned(d *D, state string) []Action {
	if k.of(d).trail().LettingIn {
		return []Action{{Name: ActionAdmit, Kind: KindRuntime, Stop: true}}
	}
	skip := k.of(d).trail().Skip
	return slices.DeleteFunc(slices.Clone(k.Actions(d, state)), func(a Action) bool { return slices.Contains(skip, a.Name) })
}

// Intend writes into the ledger what a stage may create. What is there, and was not taken back, stays.
func (k *Kind[D]) Intend(s *machines.Tx[D], g *Stage) {
	t := k.of(s.Data).trail()
	ledger := slices.Clone(t.Ledger)
	for _, e := range k.Resources(s.Data, g) {
		if !slices.ContainsFunc(ledger, func(old Entry) bool { return old.Kind == e.Kind && old.Name == e.Name }) {
			e.State, e.At = Intended, s.Now()
			ledger = append(ledger, e)
		}
	}
	t.Ledger = ledger
}

// Mark sets the state of what is in the ledger of these kinds; without kinds, of everything.
func (k *Kind[D]) Mark(s *machines.Tx[D], state string, kinds ...string) {
	k.MarkIf(s, state, func(e *Entry) bool { return len(kinds) == 0 || slices.Contains(kinds, e.Kind) })
}

// MarkIf sets the state of the entries that are chosen. Each change is an event, but where an undo was skipped. Whether an attempt that has failed made what was intended is not known: its undo is told as such.
func (k *Kind[D]) MarkIf(s *machines.Tx[D], state string, chosen func(*Entry) bool) {
	t := k.of(s.Data).trail()
	ledger, skipped := slices.Clone(t.Ledger), k.skipped(s)
	for i := range ledger {
		if e := &ledger[i]; chosen(e) && e.State != state {
			was := e.State
			e.State, e.At = state, s.Now()
			more := map[string]any{"resource": Change{Type: e.Kind, ID: e.Name, Action: state}}
			if state == Undone {
				if slices.Contains(skipped, e.Kind) {
					continue
				}
				more["resource"] = Change{Type: e.Kind, ID: e.Name, Action: "deleted"}
				if was == Intended {
					more["intended"] = true
				}
			}
			k.Emit(s, EventResourceChanged, more)
		}
	}
	t.Ledger = ledger
}

// skipped are the kinds of which an undo leaves out actions.
func (k *Kind[D]) skipped(s *machines.Tx[D]) (kinds []string) {
	names := slices.Clone(k.of(s.Data).trail().Skip)
	if results, ok := s.Body.(*Results); ok {
		for _, r := range results.Actions {
			if r.Skipped {
				names = append(names, r.Action)
			}
		}
	}
	for _, a := range k.Actions(s.Data, s.State()) {
		if slices.Contains(names, a.Name) {
			kinds = append(kinds, a.Kind)
		}
	}
	return kinds
}
