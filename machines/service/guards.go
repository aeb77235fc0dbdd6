package service

import (
	"maps"

	"github.com/bcc94042/instar/machines"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

// of is the evidence of an observed input. In an action the service has already entered its next state.
func of(s *step) evidence {
	v := weigh(s.Entity(), s.Data, machines.Body[Observation](s))
	v.state = s.State()
	return v
}

func seen(name, doc string, judge func(evidence) bool) *guard {
	return &guard{Name: name, Doc: doc, Holds: func(s *step) bool { return judge(of(s)) }}
}

// Guards of observations. The last edge of every state takes any observation, so none of these refuses one.
var (
	converged = seen("converged", "", evidence.converged)
	failing   = seen("failing", "", evidence.failing)
	mends     = seen("drifted, to be reapplied", "", evidence.mends)
	wornOut   = seen("not ready for too long", "", evidence.wornOut)
	drifts    = seen("drifted", "", evidence.drifts)
	degrades  = seen("not ready", "", evidence.degrades)
	recovers  = seen("ready again", "", evidence.recovers)
	gone      = seen("gone", "", evidence.gone)
)

var supersedes = &guard{
	Name: "supersede", Doc: "a specification is under way; send supersede: true to put this one in its place",
	Holds: func(s *step) bool { return machines.Body[UpdateBody](s).Supersede },
}

// sameSpec: the update asks for what runs, and not to replace it.
var sameSpec = &guard{Name: "same spec", Holds: func(s *step) bool {
	b := machines.Body[UpdateBody](s)
	return !b.Spec.ForceReplace && b.Spec.Hash() == s.Data.SpecHash
}}

// nothingNew: nor does it change policy or labels.
var nothingNew = &guard{Name: "nothing new", Holds: func(s *step) bool {
	b := machines.Body[UpdateBody](s)
	return sameSpec.Holds(s) && (b.Policy == nil || *b.Policy == s.Data.Policy) && (b.Labels == nil || maps.Equal(b.Labels, s.Entity().Labels))
}}

var hasTarget = &guard{
	Name: "has been ready before", Doc: "there is no specification that was ready before and is not the one wanted now",
	Holds: func(s *step) bool { return s.Data.target() != nil },
}

var forced = &guard{
	Name: "force", Doc: "purge forgets what may still run; send force: true",
	Holds: func(s *step) bool { return machines.Body[PurgeBody](s).Force },
}

// blindAlready: an observer says again what is known. An answer to refresh is always told.
var blindAlready = &guard{Name: "known", Holds: func(s *step) bool {
	c, ok := s.Entity().Condition(Observed)
	return ok && c.Status == machines.False && c.Reason == machines.Body[machines.Failure](s).Code && s.In.Attempt == ""
}}
