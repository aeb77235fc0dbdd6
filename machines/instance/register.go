package instance

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"time"

	"github.com/bcc94042/instar/machines"
)

// How a registration is made durable before anybody may find it.
const (
	AdmitWithin  = time.Minute // all tries together; then the registration is given up
	PersistTries = 6           // tries to read the record back
	OwnerWaits   = 10          // times AdmitWithin, while nobody has tried at all: the owner may be away
	PersistWait  = time.Second // before the second try; doubled for each further one
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
	s.Data.AdmitUntil, s.Data.Persists, s.Data.Waits = time.Time{}, 0, 0
	s.Fail(nil)
	s.Detail(EventAdmitted, map[string]any{"revision": b.Revision, "check": s.Data.Check.Kind()})
}

func persistFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Data.Persists++
	s.Fail(f)
	s.Detail(EventPersistFailed, map[string]any{"error": s.Entity().LastError, "try": s.Data.Persists, "of": PersistTries, "nextTry": nextTry(s)})
}

// nextTry is when the record is read again: the wait doubles with every try, lies within a quarter of that, so that
// instances which failed together do not come again together, and does not go beyond the deadline over all tries.
func nextTry(s *step) time.Time {
	wait := PersistWait << min(max(s.Data.Persists-1, 0), 10)
	h := sha256.Sum256([]byte(s.Entity().Key() + s.In.ID))
	part := float64(binary.BigEndian.Uint64(h[:])>>11)/(1<<53)/2 + 0.75
	at := s.Now().Add(time.Duration(float64(wait) * part))
	if at.After(s.Data.AdmitUntil) {
		return s.Data.AdmitUntil
	}
	return at
}

func retryPersist(s *step) {
	s.Detail(EventPersistRetried, map[string]any{"try": s.Data.Persists + 1, "of": PersistTries})
}

func giveUpPersisting(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Data.Persists++
	s.Detail(EventPersistFailed, map[string]any{"error": f, "try": s.Data.Persists, "of": PersistTries})
	notRegistered(s, fmt.Sprintf("not persisted in %d tries: %s", s.Data.Persists, f.Message))
}

// waitForOwner: nobody has looked at the registration, which says nothing against it.
func waitForOwner(s *step) {
	s.Data.Waits++
	s.Data.AdmitUntil = s.Now().Add(AdmitWithin)
	s.Detail(EventSpared, map[string]any{"from": s.In.Command, "waits": s.Data.Waits, "of": OwnerWaits})
}

func registrationLate(s *step) {
	msg := fmt.Sprintf("not admitted within %s", AdmitWithin)
	if last := s.Entity().LastError; last != nil {
		msg += ": " + last.Message
	}
	notRegistered(s, msg)
}

func registrationRefused(s *step) { notRegistered(s, machines.Body[RefusalReport](s).Reason) }

func notRegistered(s *step, why string) {
	s.Fail(&machines.Failure{Code: FailureRegistration, Message: why})
	s.Detail(EventRegistrationFailed, map[string]any{"error": s.Entity().LastError, "tries": s.Data.Persists})
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
