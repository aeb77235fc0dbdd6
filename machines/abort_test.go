package machines_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

var errOdd = errors.New("odd")

func guardThatFails(t *tx) bool {
	t.Abort(errOdd)
	return true
}

func actionThatFails(t *tx) {
	t.Data.Watts = 1e6
	t.Label(map[string]string{"half": "done"})
	t.Emit("lamp.blinked", "half")
	t.Abort(errOdd)
}

// broken is a machine with the edges on an input changed.
func broken(t *testing.T, on string, change func(*machines.Edge[lamp])) *bench {
	t.Helper()
	d := definition()
	for i := range d.Edges {
		if d.Edges[i].On == on {
			change(&d.Edges[i])
		}
	}
	m := machines.Define(d)
	return &bench{t: t, m: m, e: m.New("default", "", "desk"), now: start}
}

func odd(e *machines.Edge[lamp]) {
	e.If = &machines.Guard[lamp]{Name: "odd", Holds: guardThatFails}
}

func TestACommandWhoseGuardOrActionFailsIsRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*machines.Edge[lamp]){
		"guard odd: odd":              odd,
		"edge from lit on boost: odd": func(e *machines.Edge[lamp]) { e.If, e.Do = nil, actionThatFails },
	} {
		b := broken(t, "boost", change)
		b.do("buy", `{"watts":5}`)
		_, err := b.report("warm", "heat", `{"degrees":3}`)
		require.NoError(t, err)
		before := b.e
		_, err = b.try("boost", "")
		require.Equal(t, machines.Refusal{Code: machines.CodeEvaluation, State: "lit", Command: "boost", Message: what, Allowed: b.m.Allowed("lit")}, *refusal(t, err))
		require.Equal(t, before, b.e)
	}
}

func TestAResultWhoseActionFailsBecomesTheFailure(t *testing.T) {
	t.Parallel()
	b := broken(t, "warm", func(e *machines.Edge[lamp]) { e.Do = actionThatFails })
	b.do("buy", `{"watts":5}`)
	out, err := b.report("warm", "heat", `{"degrees":3}`)
	require.NoError(t, err)
	require.Equal(t, []string{"event lamp.broke"}, names(out), "not tried again")
	require.Equal(t, "broken", b.e.State)
	require.Equal(t, &machines.Failure{Code: machines.CodeEvaluation, Message: "edge from warming on warm: odd", At: start}, b.e.LastError)
	require.Equal(t, 5, b.e.Data.(*lamp).Watts)
	require.Empty(t, b.e.Effects)
}

// A report that answers no attempt has nothing that could fail: it is refused like a command.
func TestAnObservationWhoseActionFailsIsRefused(t *testing.T) {
	t.Parallel()
	b := broken(t, "seen", func(e *machines.Edge[lamp]) { e.Do = actionThatFails })
	b.do("buy", `{"watts":5}`)
	_, err := b.try("seen", `{"data":{}}`)
	require.Equal(t, machines.CodeEvaluation, refusal(t, err).Code)
}

func TestATimerLeadsOnWithoutWhatFails(t *testing.T) {
	t.Parallel()
	t.Run("a guard counts as shut", func(t *testing.T) {
		t.Parallel()
		b := broken(t, "late", func(e *machines.Edge[lamp]) {
			if e.If != nil {
				odd(e)
			}
		})
		b.do("buy", `{"watts":500}`)
		out, err := b.fire("deadline")
		require.NoError(t, err)
		require.Equal(t, "warming", out.To, "the next edge was taken")
		require.Nil(t, b.e.LastError)
	})
	t.Run("an action is left out", func(t *testing.T) {
		t.Parallel()
		b := broken(t, "late", func(e *machines.Edge[lamp]) { e.Do = actionThatFails })
		b.do("buy", `{"watts":500}`)
		out, err := b.fire("deadline")
		require.NoError(t, err)
		require.Equal(t, []string{"event lamp.broke"}, names(out))
		require.Equal(t, "broken", b.e.State)
		require.Equal(t, machines.CodeEvaluation, b.e.LastError.Code)
		require.Equal(t, 500, b.e.Data.(*lamp).Watts)
		require.Empty(t, b.e.Labels)
	})
}

func TestAFailureLeadsOnWithoutItsAction(t *testing.T) {
	t.Parallel()
	b := broken(t, "cold", func(e *machines.Edge[lamp]) { e.Do = actionThatFails })
	b.do("buy", `{"watts":5}`)
	out, err := b.fail("heat", machines.Failure{Code: "no-power"})
	require.NoError(t, err)
	require.Equal(t, "broken", out.To)
	require.Equal(t, machines.CodeEvaluation, b.e.LastError.Code)
}

