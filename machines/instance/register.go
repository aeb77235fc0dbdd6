package instance

import (
	"fmt"
	"reflect"
	"time"

	"github.com/bcc94042/instar/machines"
)

// How a registration is made durable before anybody may find it.
const (
	AdmitWithin = time.Minute // for its owner to read the record back
	OwnerWaits  = 10          // times AdmitWithin: the owner may be away; then the registration is given up
)

// The codes of an instance's last error.
const (
	FailureRegistration = "registration-failed"
	FailureCheck        = "health-check-failed"
	FailureSilent       = "heartbeat-missed"
	FailureSuspect      = "suspect-timeout"
	FailureCritical     = "deregister-critical-after"
	FailureTooMany      = "max-failures"
)

const defaultWeight = 100

func both(first, then func(*step)) func(*step) {
	return func(s *step) { first(s); then(s) }
}

// register begins a generation. Of a live instance it forgets everything that was learned of the one before, but not
// what operators said of the address (maintenance, weight, protection) nor how often it was held down: a process that
// crashes and registers again and again stays held down longer each time.
func register(s *step) {
	b, before := machines.Body[RegisterBody](s), *s.Data
	replaced := s.Entity().Generation
	s.NextGeneration()
	*s.Data = Data{
		NodeAddress: b.NodeAddress, Payload: b.Payload, Zone: b.Zone, Version: b.Version, Tags: b.Tags, Weight: defaultWeight,
		Terms: Terms{Check: b.Check, Policy: b.Policy}, RegisteredAt: s.Now(), AdmitUntil: s.Now().Add(AdmitWithin),
		Flap: before.Flap, Maintenance: before.Maintenance, Pinned: before.Pinned, Protected: before.Protected,
	}
	s.Data.Check.Type = b.Check.Kind()
	if b.Weight != nil {
		s.Data.Weight = *b.Weight
	}
	s.Label(b.Labels)
	s.Fail(nil)
	// What decides who is found is told whole: discovery as of a time is built from the events alone.
	told := map[string]any{"nodeAddress": b.NodeAddress, "weight": s.Data.Weight, "check": s.Data.Check.Type}
	for name, v := range map[string]any{"payload": b.Payload, "zone": b.Zone, "version": b.Version, "tags": b.Tags, "labels": b.Labels, "policy": b.Policy, "replaces": replaced} {
		if !reflect.ValueOf(v).IsZero() {
			told[name] = v
		}
	}
	s.Detail(EventRegistered, told)
}

// admit: whoever asks the bucket finds the record, so the instance may take part.
func admit(s *step) {
	b := machines.Body[Admission](s)
	s.Data.AdmitUntil, s.Data.Waits = time.Time{}, 0
	s.Fail(nil)
	s.Detail(EventAdmitted, map[string]any{"revision": b.Revision, "check": s.Data.Check.Kind()})
}

// waitForOwner: nobody has looked at the registration, which says nothing against it.
func waitForOwner(s *step) {
	s.Data.Waits++
	s.Data.AdmitUntil = s.Now().Add(AdmitWithin)
	s.Detail(EventSpared, map[string]any{"from": s.In.Command, "waits": s.Data.Waits, "of": OwnerWaits})
}

func registrationLate(s *step) {
	notRegistered(s, fmt.Sprintf("not admitted within %s", (OwnerWaits+1)*AdmitWithin))
}

func registrationRefused(s *step) { notRegistered(s, machines.Body[RefusalReport](s).Reason) }

func notRegistered(s *step, why string) {
	s.Fail(&machines.Failure{Code: FailureRegistration, Message: why})
	s.Detail(EventRegistrationFailed, map[string]any{"error": s.Entity().LastError})
	end(s, FailureRegistration)
}

// end leaves the record as the last word: where it was, what was seen, why it ended. Only what waits is gone.
func end(s *step, reason string) {
	d := s.Data
	d.Suspicion, d.WarmSince, d.AdmitUntil, d.Overdue, d.Protected = nil, time.Time{}, time.Time{}, time.Time{}, false
	told := map[string]any{"reason": reason, "nodeAddress": d.NodeAddress, "registeredAt": d.RegisteredAt}
	if d.Evidence != nil {
		told["evidence"] = d.Evidence
	}
	if last := s.Entity().LastError; last != nil {
		told["error"] = last
	}
	s.Detail(EventDeregistered, told)
}
