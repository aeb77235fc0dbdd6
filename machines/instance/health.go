package instance

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bcc94042/instar/machines"
)

// maxOutput is how much of what a check said is kept.
const maxOutput = 512

// times is how often in a row it was seen.
func (v *Evidence) times() int { return max(v.Consecutive, 1) }

// failures is how many in a row the evidence makes. An observer counts for itself; evidence without a count is one more.
func (d *Data) failures(v *Evidence) int {
	if v.Consecutive > 0 {
		return max(d.Retries, v.Consecutive)
	}
	return d.Retries + 1
}

// by is who saw it: the observer, else who sent it.
func (v *Evidence) by(s *step) string { return cmp.Or(v.Observer, s.In.Actor, "unknown") }

// with and without are copies of a list of observers.
func with(list []string, observer string) []string {
	if slices.Contains(list, observer) {
		return list
	}
	return append(slices.Clone(list), observer)
}

func without(list []string, observer string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(o string) bool { return o == observer })
}

// votes are kept only where there are several observers.
func votes(s *step, failing, passing []string) {
	if looking(s).ObserversOf() == 1 {
		failing, passing = nil, nil
	}
	s.Data.Failing, s.Data.Passing = failing, passing
}

// evidence is what the body says was seen, if it does.
func evidence(s *step) *Evidence {
	switch b := s.Body.(type) {
	case *Evidence:
		return b
	case *Admission:
		return b.Passed
	}
	return nil
}

// see keeps what a change was decided from.
func see(s *step) *Evidence {
	body := evidence(s)
	if body == nil {
		return nil
	}
	v := *body
	if v.At.IsZero() {
		v.At = s.Now()
	}
	v.Observer = v.by(s)
	v.Output = clip(v.Output)
	s.Data.Evidence = &v
	if v.Weight != nil {
		s.Data.Reported = v.Weight
	}
	return &v
}

// clip cuts between characters, and leaves out those that would do something to the terminal of who reads it.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r) && r != ' ':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxOutput {
		return text
	}
	cut := maxOutput
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// pass forgets what spoke against it. A suspicion that one observer overrules is no reason to forget who else sees it
// fall: else the two would take turns.
func pass(s *step) map[string]any {
	told, failing := map[string]any{}, []string(nil)
	if v := see(s); v != nil {
		told["evidence"] = v
		if s.State() == Suspect {
			failing = without(s.Data.Failing, v.Observer)
		}
	}
	votes(s, failing, nil)
	if n := s.Data.Suspicion; n != nil {
		told["suspicion"] = n
	}
	s.Data.Retries, s.Data.Suspicion, s.Data.Overdue = 0, nil, time.Time{}
	s.Fail(nil)
	return told
}

func well(s *step) {
	told := pass(s)
	s.Data.WarmSince = time.Time{}
	s.Detail(EventHealthy, told)
}

func warm(s *step) {
	s.Data.WarmSince = s.Now()
	resume(s)
}

// resume goes on with a warm-up that a suspicion interrupted.
func resume(s *step) {
	told := pass(s)
	told["window"], told["since"] = s.Data.Warmup().String(), s.Data.WarmSince
	s.Detail(EventWarming, told)
}

func warmedUp(s *step) {
	s.Detail(EventHealthy, map[string]any{"warmSince": s.Data.WarmSince})
	s.Data.WarmSince = time.Time{}
}

// rise is the word of one observer that does not suffice; relent that of one that saw it fall before.
func rise(s *step) {
	v := see(s)
	votes(s, without(s.Data.Failing, v.Observer), with(s.Data.Passing, v.Observer))
	s.Detail(EventVoted, map[string]any{"failing": s.Data.Failing, "passing": s.Data.Passing, "of": looking(s).RiseOf(), "evidence": v})
}

func relent(s *step) {
	v := see(s)
	votes(s, without(s.Data.Failing, v.Observer), nil)
	s.Detail(EventVoted, map[string]any{"failing": s.Data.Failing, "of": looking(s).AgreeOf(), "evidence": v})
}

func weigh(s *step) {
	v := see(s)
	s.Detail(EventWeightReported, map[string]any{"weight": *v.Weight, "registered": s.Data.Weight, "evidence": v})
}

// ail: enough failures.
func ail(s *step) {
	v := see(s)
	s.Data.Retries = s.Data.failures(v)
	votes(s, with(s.Data.Failing, v.Observer), nil)
	s.Fail(&machines.Failure{Code: FailureCheck, Message: v.words()})
	down(s)
}

// neverHeard: it was registered, but said nothing.
func neverHeard(s *step) {
	v := see(s)
	s.Fail(&machines.Failure{Code: FailureSilent, Message: "not heard since it was registered; " + v.words()})
	down(s)
}

// down tells why it is not found any more, and ends what depended on its being found.
func down(s *step) {
	told := map[string]any{"error": s.Entity().LastError, "healthCheckRetries": s.Data.Retries}
	if s.Data.Evidence != nil {
		told["evidence"] = s.Data.Evidence
	}
	if n := s.Data.Suspicion; n != nil {
		told["suspicion"] = n
	}
	if len(s.Data.Failing) > 0 {
		told["failing"] = s.Data.Failing
	}
	s.Data.Suspicion, s.Data.WarmSince, s.Data.Passing, s.Data.Overdue = nil, time.Time{}, nil, time.Time{}
	s.Detail(EventUnhealthy, told)
}

