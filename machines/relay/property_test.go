package relay_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/relay"
)

// lawful is the table again, written by hand from the specification and not from the code: where each input may lead
// from each state. What the engine itself does (a retry) keeps the state and is not in it.
var lawful = machinetest.Law{
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
	lawful.Table(t, relay.Machine)
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{&machinetest.Run{T: t, Machine: relay.Machine, Law: lawful, Noops: noops, E: relay.Machine.New("default", "", "orders"), Now: machinetest.Begun}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.Pause(3 * time.Minute)
			w.step(w.input())
		}
	})
}

// world is one run: a relay, and the time.
type world struct{ *machinetest.Run }

func (w *world) input() machines.Input {
	t := w.T
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
		return w.Elapsed(append(slices.Sorted(maps.Keys(w.E.Timers)), "deadline")...)
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
	if effect != "" && rapid.IntRange(0, 5).Draw(w.T, "unasked") > 0 {
		r.Attempt = w.E.Effects[effect].ID
	}
	if data != nil {
		r.Data = machinetest.JSON(w.T, data)
	}
	return machines.Input{Command: name, Body: machinetest.JSON(w.T, r)}
}

func (w *world) observation() relay.Observation {
	t := w.T
	o := relay.Observation{
		Mode: "log", Active: rapid.Bool().Draw(t, "active"), Lag: rapid.Int64Range(0, 20).Draw(t, "lag"), Oldest: rapid.Float64Range(0, 60).Draw(t, "oldest"),
		Still:   rapid.SampledFrom([]float64{0, 0, 0, 4, 20}).Draw(t, "still"),
		Problem: rapid.SampledFrom([]string{"", "", "", "no route", strings.Repeat("ä", 2000)}).Draw(t, "problem"),
		Fatal:   rapid.IntRange(0, 9).Draw(t, "fatal") == 0,
		At:      w.Now,
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "parked") {
		o.Parked = append(o.Parked, relay.Parked{AggregateType: "order", AggregateID: fmt.Sprint(i)})
	}
	o.Waiting = len(o.Parked)
	return o
}

func (w *world) step(in machines.Input) {
	w.Step(in, func(in machines.Input, next machines.Entity, out machines.Output) {
		w.meaningful(in, next, out)
		w.whole(next)
	})
}

// meaningful: what changes the state is never left out by the observer.
func (w *world) meaningful(in machines.Input, next machines.Entity, out machines.Output) {
	if in.Command != "observed" || next.State == w.E.State {
		return
	}
	var r machines.Report
	var o relay.Observation
	require.NoError(w.T, json.Unmarshal(in.Body, &r))
	if len(r.Data) > 0 {
		require.NoError(w.T, json.Unmarshal(r.Data, &o))
	}
	require.True(w.T, relay.Meaningful(&w.E, &o), "%s -> %s", w.E.State, next.State)
}

// whole: what holds of every relay, whatever happened to it.
func (w *world) whole(e machines.Entity) {
	t := w.T
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
	require.LessOrEqual(t, len(machinetest.JSON(t, e.Data)), 32<<10)
}
