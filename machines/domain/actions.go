package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

func payload(s *step) any {
	return Task{Host: s.Data.Host, Token: s.Data.Token, Route: s.Data.Route, Closed: s.Data.Closed}
}

// sameRoute: it changes nothing. An active name whose proxy could not be told is told again.
var sameRoute = &guard{Name: "same route", Holds: func(s *step) bool {
	if s.State() == Active && s.Entity().LastError != nil {
		return false
	}
	b := machines.Body[RetargetBody](s)
	return reflect.DeepEqual(b.Route, s.Data.Route) && (s.Data.Detached || !b.Detach)
}}

// routing: it has its certificate, and the proxy is just being told.
var routing = &guard{Name: "has its certificate", Holds: func(s *step) bool { return s.Entity().Effects[EffectRoute].ID != "" }}

var sameProblem = &guard{Name: "nothing new", Holds: func(s *step) bool {
	b := machines.Body[Records](s)
	return b.Problem == s.Data.Problem && slices.Equal(b.Wanted, s.Data.Records)
}}

var sameCertificate = &guard{Name: "same certificate", Holds: func(s *step) bool {
	c := s.Data.Certificate
	return c != nil && *c == *machines.Body[Certificate](s) && s.Data.Problem == ""
}}

var sameFailure = &guard{Name: "nothing new", Holds: func(s *step) bool { return machines.Body[Trouble](s).Message == s.Data.Problem }}

// recordsWent: between the look and the verification.
var recordsWent = &guard{Name: "the records are gone", Holds: func(s *step) bool { return machines.Body[machines.Failure](s).Code == CodeRecords }}

// stuck: all tries of remove have failed.
var stuck = &guard{Name: "it failed", Holds: func(s *step) bool { return s.Entity().LastError != nil }}

func bind(s *step) {
	b, e := machines.Body[BindBody](s), s.Entity()
	s.NextGeneration()
	s.Label(b.Labels)
	sum := sha256.Sum256([]byte(e.Key() + "\n" + s.In.ID)) // in public records; a record of this life proves no other entity, and no other life
	*s.Data = Data{Host: b.Host, Route: b.Route, Token: hex.EncodeToString(sum[:16])}
	s.Data.Records = []Record{Proof(b.Host, s.Data.Token)}
	s.Fail(nil)
	s.Detail(EventBound, map[string]any{"host": b.Host, "route": b.Route, "records": s.Data.Records})
}

func retarget(s *step) {
	s.NextGeneration()
	b := machines.Body[RetargetBody](s)
	s.Data.Route = b.Route
	if b.Detach {
		s.Label(tenants(s))
		s.Data.Detached = true
	}
	s.Detail(EventRetargeted, s.Data.Route)
}

func again(s *step) {
	s.Data.Problem, s.Data.FailedFrom, s.Data.Closed = "", "", false
	s.Fail(nil)
}

func forget(s *step) { s.Fail(nil) }

func missing(s *step) {
	b := machines.Body[Records](s)
	s.Data.Problem, s.Data.Records = b.Problem, b.Wanted
	s.Detail(EventMissing, b)
}

func unproven(s *step) {
	s.Data.Problem = machines.Body[machines.Failure](s).Message
	s.Detail(EventMissing, Records{Wanted: s.Data.Records, Problem: s.Data.Problem})
}

func found(s *step) {
	b := machines.Body[Records](s)
	s.Data.Problem = ""
	if b.Wanted != nil {
		s.Data.Records = b.Wanted
	}
	s.Detail(EventFound, b)
}

// failure is a state that is left for failed.
type failure struct {
	From    string            `json:"from"`
	Failure *machines.Failure `json:"failure"`
}

func fails(s *step, f *machines.Failure) {
	s.Data.FailedFrom = s.State()
	s.Fail(f)
	s.Detail(EventFailed, failure{s.State(), s.Entity().LastError})
}

func fail(s *step) { fails(s, machines.Body[machines.Failure](s)) }

func late(s *step) {
	f := &machines.Failure{Code: "TIMEOUT", Message: "it took longer than it may"}
	if last := s.Entity().LastError; last != nil {
		f.Message += "; the last try: " + last.Message
	}
	fails(s, f)
}

// closing also ends the service of the name: the proxy may have been told where its requests go, and nobody would renew the certificate.
func closing(do func(*step)) func(*step) {
	return func(s *step) {
		do(s)
		s.Data.Closed = true
	}
}

func expire(s *step) {
	s.Data.FailedFrom = PendingDNS
	message := "the DNS records did not come in time"
	if s.Data.Problem != "" {
		message += ": " + s.Data.Problem
	}
	s.Fail(&machines.Failure{Code: "DNS_TIMEOUT", Message: message})
	s.Detail(EventExpired, failure{PendingDNS, s.Entity().LastError})
}

func issued(s *step) {
	c := *machines.Body[Certificate](s)
	c.NotBefore, c.NotAfter = c.NotBefore.UTC().Truncate(time.Second), c.NotAfter.UTC().Truncate(time.Second)
	s.Data.Certificate, s.Data.Problem = &c, ""
	s.Fail(nil)
	s.Detail(EventIssued, &c)
	s.Detail(EventRenewed, &c)
}

func note(event string) func(*step) {
	return func(s *step) {
		f := machines.Body[machines.Failure](s)
		s.Fail(f)
		s.Detail(event, f)
	}
}

func unrenewed(s *step) {
	b := machines.Body[Trouble](s)
	s.Data.Problem = b.Message
	s.Detail(EventUnrenewed, b)
}

func lapse(s *step) {
	s.Data.FailedFrom, s.Data.Closed = Active, true
	message := "the certificate ended before it could be renewed"
	if b := machines.Body[Trouble](s); b.Message != "" {
		message += ": " + b.Message
	}
	s.Fail(&machines.Failure{Code: "CERTIFICATE_EXPIRED", Message: message})
	s.Detail(EventExpired, failure{Active, s.Entity().LastError})
}

// removed also takes the labels of the server away: who binds the name again may begin with those that it had, and it is his then.
func removed(s *step) {
	s.Data.Certificate, s.Data.Problem = nil, ""
	s.Label(tenants(s))
	s.Fail(nil)
}

// tenants are the labels that the server has not set.
func tenants(s *step) map[string]string {
	labels := maps.Clone(s.Entity().Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, OwnLabels) })
	return labels
}
