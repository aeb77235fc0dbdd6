package relay

import "github.com/bcc94042/instar/machines"

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

func seen(name string, judge func(Policy, *Observation) bool) *guard {
	return &guard{Name: name, Holds: func(s *step) bool { return judge(s.Data.Policy, machines.Body[Observation](s)) }}
}

// Guards of observations. The last edge of every state takes any observation, so none of these refuses one.
var (
	hopeless    = seen("fatal", Policy.hopeless)
	stuck       = seen("stands still", Policy.stuck)
	behind      = seen("behind", Policy.behind)
	caughtUp    = seen("caught up", Policy.caughtUp)
	moves       = seen("moves", Policy.moves)
	movesBehind = seen("moves, behind", func(p Policy, o *Observation) bool { return p.moves(o) && p.behind(o) })
)

var nothingNew = &guard{Name: "nothing new", Holds: func(s *step) bool { return machines.Body[ConfigureBody](s).Policy == s.Data.Policy }}

var forced = &guard{
	Name: "force", Doc: "purge forgets a relay that could not be removed; send force: true",
	Holds: func(s *step) bool { return machines.Body[PurgeBody](s).Force },
}

// blindAlready: an observer says again what is known. An answer to refresh is always told.
var blindAlready = &guard{Name: "known", Holds: func(s *step) bool {
	c, ok := s.Entity().Condition(Observed)
	return ok && c.Status == machines.False && c.Reason == machines.Body[machines.Failure](s).Code && s.In.Attempt == ""
}}