// words says what was seen in a line.
func (v *Evidence) words() string {
	text := fmt.Sprintf("%d in a row", v.times())
	if v.Kind != "" {
		text = v.Kind + ", " + text
	}
	if v.Observer != "" {
		text += ", seen by " + v.Observer
	}
	if v.Status != 0 {
		text += fmt.Sprintf(", status %d", v.Status)
	}
	if v.Output != "" {
		text += ": " + v.Output
	}
	return text
}

func count(s *step) {
	v := see(s)
	s.Data.Retries = s.Data.failures(v)
	votes(s, with(s.Data.Failing, v.Observer), without(s.Data.Passing, v.Observer))
	s.Fail(&machines.Failure{Code: FailureCheck, Message: v.words()})
	s.Detail(EventFailureCounted, map[string]any{"healthCheckRetries": s.Data.Retries, "maxFailures": s.Data.Policy.MaxFailures, "evidence": v})
}

func giveUp(s *step) {
	count(s)
	s.Fail(&machines.Failure{Code: FailureTooMany, Message: fmt.Sprintf("failed %d times of at most %d: %s", s.Data.Retries, s.Data.Policy.MaxFailures, s.Data.Evidence.words())})
	end(s, FailureTooMany)
}

// suspect begins a window in which it is still found. Others may confirm what one observer saw.
func suspect(s *step) {
	v := see(s)
	n := &Suspicion{Since: s.Now(), Reason: s.In.Command, Of: looking(s).AgreeOf() - 1, By: v.Observer}
	if s.In.Command == ReportFailed {
		n.Confirmed = without(s.Data.Failing, v.Observer) // who was overruled before says so still
		votes(s, with(s.Data.Failing, v.Observer), nil)
	}
	n.Until = n.Since.Add(s.Data.SuspectWindow(len(n.Confirmed), n.Of))
	s.Data.Suspicion = n
	s.Detail(EventSuspected, map[string]any{"suspicion": n, "evidence": v})
}

// confirm shortens the window: by the more, the fewer confirmations are missing.
func confirm(s *step) {
	v, n := see(s), *s.Data.Suspicion
	n.Confirmed = with(n.Confirmed, v.Observer)
	votes(s, with(s.Data.Failing, v.Observer), nil)
	n.Until = n.Since.Add(s.Data.SuspectWindow(len(n.Confirmed), n.Of))
	if n.Until.Before(s.Now()) {
		n.Until = s.Now()
	}
	s.Data.Suspicion = &n
	s.Detail(EventSuspicionConfirmed, map[string]any{"by": v.Observer, "confirmations": len(n.Confirmed), "of": n.Of, "until": n.Until, "evidence": v})
}

// agree: the last confirmation that was needed.
func agree(s *step) {
	confirm(s)
	n := s.Data.Suspicion
	s.Fail(&machines.Failure{Code: FailureSuspect, Message: fmt.Sprintf("%s, seen by %s and %s", n.Reason, n.By, strings.Join(n.Confirmed, ", "))})
	down(s)
}

// expire: it was suspect for the whole window.
func expire(s *step) {
	n := s.Data.Suspicion
	msg := fmt.Sprintf("%s, seen by %s and not refuted within %s", n.Reason, n.By, s.Now().Sub(n.Since).Round(time.Millisecond))
	s.Fail(&machines.Failure{Code: FailureSuspect, Message: msg})
	down(s)
}

// suspectUntil: while it is protected nothing takes it out, so there is no deadline to write again and again; the end of
// the protection sets one.
func suspectUntil(s *step) time.Time {
	if s.Data.Protected {
		return time.Time{}
	}
	return s.Data.Suspicion.Until
}

// again gives a suspect instance a whole window from now on.
func again(s *step) {
	if s.Data.Suspicion == nil {
		return
	}
	n := *s.Data.Suspicion
	n.Until = s.Now().Add(s.Data.SuspectWindow(len(n.Confirmed), n.Of))
	s.Data.Suspicion = &n
}

// SuspectWindow is how long an instance stays suspect after so many of the other observers that decide confirmed it: the
// grace of a TTL; else the longest window, which shrinks with the logarithm of the confirmations to the shortest one (as
// memberlist's suspicion does). Where nobody else looks it is the shortest one.
func (t *Terms) SuspectWindow(confirmed, of int) time.Duration {
	if t.Check.Kind() == CheckTTL {
		return t.Check.GraceOf()
	}
	shortest, longest := t.SuspectMin(), t.SuspectMax()
	if confirmed >= of {
		return shortest
	}
	part := math.Log(float64(confirmed)+1) / math.Log(float64(of)+1)
	return longest - time.Duration(part*float64(longest-shortest))
}

// criticalUntil: what is overdue already waits for whoever sees that it is gone, and not for another deadline.
func criticalUntil(s *step) time.Time {
	after := s.Data.CriticalAfter()
	if after == 0 || s.Data.Protected || !s.Data.Overdue.IsZero() {
		return time.Time{}
	}
	return s.Now().Add(after)
}

// fallDue: a timer fires whether or not anybody looked at the instance meanwhile: the registry may have been away all the
// time, or be back for a moment only. So the timer decides nothing. Who looks at it says what it sees.
func fallDue(s *step) {
	s.Data.Overdue = s.Now()
	s.Detail(EventOverdue, map[string]any{"after": s.Data.CriticalAfter().String(), "error": s.Entity().LastError})
}

func criticalTooLong(s *step) {
	see(s)
	msg := fmt.Sprintf("unhealthy for %s", s.Data.CriticalAfter())
	if last := s.Entity().LastError; last != nil {
		msg += ": " + last.Message
	}
	s.Fail(&machines.Failure{Code: FailureCritical, Message: msg})
	end(s, FailureCritical)
}
