package machines

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mustLeadOn reports whether nobody would be there to repeat the input: a timer has fired, or an effect has failed for good.
func (s *stepping[D]) mustLeadOn(input string) bool {
	return s.tx.Fired() || slices.ContainsFunc(s.m.Effects, func(e EffectInfo) bool { return e.Failed == input })
}

// aborted is the way out of an input whose guard or action fails (see [Tx.Abort]): the result of an effect becomes its
// failure, any other input is refused.
func (s *stepping[D]) aborted(input, what string, err error) error {
	failure := evaluationFailed(what, err)
	if s.in.Attempt == "" {
		return &Refusal{Code: failure.Code, State: s.before.State, Command: input, Message: failure.Message, Allowed: s.m.Allowed(s.before.State)}
	}
	return s.useless(input, failure)
}

// unfit is the way out of an input whose body is refused, likewise: who has sent a result has done with its task, and nobody would send another one. A result that was not read
// (body is nil) may be of a later release, and the next one may be decided by an engine of that.
func (s *stepping[D]) unfit(input string, body any, size int, r *Refusal) error {
	if s.in.Attempt == "" {
		r.State, r.Command = s.before.State, input
		return r
	}
	failure := Failure{Code: "result-invalid", Message: "the result is refused: " + r.Message, Retryable: body == nil}
	if size > MaxBody {
		failure.Code, failure.Retryable = "result-too-large", false
	}
	return s.useless(input, failure)
}

// useless makes a result the failure of its effect.
func (s *stepping[D]) useless(input string, failure Failure) error {
	body, err := json.Marshal(EffectFailed{Effect: s.answered(input), Attempt: s.in.Attempt, Failure: failure})
	if err != nil {
		return fmt.Errorf("machines: %s: %w", s.m.Name, err)
	}
	in := *s.in
	in.Command, in.Attempt, in.Body = CommandFailed, "", body
	s.in = &in
	s.begin()
	return s.failed()
}

func evaluationFailed(what string, err error) Failure {
	return Failure{Code: CodeEvaluation, Message: plain(fmt.Sprintf("%s: %v", what, err), MaxFailure)}
}
