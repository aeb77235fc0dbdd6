package relay

import (
	"maps"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

// hopeless: it was said that waiting does not mend it.
func (p Policy) hopeless(o *Observation) bool { return o.Fatal }

// work reports whether there is something that should move.
func work(o *Observation) bool { return o.Lag > 0 || o.Problem != "" }

func (p Policy) stuck(o *Observation) bool { return work(o) && o.Still >= p.stallSeconds() }

// behind and caughtUp leave a gap between them, so that a relay at a threshold does not flutter.
func (p Policy) behind(o *Observation) bool {
	return o.Lag >= p.lagRows() || o.Lag > 0 && o.Oldest >= p.lagSeconds()
}

func (p Policy) caughtUp(o *Observation) bool {
	return o.Lag == 0 || o.Lag < p.lagRows()/2 && o.Oldest < p.lagSeconds()/2
}

// moves: it runs, and nothing holds it up.
func (p Policy) moves(o *Observation) bool {
	return o.Active && !o.Fatal && o.Problem == "" && !p.stuck(o)
}

// Stale is how old the evidence of a relay may grow while nothing changes.
const Stale = time.Minute

// Meaningful reports whether an observation says something that the relay does not know: it would change the state or a
// condition, other shards are owned by others, rows failed or were redriven, or what is known is older than [Stale].
func Meaningful(e *machines.Entity, o *Observation) bool {
	d, ok := e.Data.(*Data)
	switch {
	case e.State == machines.None || e.State == Deleted:
		return false
	case !ok || d.Seen == nil || o.At.Sub(d.SeenAt) >= Stale:
		return true
	}
	if c, looked := e.Condition(Observed); looked && c.Status != machines.True {
		return true
	}
	p, was := d.Policy, d.Seen
	if (o.Problem != "") != (was.Problem != "") || o.Active != was.Active ||
		!slices.Equal(keys(o.Parked), keys(was.Parked)) || o.Waiting != was.Waiting || !maps.Equal(owners(o), owners(was)) ||
		o.Rows["FAILED"] != was.Rows["FAILED"] || o.Rows["DEAD"] != was.Rows["DEAD"] {
		return true
	}
	switch e.State {
	case Running:
		return p.hopeless(o) || p.stuck(o) || p.behind(o)
	case Lagging:
		return p.hopeless(o) || p.stuck(o) || p.caughtUp(o)
	case Stalled:
		return p.hopeless(o) || p.moves(o)
	case Failed:
		return p.moves(o)
	}
	return false
}

func keys(parked []Parked) []string {
	list := make([]string, len(parked))
	for i, p := range parked {
		list[i] = p.key()
	}
	slices.Sort(list)
	return list
}

func owners(o *Observation) map[int]string {
	m := map[int]string{}
	for _, s := range o.Shards {
		m[s.Number] = s.Owner
	}
	return m
}

// Bounds of what is kept of an observation.
const (
	maxText   = 1024
	maxParked = 20
	maxShards = 64
)

// tidy is the observation in the form in which it is kept: bounded, and in order.
func tidy(o *Observation) *Observation {
	t := *o
	t.Problem = clip(o.Problem)
	t.Parked = slices.Clone(o.Parked[:min(len(o.Parked), maxParked)])
	for i := range t.Parked {
		t.Parked[i].Error = clip(t.Parked[i].Error)
	}
	t.Shards = slices.Clone(o.Shards[:min(len(o.Shards), maxShards)])
	slices.SortStableFunc(t.Shards, func(a, b Shard) int { return a.Number - b.Number })
	t.Waiting = max(o.Waiting, len(o.Parked))
	return &t
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	for n := maxText; n > 0; n-- { // not through a letter
		if s[n]&0xc0 != 0x80 {
			return s[:n]
		}
	}
	return ""
}

// take keeps an observation, and tells what it changes beside the state.
func take(s *step, o *Observation) {
	was, now := s.Data.Seen, tidy(o)
	if was == nil {
		was = &Observation{}
	}
	s.Data.Seen, s.Data.SeenAt = now, s.Now()
	s.Detail(EventObserved, now)
	s.Condition(Observed, machines.True, "", "")
	if now.Problem == "" {
		s.Forget(Troubled)
	} else {
		s.Condition(Troubled, machines.True, "Problem", now.Problem)
		if was.Problem == "" {
			s.Emit(EventProblem, map[string]any{"problem": now.Problem, "fatal": now.Fatal})
		}
	}
	tellParked(s, was, now)
}

func tellParked(s *step, was, now *Observation) {
	before, after := keys(was.Parked), keys(now.Parked)
	if more := without(now.Parked, before); len(more) > 0 {
		s.Emit(EventParked, map[string]any{"parked": more, "parkedAggregates": now.Waiting})
	}
	if fewer := without(was.Parked, after); len(fewer) > 0 && now.Waiting < was.Waiting {
		list := make([]string, len(fewer))
		for i, p := range fewer {
			list[i] = p.key()
		}
		s.Emit(EventUnparked, map[string]any{"aggregates": list, "parkedAggregates": now.Waiting})
	}
	if now.Waiting == 0 {
		s.Forget(HasParked)
		return
	}
	s.Condition(HasParked, machines.True, "RowsFailed", "see data.seen.parked; redrive or discard the row that each of them waits behind")
}

func without(list []Parked, known []string) []Parked {
	var rest []Parked
	for _, p := range list {
		if !slices.Contains(known, p.key()) {
			rest = append(rest, p)
		}
	}
	return rest
}
