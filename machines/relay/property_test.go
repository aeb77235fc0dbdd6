package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/relay"
)

// lawful is the table again, written by hand from the specification and not from the code: where each input may lead
// from each state. What the engine itself does (a retry) keeps the state and is not in it.
var lawful = map[string]map[string][]string{
	"": {"register": {"starting"}},
	"starting": with(map[string][]string{
		"started": {"running"}, "start-failed": {"failed"}, "start-deadline": {"failed"}, "pause": {"paused"}, "observed": {"starting"},
	}, "starting"),
	"running": with(map[string][]string{
		"pause": {"paused"}, "drain": {"draining"}, "observed": {"running", "lagging", "stalled", "failed"},
	}, "running"),
	"lagging": with(map[string][]string{
		"pause": {"paused"}, "drain": {"draining"}, "observed": {"running", "lagging", "stalled", "failed"},
	}, "lagging"),
	"stalled": with(map[string][]string{
		"pause": {"paused"}, "drain": {"draining"}, "observed": {"running", "lagging", "stalled", "failed"},
	}, "stalled"),
	"draining": with(map[string][]string{
		"pause": {"paused"}, "resume": {"starting"}, "drained": {"paused"}, "drain-failed": {"paused"}, "drain-deadline": {"paused"}, "observed": {"draining"},
	}, "draining"),
	"paused": with(map[string][]string{
		"resume": {"starting"}, "stopped": {"paused"}, "stop-failed": {"paused"}, "observed": {"paused"},
	}, "paused"),
	"failed": with(map[string][]string{
		"pause": {"paused"}, "resume": {"starting"}, "observed": {"failed", "running", "lagging"},
	}, "failed"),
	"deleting": {
		"refresh": {"deleting"}, "purge": {"deleted"}, "observed": {"deleting"}, "observe-failed": {"deleting"},
		"removed": {"deleted"}, "remove-failed": {"deleting"}, "delete-deadline": {"deleting"},
	},
	"deleted": {"register": {"starting"}},
}

// with adds what every living state takes.
func with(own map[string][]string, state string) map[string][]string {
	maps.Copy(own, map[string][]string{
		"configure": {state}, "refresh": {state}, "delete": {"deleting"}, "purge": {"deleted"}, "observe-failed": {state},
	})
	return own
}

// deadlines are the states that must have one.
var deadlines = []string{"starting", "draining", "deleting"}

// noops are accepted without a transition.
var noops = []string{"configure", "pause", "resume", "drain", "observe-failed", machines.CommandElapsed}

func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	table := map[string]map[string][]string{}
	for _, e := range relay.Machine.Edges {
		if e.Noop {
			continue
		}
		if table[e.From] == nil {
			table[e.From] = map[string][]string{}
		}
		if !slices.Contains(table[e.From][e.On], e.To) {
			table[e.From][e.On] = append(table[e.From][e.On], e.To)
		}
	}
	for from, inputs := range lawful {
		for on, to := range inputs {
			require.ElementsMatch(t, to, table[from][on], "%s on %s", from, on)
		}
		require.Len(t, table[from], len(inputs), "%s", from)
	}
	require.Len(t, table, len(lawful))
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, e: relay.Machine.New("default", "", "orders"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(t, "pause")))
			w.step(w.input())
		}
	})
}

// world is one run: a relay, and the time.
type world struct {
	t   *rapid.T
	e   machines.Entity
	now time.Time
	seq uint64
}

func (w *world) input() machines.Input {
	t := w.t
	switch rapid.SampledFrom([]string{"command", "command", "observed", "observed", "observed", "answer", "answer", "timer", "garbage"}).Draw(t, "kind") {
	case "command":
		name := rapid.SampledFrom([]string{"register", "register", "configure", "pause", "resume", "drain", "refresh", "delete", "purge"}).Draw(t, "command")
		body := map[string]string{
			"register": `{"policy":{"lagRows":10}}`, "configure": rapid.SampledFrom([]string{`{"policy":{}}`, `{"policy":{"stallSeconds":3}}`, `{"policy":{"lagRows":-1}}`}).Draw(t, "policy"),
			"purge": rapid.SampledFrom([]string{`{}`, `{"force":true}`}).Draw(t, "force"),
		}[name]
		return machines.Input{Command: name, Body: json.RawMessage(body)}
	case "observed":
		return w.report("observed", relay.EffectLook, w.observation())
	case "answer":
		name := rapid.SampledFrom([]string{"started", "started", "started", "start-failed", "stopped", "stop-failed", "drained", "drain-failed", "removed", "remove-failed", "observe-failed"}).Draw(t, "answer")
		effect := map[string]string{"started": "start", "stopped": "stop", "drained": "drain", "removed": "remove"}[name]
		var data any
		switch name {
		case "started", "drained":
			data = w.observation()
		case "stopped", "removed":
		default:
			data = machines.Failure{Code: "invalid", Message: "something"}
		}
		return w.report(name, effect, data)
	case "timer":
		return w.timer()
	}
	var names []string
	for _, c := range relay.Machine.Inputs {
		names = append(names, c.Name)
	}
	body := rapid.SampledFrom([]string{"", "{", "null", "[]", "7", "{}", `{"policy":{"lagRows":"many"}}`, `{"data":{"lag":1e99}}`, "\x00\xff"}).Draw(t, "body")
	return machines.Input{Command: rapid.SampledFrom(append(names, "failed", "", "*")).Draw(t, "any command"), Body: json.RawMessage(body)}
}

