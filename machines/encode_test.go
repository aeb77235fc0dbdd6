package machines

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is written by hand means what encoding/json would have written.
func TestHandWrittenJSONIsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntity(t)
		raw, err := e.AppendJSON(nil)
		require.NoError(t, err)
		want, err := json.Marshal(&e)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(raw))

		ev := Event{From: text(t), To: text(t), Version: 3, Time: e.Since, Command: text(t), CommandID: text(t), Actor: text(t), Reason: text(t)}
		ev.Data = rapid.SampledFrom([]any{e.Labels, map[string]any{text(t): text(t), "labels": e.Labels, "none": nil, "n": e.Version, "in": map[string]any{text(t): e.Since}, "list": []string{text(t)}}, e.LastError}).Draw(t, "data")
		raw, err = ev.AppendJSON(nil)
		require.NoError(t, err)
		want, err = json.Marshal(&ev)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(raw))

		a := Answer{Outcome: text(t), Machine: text(t), ID: text(t), Parent: text(t), Command: text(t), CommandID: text(t), State: text(t), Version: 1, Revision: 2, Refusal: refusal(t)}
		raw, err = a.AppendJSON(nil)
		require.NoError(t, err)
		want, err = json.Marshal(&a)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(raw))
	})
}

// A time that was calculated and could not be read again is not written.
func TestATimeThatCannotBeReadIsNotWritten(t *testing.T) {
	t.Parallel()
	late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, e := range []Entity{{Timers: map[string]Timer{"t": {At: late}}}, {Effects: map[string]Attempt{"e": {NextTry: &late}}}} {
		_, err := e.AppendJSON(nil)
		require.Error(t, err)
	}
	ev := Event{Data: map[string]any{"deep": map[string]any{"at": late}}}
	_, err := ev.AppendJSON(nil)
	require.Error(t, err)
}

func text(t *rapid.T) string { return rapid.String().Draw(t, "text") }

func refusal(t *rapid.T) *Refusal {
	if rapid.Bool().Draw(t, "refused") {
		return &Refusal{Code: text(t), Message: text(t), Allowed: []string{text(t)}}
	}
	return nil
}

func drawEntity(t *rapid.T) Entity {
	at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	e := Entity{Schema: 1, Machine: text(t), Namespace: text(t), ID: text(t), Parent: text(t), State: text(t), Version: rapid.Uint64().Draw(t, "v"), Since: at, UpdatedAt: at, Mark: 9, MarkedAt: at}
	if rapid.Bool().Draw(t, "full") {
		e.Labels = map[string]string{text(t): text(t)}
		e.Data = map[string]any{"text": text(t)}
		e.Timers = map[string]Timer{"deadline": {At: at, Armed: 2}, text(t): {At: at}}
		e.Effects = map[string]Attempt{"apply": {ID: text(t), Try: 1, Fence: 7, Since: at}, text(t): {Try: 2, NextTry: &at, Error: &Failure{Code: text(t), At: at}}}
		e.LastError = &Failure{Code: text(t), Message: text(t)}
		e.Conditions = []Condition{{Type: text(t), Status: True, Reason: text(t), Message: text(t), ObservedGeneration: 3, LastTransitionTime: at}, {Type: "x"}}
		e.Commands = []Outcome{{ID: text(t), Seq: 1, Result: Refused, State: text(t), Version: 2, Hash: "h", Refusal: refusal(t)}, {}}
		e.Outbox = []Message{{Kind: KindEvent, Name: text(t), Version: 1, N: 2, At: at, Body: json.RawMessage(`{"a":1}`), Trace: text(t), Refusal: 7}, {}}
	}
	return e
}