// payloads makes the payload of the effect heat fail from its given call on.
func payloads(t *testing.T, from int) *bench {
	t.Helper()
	d := definition()
	calls := 0
	d.Effects[0].Payload = func(t *tx) any {
		if calls++; calls >= from {
			t.Abort(errOdd)
		}
		return t.Data
	}
	m := machines.Define(d)
	return &bench{t: t, m: m, e: m.New("default", "", "desk"), now: start}
}

func TestAnEffectWhosePayloadFailsIsNotPerformed(t *testing.T) {
	t.Parallel()
	t.Run("of a command", func(t *testing.T) {
		t.Parallel()
		b := payloads(t, 1)
		_, err := b.try("buy", `{"watts":5}`)
		require.Equal(t, machines.CodeEvaluation, refusal(t, err).Code)
		require.False(t, b.e.Exists())
	})
	t.Run("of a timer", func(t *testing.T) {
		t.Parallel()
		b := payloads(t, 2)
		b.do("buy", `{"watts":5}`)
		out, err := b.fire("deadline")
		require.NoError(t, err)
		require.Equal(t, []string{"event lamp.blinked", "timer deadline"}, names(out), "the state goes on, and without the effect")
		require.Empty(t, b.e.Effects)
		require.Equal(t, machines.CodeEvaluation, b.e.LastError.Code)
	})
	t.Run("of the next try", func(t *testing.T) {
		t.Parallel()
		b := payloads(t, 2)
		b.do("buy", `{"watts":5}`)
		_, err := b.fail("heat", machines.Failure{Code: "no-power", Retryable: true})
		require.NoError(t, err)
		out, err := b.fire("retry-heat")
		require.NoError(t, err)
		require.Equal(t, "broken", out.To)
		require.Equal(t, "payload of heat: odd", b.e.LastError.Message)
	})
	t.Run("of what is sent again", func(t *testing.T) {
		t.Parallel()
		b := payloads(t, 2)
		b.do("buy", `{"watts":5}`)
		for _, m := range b.m.Pending(b.e) {
			require.Equal(t, machines.KindTimer, m.Kind)
		}
	})
}

// Who has sent a result has done with its task: one that is refused fails the effect, and is not waited for until the deadline. A form that is not known here may be that
// of a later release, whose engine may decide the next try; what is too large, or refused by the body itself, would be so again.
func TestAResultThatIsRefusedBecomesTheFailure(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]machines.Failure{
		`{"degree":3}`:      {Code: "result-invalid", Message: "the result is refused: degree: unknown field", Retryable: true, At: start},
		`{"degrees":"hot"}`: {Code: "result-invalid", Message: "the result is refused: degrees: expected int, got string", Retryable: true, At: start},
		`{"degrees":-400}`:  {Code: "result-invalid", Message: "the result is refused: degrees: is colder than anything", At: start},
		`{"degrees":3` + strings.Repeat(" ", machines.MaxBody) + `}`: {Code: "result-too-large", Message: "the result is refused: body: is larger than 262144 bytes", At: start},
	} {
		b := setup(t, "buy")
		body := `{"attempt":"` + b.e.Effects["heat"].ID + `","data":` + data + `}`
		out, err := b.try("warm", body)
		require.NoError(t, err)
		require.Equal(t, &want, b.e.LastError)
		if want.Retryable {
			require.Equal(t, []string{"event effect.retrying", "timer retry-heat"}, names(out))
		} else {
			require.Equal(t, []string{"event lamp.broke"}, names(out), "not tried again")
			require.Equal(t, "broken", b.e.State)
			require.Empty(t, b.e.Effects)
		}
		_, err = b.try("warm", body)
		require.Equal(t, machines.CodeStale, refusal(t, err).Code, "the second delivery of an answer")
	}
}

// One that answers no attempt under way is refused: nobody waits for it.
func TestAReportThatIsRefusedAndAnswersNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.try("warm", `{"data":{"degree":3}}`)
	require.Equal(t, machines.CodeValidation, refusal(t, err).Code)
	_, err = b.try("warm", `{"attempt":"heat-9-1","data":{"degree":3}}`)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code)
	_, err = b.fail("heat", machines.Failure{Code: "x", Message: strings.Repeat("y", machines.MaxBody)})
	require.NoError(t, err, "a failure is cut, and ends its attempt")
	require.Equal(t, "broken", b.e.State)
}