func (w *world) report(name, effect string, data any) machines.Input {
	r := machines.Report{}
	if effect != "" && rapid.IntRange(0, 5).Draw(w.t, "unasked") > 0 {
		r.Attempt = w.e.Effects[effect].ID
	}
	if data != nil {
		r.Data = encode(w.t, data)
	}
	return machines.Input{Command: name, Body: encode(w.t, r)}
}

func (w *world) observation() relay.Observation {
	t := w.t
	o := relay.Observation{
		Mode: "log", Active: rapid.Bool().Draw(t, "active"), Lag: rapid.Int64Range(0, 20).Draw(t, "lag"), Oldest: rapid.Float64Range(0, 60).Draw(t, "oldest"),
		Still:   rapid.SampledFrom([]float64{0, 0, 0, 4, 20}).Draw(t, "still"),
		Problem: rapid.SampledFrom([]string{"", "", "", "no route", strings.Repeat("ä", 2000)}).Draw(t, "problem"),
		Fatal:   rapid.IntRange(0, 9).Draw(t, "fatal") == 0,
		At:      w.now,
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "parked") {
		o.Parked = append(o.Parked, relay.Parked{AggregateType: "order", AggregateID: fmt.Sprint(i)})
	}
	o.Waiting = len(o.Parked)
	return o
}

func (w *world) timer() machines.Input {
	name := rapid.SampledFrom(append(slices.Sorted(maps.Keys(w.e.Timers)), "deadline")).Draw(w.t, "timer")
	timer := w.e.Timers[name]
	if timer.At.After(w.now) {
		w.now = timer.At
	}
	armed := timer.Armed
	if rapid.IntRange(0, 5).Draw(w.t, "outdated") == 0 {
		armed++
	}
	return machines.Input{Command: machines.CommandElapsed, Body: encode(w.t, machines.Elapsed{Timer: name, Armed: armed})}
}

func (w *world) step(in machines.Input) {
	t, before := w.t, string(encode(w.t, w.e))
	w.seq++
	in.Seq, in.ID, in.Time, in.Actor = w.seq, fmt.Sprint("c", w.seq), w.now, "somebody"
	next, out, err := relay.Machine.Step(w.e, in)
	require.Equal(t, before, string(encode(t, w.e)), "the given entity was changed")
	again, _, _ := relay.Machine.Step(w.e, in)
	require.Equal(t, string(encode(t, next)), string(encode(t, again)), "the same input gives the same entity")

	w.meaningful(in, next, out)
	if err != nil || out.Result != machines.Applied {
		require.Equal(t, before, string(encode(t, next)), "an input that was not applied changed the entity")
		var refusal *machines.Refusal
		if !errors.As(err, &refusal) && err == nil {
			require.Contains(t, noops, in.Command)
		}
		return
	}
	require.Equal(t, w.e.Version+1, next.Version)
	if out.Edge != nil {
		require.Contains(t, lawful[out.From][out.Edge.On], out.To, "%s on %s", out.From, out.Edge.On)
	}
	events := 0
	for _, m := range out.Messages {
		if m.Kind == machines.KindEvent {
			events++
		}
	}
	require.Positive(t, events, "a transition without an event")
	w.whole(next)
	raw, err := next.AppendJSON(nil)
	require.NoError(t, err)
	w.e, err = relay.Machine.Decode(raw)
	require.NoError(t, err)
}

// meaningful: what changes the state is never left out by the observer.
func (w *world) meaningful(in machines.Input, next machines.Entity, out machines.Output) {
	if in.Command != "observed" || out.Result != machines.Applied || next.State == w.e.State {
		return
	}
	var r machines.Report
	var o relay.Observation
	require.NoError(w.t, json.Unmarshal(in.Body, &r))
	if len(r.Data) > 0 {
		require.NoError(w.t, json.Unmarshal(r.Data, &o))
	}
	require.True(w.t, relay.Meaningful(&w.e, &o), "%s -> %s", w.e.State, next.State)
}

// whole: what holds of every relay, whatever happened to it.
func (w *world) whole(e machines.Entity) {
	t := w.t
	_, armed := e.Timers["deadline"]
	require.Equal(t, slices.Contains(deadlines, e.State), armed, "deadline in %s", e.State)
	switch e.State {
	case relay.Failed, relay.Stalled:
		require.NotNil(t, e.LastError, "%s without a reason", e.State)
	case relay.Running, relay.Lagging:
		require.Nil(t, e.LastError)
		c, _ := e.Condition(relay.Publishing)
		require.Equal(t, machines.True, c.Status)
	case relay.Deleted:
		require.Empty(t, e.Effects)
		require.Empty(t, e.Timers)
		require.Len(t, e.Conditions, 1)
	}
	require.LessOrEqual(t, len(encode(t, e.Data)), 32<<10)
}

func encode(t require.TestingT, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}
