package machines

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"
	"unicode"
)

// retryPrefix begins the name of the timer that starts the next try of an effect.
const retryPrefix = "retry-"

// start begins a try of an effect: the entity waits for it under a new attempt id, and for no other try of it.
func (s *stepping[D]) start(effect string, try int) {
	s.disarm(retryPrefix + effect)
	id := attemptID(effect, s.next.Version, try, s.in.Nonce)
	s.next.Effects = with(s.next.Effects, effect, Attempt{ID: id, Try: try, Fence: s.next.Version, Since: s.in.Time})
	body, route := s.task(effect)
	s.out.Messages = append(s.out.Messages, Message{Kind: KindEffect, Name: effect, At: s.in.Time, Body: body, Route: route})
}

func attemptID(effect string, version uint64, try int, nonce string) string {
	id := fmt.Sprintf("%s-%d-%d", effect, version, try)
	if nonce != "" {
		id += "-" + nonce
	}
	return id
}

// task is the body of an effect that is under way, and the queue that it goes to.
func (s *stepping[D]) task(effect string) (body []byte, route string) {
	attempt := s.next.Effects[effect]
	task := Task{
		Machine: s.m.Name, Namespace: s.next.Namespace, ID: s.next.ID, Parent: s.next.Parent,
		Effect: effect, Attempt: attempt.ID, Try: attempt.Try, Fence: cmp.Or(attempt.Fence, s.next.Version), // of the latter where an older release has stored it
	}
	fx := s.effects[effect]
	if fx != nil && fx.Payload != nil {
		raw, err := json.Marshal(fx.Payload(s.tx))
		if err != nil {
			panic(fmt.Sprintf("machines: %s: payload of %s: %v", s.m.Name, effect, err))
		}
		task.Data = raw
	}
	body, err := json.Marshal(task)
	if err != nil {
		panic(fmt.Sprintf("machines: %s: task of %s: %v", s.m.Name, effect, err))
	}
	if fx != nil && fx.Route != nil {
		if route = fx.Route(s.tx); !IsLabel(route) {
			route = ""
		}
	}
	return body, route
}

// failed plans the next try, or takes the machine's failure edge after the last one.
func (s *stepping[D]) failed() error {
	var body EffectFailed
	if err := json.Unmarshal(s.in.Body, &body); err != nil {
		return fmt.Errorf("machines: %s is not {effect, attempt, failure}: %w", s.in.Command, err)
	}
	info, ok := s.m.effects[body.Effect]
	if !ok {
		return fmt.Errorf("machines: %s has no effect %q", s.m.Name, body.Effect)
	}
	attempt, ok := s.before.Effects[body.Effect]
	if !ok || attempt.ID != body.Attempt || attempt.NextTry != nil {
		return s.late(body.Effect, &Late{Attempt: body.Attempt, Outcome: LateFailed, Code: plain(body.Failure.Code, maxFailureCode)})
	}
	failure := body.Failure.bounded()
	if failure.At.IsZero() {
		failure.At = s.in.Time
	}
	// The entity waits for this try, so what its provider has seen with a higher fence is of a life, or of versions, that the entity has lost: it
	// goes on above them.
	s.next.Version = max(s.next.Version, failure.Fence)
	if failure.Retryable && attempt.Try < info.Retry.Attempts {
		return s.planRetry(body.Effect, attempt, &failure, info)
	}
	return s.giveUp(info, body.Attempt, &failure)
}

// giveUp takes the machine's failure edge: no other try follows.
func (s *stepping[D]) giveUp(info *EffectInfo, attempt string, failure *Failure) error {
	s.settle(info.Name)
	if !info.looks {
		s.next.LastError = failure
	}
	in := *s.in
	in.Command, in.Attempt = info.Failed, attempt
	s.in, s.tx.In = &in, &in
	s.tx.Body = failure
	return s.feed(info.Failed)
}

// MaxFailure is how many bytes of what a provider says of a failure are kept, and maxFailureCode of its code. Details that have more than MaxDetails, or are no JSON, are not kept.
const MaxFailure, maxFailureCode, MaxDetails = 1024, 256, 8192

