package machines_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

func TestABirthBeginsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := b.do("buy", `{"watts":40}`)
	require.Equal(t, []string{"event lamp.bought", "effect heat", "timer deadline"}, names(out))
	require.Equal(t, "buy", out.Edge.On)
	require.Equal(t, machines.Entity{
		Schema: 1, Machine: "lamp", Namespace: "default", ID: "desk", State: "warming", Version: 1, Generation: 1,
		Since: start, CreatedAt: start, UpdatedAt: start, Data: &lamp{Watts: 40, Bought: "17:00:00"},
		Conditions: []machines.Condition{{Type: "Warm", Status: machines.Unknown, Reason: "Cold", ObservedGeneration: 1, LastTransitionTime: start}},
		Timers:     map[string]machines.Timer{"deadline": {At: start.Add(time.Minute), Armed: 1}},
		Effects:    map[string]machines.Attempt{"heat": {ID: "heat-1-1", Try: 1, Fence: 1, Since: start}},
	}, b.e)

	var ev machines.Event
	require.NoError(t, json.Unmarshal(out.Messages[0].Body, &ev))
	require.Equal(t, machines.Event{To: "warming", Version: 1, Generation: 1, Time: start, Command: "buy", CommandID: "id", Actor: "somebody", Reason: "because"}, ev)
	var task machines.Task
	require.NoError(t, json.Unmarshal(out.Messages[1].Body, &task))
	require.Equal(t, machines.Task{
		Machine: "lamp", Namespace: "default", ID: "desk", Effect: "heat", Attempt: "heat-1-1", Try: 1, Fence: 1,
		Data: json.RawMessage(`{"watts":40,"bought":"17:00:00"}`),
	}, task)
	for i, m := range out.Messages {
		require.Equal(t, []any{uint64(1), i, "00-1-2-01"}, []any{m.Version, m.N, m.Trace})
	}
}

func TestANewLifeKeepsNothingButTheCounters(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "throw")
	b.e.Labels, b.e.LastError, b.e.Mark = map[string]string{"a": "b"}, &machines.Failure{Code: "x"}, 7
	b.now = start.Add(time.Hour)
	b.do("buy", `{"watts":60}`)
	require.Equal(t, uint64(3), b.e.Version)
	require.Equal(t, uint64(2), b.e.Generation)
	require.Equal(t, uint64(7), b.e.Mark, "bookkeeping is the caller's")
	require.Equal(t, b.now, b.e.CreatedAt)
	require.Nil(t, b.e.Labels)
	require.Nil(t, b.e.LastError)
	require.Equal(t, &lamp{Watts: 60, Bought: "18:00:00"}, b.e.Data)
}

func TestRefusalsAreAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		before        []string
		command, body string
		want          machines.Refusal
	}{
		"OfWhatDoesNotExist": {nil, "dim", "", machines.Refusal{Code: machines.CodeNotFound, Message: "lamp default.desk does not exist", Command: "dim", Allowed: []string{"buy"}}},
		"OfAnUnknownCommand": {[]string{"buy"}, "sing", "", machines.Refusal{
			Code: machines.CodeNotFound, Message: `lamp has no command "sing"`, State: "warming", Command: "sing", Allowed: []string{"blink", "swap", "throw"},
		}},
		"OfASecondBirth": {[]string{"buy"}, "buy", "", machines.Refusal{
			Code: machines.CodeExists, Message: "lamp default.desk exists already and is warming", State: "warming", Command: "buy", Allowed: []string{"blink", "swap", "throw"},
		}},
		"OfWhatHasNoEdge": {[]string{"buy"}, "dim", "", machines.Refusal{
			Code: machines.CodeTransition, Message: "cannot dim lamp default.desk while it is warming", State: "warming", Command: "dim", Allowed: []string{"blink", "swap", "throw"},
		}},
		"OfWhatHasEnded": {[]string{"buy", "throw"}, "dim", "", machines.Refusal{
			Code: machines.CodeTransition, Message: "cannot dim lamp default.desk while it is gone", State: "gone", Command: "dim", Allowed: []string{"buy"},
		}},
		"OfAWrongValue": {nil, "buy", `{"watts":-1}`, machines.Refusal{
			Code: machines.CodeValidation, Message: "watts: is negative", Command: "buy", Fields: []machines.FieldError{{Field: "watts", Message: "is negative"}},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.before...)
			before := b.e
			out, err := b.try(c.command, c.body)
			require.Equal(t, c.want, *refusal(t, err))
			require.Equal(t, before, b.e)
			require.Empty(t, out.Messages)
		})
	}
}

func TestAGuardSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.report("warm", "heat", `{"degrees":60}`)
	require.NoError(t, err)
	_, err = b.try("boost", "")
	require.Equal(t, machines.CodeGuard, refusal(t, err).Code)
	require.Equal(t, "cannot boost lamp default.desk while it is lit: needs 100 watts", refusal(t, err).Message)
}

func TestBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"watts":1,"volts":2}`: "volts: unknown field",
		`{"watts":"1"}`:         "watts: expected int, got string",
		`{"watts":1}{}`:         "body: has text after the JSON value",
		`{"watts":1}}`:          "body: has text after the JSON value",
		`{"watts":1} x`:         "body: has text after the JSON value",
		`[]`:                    "body: expected machines_test.wish, got array",
		`{`:                     "body: is not valid JSON: unexpected EOF",
		"\x00":                  `body: is not valid JSON: invalid character '\x00' looking for beginning of value`,
	} {
		_, err := setup(t).try("buy", body)
		require.Equal(t, want, refusal(t, err).Message, body)
	}
	for _, body := range []string{"", " ", "{}", "null", `{"watts":1} `} {
		_, err := setup(t).try("buy", body)
		require.NoError(t, err, body)
	}
	b := setup(t, "buy")
	_, err := b.try("throw", `{"far":true}`)
	require.Equal(t, "body: throw takes no body", refusal(t, err).Message)
	b.do("throw", "null")
	_, unknown := b.m.DecodeBody("sing", nil)
	require.Equal(t, machines.CodeNotFound, unknown.Code)
}

func TestANoopIsAcceptedWithoutATrace(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.report("warm", "heat", `{}`)
	require.NoError(t, err)
	before := b.e
	out, err := b.try("dim", "")
	require.NoError(t, err)
	require.Equal(t, machines.Unchanged, out.Result)
	require.Equal(t, "dim", out.Edge.On)
	require.Empty(t, out.Messages)
	require.Equal(t, before, b.e)
}

func TestEachEventThatAnActionEmitsKeepsItsOwnData(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out := b.do("blink", "")
	require.Equal(t, []string{"event lamp.blinked", "event lamp.blinked", "effect look"}, names(out))
	require.Contains(t, string(out.Messages[0].Body), `"data":1`)
	require.Contains(t, string(out.Messages[1].Body), `"data":2`)
}

func TestAnActionSeesTheStateBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out := b.do("throw", "")
	require.Contains(t, string(out.Messages[0].Body), `"data":"warming"`)
}

func TestAnEventThatTheTableHasNotIsAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.report("warm", "heat", `{}`)
	require.NoError(t, err)
	before := b.e
	_, err = b.try("lie", "")
	require.EqualError(t, err, `machines: lamp: lie emits event "lamp.unheard", which the table does not have`)
	require.Equal(t, before, b.e)
}

func TestSameKeepsTimersAndEffectsAndReenterBeginsThemAnew(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	b.now = start.Add(10 * time.Second)
	b.do("blink", "")
	require.Equal(t, machines.Timer{At: start.Add(time.Minute), Armed: 1}, b.e.Timers["deadline"])
	require.Equal(t, "heat-1-1", b.e.Effects["heat"].ID)
	require.Equal(t, "look-2-1", b.e.Effects["look"].ID)

	out := b.do("swap", "")
	require.Equal(t, []string{"event lamp.blinked", "effect heat", "timer deadline"}, names(out))
	require.Equal(t, map[string]machines.Timer{"deadline": {At: b.now.Add(time.Minute), Armed: 3}}, b.e.Timers)
	require.Equal(t, map[string]machines.Attempt{"heat": {ID: "heat-3-1", Try: 1, Fence: 3, Since: b.now}}, b.e.Effects)
	require.Equal(t, b.now, b.e.Since)
}

func TestAnAnswerOfAnotherAttemptIsStale(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "swap")
	_, err := b.try("warm", `{"attempt":"heat-1-1","data":{"degrees":60}}`)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code)
	_, err = b.try(machines.CommandFailed, `{"effect":"heat","attempt":"heat-1-1","failure":{"code":"x","message":"y"}}`)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code)
	_, err = b.try("seen", `{"attempt":"look-1-1"}`)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code, "of an effect that was never started")

	_, err = b.report("warm", "heat", `{"degrees":60}`)
	require.NoError(t, err)
	require.Equal(t, &heat{60}, b.e.Data.(*lamp).Heat)
	_, err = b.try("warm", `{"attempt":"heat-2-1","data":{"degrees":60}}`)
	require.Equal(t, machines.CodeStale, refusal(t, err).Code, "the second delivery of an answer")
}

func TestAnObserverNeedsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "blink")
	b.do("seen", `{}`)
	require.Contains(t, b.e.Effects, "look", "the look under way goes on")
	_, err := b.report("seen", "look", "")
	require.NoError(t, err)
	require.NotContains(t, b.e.Effects, "look")
	require.Contains(t, b.e.Effects, "heat")
}

func TestBrokenEngineBodiesAreErrorsAndNoAnswers(t *testing.T) {
	t.Parallel()
	for command, body := range map[string]string{
		machines.CommandElapsed: "[]", machines.CommandFailed: "7", "warm": `"text"`,
	} {
		b := setup(t, "buy")
		_, err := b.try(command, body)
		var r *machines.Refusal
		require.Error(t, err)
		require.NotErrorAs(t, err, &r, command)
	}
	b := setup(t, "buy")
	_, err := b.try(machines.CommandFailed, `{"effect":"sing"}`)
	require.EqualError(t, err, `machines: lamp has no effect "sing"`)
}

func TestTheDeadlineTakesTheFirstOpenEdge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do("buy", `{"watts":100}`)
	out, err := b.fire("deadline")
	require.NoError(t, err)
	require.Equal(t, "broken", out.To)
	require.Equal(t, "strong", out.Edge.If)
	require.Empty(t, b.e.Timers)
	require.Empty(t, b.e.Effects)
}

func TestAStateThatStaysKeepsADeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	out, err := b.fire("deadline")
	require.NoError(t, err)
	require.Equal(t, []string{"event lamp.blinked", "effect heat", "timer deadline"}, names(out))
	require.Equal(t, 2, out.Messages[2].N)
	require.Equal(t, machines.Timer{At: start.Add(2 * time.Minute), Armed: 2}, b.e.Timers["deadline"])
}

func TestOutdatedTimersAreIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy", "swap")
	before := b.e
	for _, body := range []string{`{"timer":"deadline","armed":1}`, `{"timer":"retry-heat","armed":1}`, `{"timer":"tea","armed":0}`} {
		out, err := b.try(machines.CommandElapsed, body)
		require.NoError(t, err)
		require.Equal(t, machines.Ignored, out.Result)
		require.Empty(t, out.Messages)
		require.Equal(t, before, b.e)
	}
}

// The clock that a timer fires by may be another one than the stream's is now: it was stepped back, or the command is a
// guess of somebody who may publish it.
func TestATimerBeforeItsTimeIsIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.fail("heat", machines.Failure{Code: "cold", Message: "still", Retryable: true})
	require.NoError(t, err)
	before := b.e
	for _, timer := range []string{"deadline", "retry-heat"} {
		out, err := b.fireAt(timer, before.Timers[timer].At.Add(-time.Nanosecond))
		require.NoError(t, err)
		require.Equal(t, machines.Ignored, out.Result, timer)
		require.Empty(t, out.Messages)
		require.Equal(t, before, b.e)
	}
	out, err := b.fire("retry-heat")
	require.NoError(t, err)
	require.Equal(t, machines.Applied, out.Result)
}

func TestAConditionsTimeMovesWithItsStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	_, err := b.report("warm", "heat", `{}`)
	require.NoError(t, err)
	c, ok := b.e.Condition("Warm")
	require.True(t, ok)
	require.Equal(t, machines.Condition{Type: "Warm", Status: machines.True, Reason: "Hot", ObservedGeneration: 1, LastTransitionTime: start}, c)
	_, ok = b.e.Condition("Loud")
	require.False(t, ok)
}

func TestStepIsSafeForManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "buy")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				next, _, err := b.m.Step(b.e, machines.Input{Command: "throw", Time: start})
				if err != nil || next.State != "gone" {
					panic("two steps met")
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, "warming", b.e.State)
}

func TestDecodeRefusesWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	m := machines.Define(definition())
	for stored, want := range map[string]string{
		`{`: "cannot read a stored lamp",
		`{"schema":2,"machine":"lamp","namespace":"default","id":"desk"}`: "stored lamp default.desk has schema 2, this program knows up to 1",
		`{"machine":"lamp"}`:              "has no schema",
		`{"schema":1,"machine":"candle"}`: `stored value is a "candle", not a lamp`,
		`{"schema":1,"machine":"lamp","namespace":"default","id":"desk","state":"lost"}`:   `in state "lost", which the table does not have`,
		`{"schema":1,"machine":"lamp","data":{"watts":"many"}}`:                            "cannot read a stored lamp",
		`{"schema":1,"machine":"lamp","namespace":"default","id":"desk","version":"high"}`: "cannot read a stored lamp",
	} {
		_, err := m.Decode([]byte(stored))
		require.ErrorContains(t, err, want, stored)
	}
	for with, ok := range map[string]bool{
		`"outbox":[{"kind":"event","name":"lamp.bought"},{"kind":"effect","name":"heat"},{"kind":"timer","name":"retry-heat"}],"timers":{"retry-heat":{}}`: true,
		`"outbox":[{"kind":"event","name":"lamp bought"}]`:                      false,
		`"outbox":[{"kind":"event","name":"lamp..bought"}]`:                     false,
		`"outbox":[{"kind":"event","name":"lamp.*"}]`:                           false,
		`"outbox":[{"kind":"event","name":""}]`:                                 false,
		`"outbox":[{"kind":"event","name":"` + strings.Repeat("a", 256) + `"}]`: false,
		`"outbox":[{"kind":"effect","name":"heat.it"}]`:                         false,
		`"outbox":[{"kind":"timer","name":"heat\nit"}]`:                         false,
		`"outbox":[{"kind":"rumour","name":"heat"}]`:                            false,
		`"timers":{"heat it":{}}`:                                               false,
	} {
		_, err := m.Decode([]byte(`{"schema":1,"machine":"lamp","namespace":"default","id":"desk","state":"lit",` + with + `}`))
		require.Equal(t, ok, err == nil, "%s: %v", with, err)
	}
	e, err := m.Decode([]byte(`{"schema":1,"machine":"lamp","namespace":"default","id":"desk","state":"lit","data":null}`))
	require.NoError(t, err)
	require.Equal(t, &lamp{}, e.Data, "data is never nil")
}

func TestHashIsOfTheMeaning(t *testing.T) {
	t.Parallel()
	same := func(a, b any) bool {
		x, err := machines.Hash(a)
		require.NoError(t, err)
		y, err := machines.Hash(b)
		require.NoError(t, err)
		require.Len(t, x, 64)
		return x == y
	}
	require.True(t, same(map[string]int{"a": 1, "b": 2}, struct {
		B int `json:"b"`
		A int `json:"a"`
	}{2, 1}))
	require.True(t, same(json.RawMessage(`{ "a" : [1, 2] }`), map[string][]int{"a": {1, 2}}))
	require.False(t, same(json.RawMessage(`[1,2]`), json.RawMessage(`[2,1]`)))
	require.False(t, same(json.RawMessage(`9007199254740993`), json.RawMessage(`9007199254740992`)), "numbers as written")
	_, err := machines.Hash(make(chan int))
	require.Error(t, err)
}

func TestNamesAndIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "default.web", machines.Key("default", "", "web"))
	require.Equal(t, "default.web.1", machines.Key("default", "web", "1"))
	require.Equal(t, "lamp/default.desk/3/1", (&machines.Message{Version: 3, N: 1}).ID("lamp", "default.desk"))
	require.Equal(t, "lamp/default.desk/refused/9/5/0", (&machines.Message{Refusal: 9, At: time.Unix(0, 5)}).ID("lamp", "default.desk"))
	require.Equal(t, "a.b.c", (&machines.Task{Namespace: "a", Parent: "b", ID: "c"}).Key())
	require.EqualError(t, &machines.Failure{Code: "late", Message: "too late"}, "late: too late")
	e := machines.Define(definition()).New("default", "", "desk")
	require.False(t, e.Exists())
	require.Equal(t, "default.desk", e.Key())
	require.True(t, strings.HasPrefix(machines.Invalid(machines.FieldError{Field: "a", Message: "b"}, machines.FieldError{Field: "c", Message: "d"}).Error(), "a: b; c: d"))
}
