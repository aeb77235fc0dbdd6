package machines

import (
	"encoding/json"
	"fmt"
)

// mustLeadOn reports whether nobody would be there to repeat the input: a timer has fired, or an effect has failed for good.
func (s *stepping[D]) mustLeadOn(input string) bool {
	return s.tx.Fired() || s.m.fails(input)
}

// fails reports whether the input is the failure of an effect.
func (m *Machine) fails(input string) bool {
	for i := range m.Effects {
		if m.Effects[i].Failed == input {
			return true
		}
	}
	return false
}

// aborted is the way out of an input whose guard or action fails (see [Tx.Abort]): the result of an effect becomes its
// failure, any other input is refused.
func (s *stepping[D]) aborted(input, what string, err error) error {
	failure := evaluationFailed(what, err)
	failure.At = s.in.Time
	if s.in.Attempt == "" {
		return &Refusal{Code: failure.Code, State: s.before.State, Command: input, Message: failure.Message, Allowed: s.m.Allowed(s.before.State)}
	}
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