// MaxRetryAfter is for how long a provider can put the next try off.
const MaxRetryAfter = 24 * time.Hour

// maxFence is the highest fence that a provider is believed to have seen: from there many versions can follow before one cannot be stored.
const maxFence = 1 << 52

// bounded is a failure whose texts are short and steer no terminal, and whose next try comes: a worker elsewhere sends what it likes, and it is
// told in events for a year.
func (f Failure) bounded() Failure {
	if f.Fence > maxFence {
		f.Fence = 0
	}
	f.Code, f.Message = plain(f.Code, maxFailureCode), plain(f.Message, MaxFailure)
	f.RetryAfter = min(f.RetryAfter, MaxRetryAfter)
	if len(f.Details) > MaxDetails || !json.Valid(f.Details) {
		f.Details = nil
	}
	return f
}

func plain(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// planRetry arms the timer of the next try.
func (s *stepping[D]) planRetry(effect string, attempt Attempt, failure *Failure, info *EffectInfo) error {
	s.advance()
	wait := max(info.Retry.wait(attempt.Try, s.next.Key()+attempt.ID), failure.RetryAfter)
	at := s.in.Time.Add(wait)
	attempt.NextTry, attempt.Error = &at, failure
	s.next.Effects = with(s.next.Effects, effect, attempt)
	if !info.looks {
		s.next.LastError = failure
	}
	s.tx.Emit(EventRetrying, map[string]any{"effect": effect, "try": attempt.Try, "of": info.Retry.Attempts, "nextTry": at, "error": failure})
	s.arm(retryPrefix+effect, at)
	return s.seal(CommandFailed)
}

// retry starts the next try when its time has come.
func (s *stepping[D]) retry(effect string) error {
	attempt, ok := s.before.Effects[effect]
	if !ok || attempt.NextTry == nil {
		s.out.Result = Ignored
		return nil
	}
	s.advance()
	s.tx.Emit(EventRetried, map[string]any{"effect": effect, "try": attempt.Try + 1})
	if s.start(effect, attempt.Try+1); s.tx.failed != nil {
		failure := evaluationFailed("payload of "+effect, s.tx.failed)
		failure.At = s.in.Time
		s.begin()
		return s.giveUp(s.m.effects[effect], attempt.ID, &failure)
	}
	return s.seal(CommandElapsed)
}

// wait is the time before the try after the given one. The randomness comes from the attempt, so that a repeated
// step plans the same time; at least a tenth of the base is waited.
func (r Retry) wait(try int, seed string) time.Duration {
	ceiling := math.Min(float64(r.Cap), float64(r.Base)*math.Pow(r.Factor, float64(try-1)))
	h := fnv.New64a()
	h.Write([]byte(seed)) // never fails
	jitter := float64(h.Sum64()>>11) / (1 << 53)
	return max(time.Duration(jitter*ceiling), r.Base/10)
}

// late feeds the input of a result that nobody waits for any more; where the table has no place for it, it is refused.
func (s *stepping[D]) late(effect string, l *Late) error {
	stale := s.stale(l.Attempt)
	fx := s.effects[effect]
	if fx == nil || fx.Late == "" {
		return stale
	}
	in := *s.in
	in.Command, in.Attempt = fx.Late, l.Attempt
	s.in, s.tx.In, s.tx.Body = &in, &in, l
	err := s.feed(fx.Late)
	var shut *Refusal
	if errors.As(err, &shut) {
		return stale
	}
	return err
}

func (s *stepping[D]) stale(attempt string) *Refusal {
	return &Refusal{Code: CodeStale, State: s.before.State, Command: s.in.Command, Message: fmt.Sprintf("%s answers attempt %q, which is not under way any more", s.in.Command, attempt)}
}

// settle forgets an effect that has ended, and its next try.
func (s *stepping[D]) settle(effect string) {
	s.disarm(retryPrefix + effect)
	s.next.Effects = without(s.next.Effects, effect)
}
