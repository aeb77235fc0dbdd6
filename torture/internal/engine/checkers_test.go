package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/part"
)

// The checkers are worth what they find: each test breaks one promise in a history that keeps all of them.

var dawn = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const key = "default.web"

// good is the history of one service that is created, becomes ready, is labelled and waits for a far deadline again.
func good() *check.History {
	h := &check.History{Values: map[string]check.Value{}, Schedules: map[string]time.Time{}, Read: dawn.Add(time.Minute), Late: 10 * time.Second}
	add := func(version uint64, from, command, id, to string, data any, types ...string) {
		for n, typ := range types {
			raw, err := json.Marshal(data)
			if err != nil {
				panic(err)
			}
			h.Events = append(h.Events, check.Event{
				Seq: uint64(len(h.Events) + 1), ID: fmt.Sprintf("service/%s/%d/%d", key, version, n), Type: typ, Key: key,
				Body: check.Body{From: from, To: to, Version: version, Generation: 1, Time: dawn.Add(time.Duration(version) * time.Second), Command: command, CommandID: id, Data: raw},
			})
		}
	}
	type labels map[string]map[string]string
	add(1, "", "create", "c1", "CREATING", labels{"labels": {"a": "1"}}, "service.creation.requested", "service.spec.accepted", "service.spec.apply.started")
	add(2, "CREATING", "applied", "apply-1-1-done", "CREATING", nil, "service.spec.applied", "service.persisted")
	add(3, "CREATING", "observed", "o1", "READY", nil, "service.snapshot.updated", "service.convergence.confirmed", "service.ready")
	add(4, "READY", "label", "c2", "READY", labels{"labels": {"a": "2"}}, "service.labels.updated")
	h.Events = append(h.Events, check.Event{Seq: 10, ID: "service/" + key + "/refused/77", Type: "command.refused", Key: key, Body: check.Body{From: "READY", To: "READY", Version: 4, Command: "create", CommandID: "c3"}})
	add(5, "READY", "update", "c4", "UPDATING", nil, "service.update.requested", "service.spec.accepted", "service.spec.apply.started")
	h.Events[len(h.Events)-1].Seq, h.Events[len(h.Events)-2].Seq, h.Events[len(h.Events)-3].Seq = 14, 13, 12
	deadline := dawn.Add(time.Hour)
	h.Values[key] = check.Value{
		State: "UPDATING", Version: 5, Generation: 1, Labels: map[string]string{"a": "2"}, Timers: map[string]check.Timer{"deadline": {At: deadline}},
		Outbox: []check.Message{{Kind: "event", Name: "service.update.requested", Version: 5, N: 0}},
	}
	h.Schedules[key+"/deadline"] = deadline
	h.Commands = []check.Command{
		{ID: "c1", Key: key, Name: "create", Sent: dawn, Answered: dawn.Add(time.Second), Outcome: check.Applied, Version: 1},
		{ID: "c2", Key: key, Name: "label", Sent: dawn.Add(4 * time.Second), Answered: dawn.Add(5 * time.Second), Outcome: check.Applied, Version: 4},
		{ID: "c3", Key: key, Name: "create", Sent: dawn.Add(5 * time.Second), Answered: dawn.Add(6 * time.Second), Outcome: check.Refused, Code: "already-exists"},
		{ID: "c4", Key: key, Name: "update", Sent: dawn.Add(6 * time.Second), Answered: dawn.Add(7 * time.Second), Outcome: check.Applied, Version: 5},
	}
	return h
}

func TestAGoodHistoryHasNoViolation(t *testing.T) {
	t.Parallel()
	require.Empty(t, check.Check(good()))
}

// events removes or changes events.
func events(h *check.History, change func(*check.Event) bool) {
	var kept []check.Event
	for _, e := range h.Events {
		if change(&e) {
			kept = append(kept, e)
		}
	}
	h.Events = kept
}

func value(h *check.History, change func(*check.Value)) {
	v := h.Values[key]
	change(&v)
	h.Values[key] = v
}

func TestBrokenPromisesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule  string
		spoil func(*check.History)
	}{
		"applied twice": {"once", func(h *check.History) {
			events(h, func(e *check.Event) bool {
				if e.Body.Version == 5 {
					e.Body.CommandID = "c2"
				}
				return true
			})
		}},
		"applied although refused":    {"once", func(h *check.History) { h.Commands[3].Outcome = check.Refused }},
		"answered with a wrong place": {"once", func(h *check.History) { h.Commands[1].Version = 3 }},
		"refusal stored twice":        {"once", func(h *check.History) { e := h.Events[9]; e.Seq = 11; h.Events = append(h.Events, e) }},
		"acknowledged, but lost":      {"lost", func(h *check.History) { h.Commands[1].ID = "c9" }},
		"never answered":              {"lost", func(h *check.History) { h.Commands[1].Outcome = "" }},
		"a first event is missing": {"history", func(h *check.History) {
			events(h, func(e *check.Event) bool { return !strings.HasSuffix(e.ID, "/2/0") })
		}},
		"an event inside is missing": {"history", func(h *check.History) {
			events(h, func(e *check.Event) bool { return !strings.HasSuffix(e.ID, "/3/1") })
		}},
		"a last event is missing": {"legal", func(h *check.History) {
			events(h, func(e *check.Event) bool { return !strings.HasSuffix(e.ID, "/3/2") })
		}},
		"the last event is missing": {"legal", func(h *check.History) {
			events(h, func(e *check.Event) bool { return !strings.HasSuffix(e.ID, "/5/2") })
		}},
		"a version is missing":         {"history", func(h *check.History) { events(h, func(e *check.Event) bool { return e.Body.Version != 4 }) }},
		"the last version is missing":  {"history", func(h *check.History) { events(h, func(e *check.Event) bool { return e.Body.Version != 5 }) }},
		"an event stands twice":        {"history", func(h *check.History) { e := h.Events[0]; e.Seq = 99; h.Events = append(h.Events, e) }},
		"events are out of order":      {"history", func(h *check.History) { h.Events[0].Seq, h.Events[1].Seq = h.Events[1].Seq, h.Events[0].Seq }},
		"an outbox is not published":   {"history", func(h *check.History) { value(h, func(v *check.Value) { v.Outbox[0].N = 3 }) }},
		"the stored version is behind": {"history", func(h *check.History) { value(h, func(v *check.Value) { v.Version = 4 }) }},
		"the stored state is another":  {"history", func(h *check.History) { value(h, func(v *check.Value) { v.State = "READY" }) }},
		"the labels are others":        {"history", func(h *check.History) { value(h, func(v *check.Value) { v.Labels = map[string]string{"a": "1"} }) }},
		"the value is gone":            {"history", func(h *check.History) { delete(h.Values, key) }},
		"a value came from nowhere":    {"history", func(h *check.History) { h.Values["default.ghost"] = check.Value{State: "READY", Version: 1} }},
		"an illegal edge": {"legal", func(h *check.History) {
			events(h, func(e *check.Event) bool {
				if e.Body.Version == 3 {
					e.Body.Command = "label"
				}
				return true
			})
		}},
		"a transition begins elsewhere": {"history", func(h *check.History) {
			events(h, func(e *check.Event) bool {
				if e.Body.Version == 4 {
					e.Body.From = "FAILED"
				}
				return true
			})
		}},
		"answered before, and behind": {"order", func(h *check.History) {
			h.Commands[3].Sent, h.Commands[3].Answered = dawn.Add(time.Second), dawn.Add(2*time.Second)
		}},
		"an effect that nobody performs": {"effects", func(h *check.History) {
			value(h, func(v *check.Value) { v.Effects = map[string]check.Attempt{"apply": {ID: "apply-5-1"}} })
		}},
		"no deadline":            {"timers", func(h *check.History) { value(h, func(v *check.Value) { v.Timers = nil }) }},
		"nothing fires a timer":  {"timers", func(h *check.History) { h.Schedules = nil }},
		"it fires at other time": {"timers", func(h *check.History) { h.Schedules[key+"/deadline"] = dawn }},
		"a timer did not fire": {"timers", func(h *check.History) {
			value(h, func(v *check.Value) { v.Timers["deadline"] = check.Timer{At: dawn} })
		}},
		"it did not fail by its deadline": {"timers", func(h *check.History) { h.Deadlines = map[string]time.Duration{key: time.Second} }},
		"a command is left":               {"left", func(h *check.History) { h.Pending = []string{"instar.in.1.service.default.web.label"} }},
		"an effect is left":               {"left", func(h *check.History) { h.Effects = []string{"instar.fx.service.apply.default.web"} }},
		"a dead letter":                   {"left", func(h *check.History) { h.Letters = []string{"why"} }},
		"a dead letter is missing":        {"left", func(h *check.History) { h.Buried = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			c.spoil(h)
			var rules []string
			for _, v := range check.Check(h) {
				rules = append(rules, v.Rule)
			}
			require.Contains(t, rules, c.rule)
		})
	}
}

func TestARefusalThatWasDecidedAnewIsCounted(t *testing.T) {
	t.Parallel()
	h := good()
	require.Zero(t, check.Redecided(h))
	h.Events[9].Body.CommandID = "c4"
	require.Equal(t, 1, check.Redecided(h))
}

func TestTheStoryHasEverything(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	check.Story(&told, good(), key)
	for _, part := range []string{"4 commands", "c3 create", "13 events", "service/default.web/3/1", "command.refused"} {
		require.Contains(t, told.String(), part)
	}
}

// on is one operation on one register, from one time to another.
func on(client int, from, to int64, in registerInput, out registerOutput) porcupine.Operation {
	in.key = "r"
	return porcupine.Operation{ClientId: client, Input: in, Output: out, Call: from, Return: to}
}

func TestRegisters(t *testing.T) {
	t.Parallel()
	read := func(client int, from, to int64, value string, version uint64) porcupine.Operation {
		return on(client, from, to, registerInput{kind: "read"}, registerOutput{value: value, version: version})
	}
	write := func(client int, from, to int64, value string, version uint64) porcupine.Operation {
		return on(client, from, to, registerInput{kind: "write", value: value}, registerOutput{version: version})
	}
	cas := func(client int, from, to int64, at uint64, value string, out registerOutput) porcupine.Operation {
		return on(client, from, to, registerInput{kind: "cas", value: value, at: at}, out)
	}
	for name, c := range map[string]struct {
		ok  bool
		ops []porcupine.Operation
	}{
		"in order":                   {true, []porcupine.Operation{write(0, 1, 2, "a", 1), read(1, 3, 4, "a", 1), cas(0, 5, 6, 1, "b", registerOutput{version: 2}), read(1, 7, 8, "b", 2)}},
		"beside each other":          {true, []porcupine.Operation{write(0, 1, 9, "a", 2), write(1, 1, 9, "b", 1), read(2, 2, 3, "b", 1)}},
		"unknown and happened":       {true, []porcupine.Operation{cas(0, 1, 9, 0, "a", registerOutput{unknown: true}), read(1, 10, 11, "a", 1)}},
		"unknown and did not":        {true, []porcupine.Operation{cas(0, 1, 9, 0, "a", registerOutput{unknown: true}), read(1, 10, 11, "", 0)}},
		"a stale read":               {false, []porcupine.Operation{write(0, 1, 2, "a", 1), read(1, 3, 4, "", 0)}},
		"a lost write":               {false, []porcupine.Operation{write(0, 1, 2, "a", 1), write(1, 3, 4, "b", 1)}},
		"a guard that did not guard": {false, []porcupine.Operation{write(0, 1, 2, "a", 1), cas(1, 3, 4, 0, "b", registerOutput{version: 2})}},
		"refused without a reason":   {false, []porcupine.Operation{write(0, 1, 2, "a", 1), cas(1, 3, 4, 1, "b", registerOutput{refused: true})}},
		"a read back in time":        {false, []porcupine.Operation{write(0, 1, 2, "a", 1), write(0, 3, 4, "b", 2), read(1, 5, 6, "b", 2), read(2, 7, 8, "a", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.ok, porcupine.CheckOperationsTimeout(registerModel, c.ops, 10*time.Second) == porcupine.Ok)
		})
	}
}

func TestRegistersThatNobodyReadsOrGuardsShowNothing(t *testing.T) {
	t.Parallel()
	op := func(kind string, at int64, in registerInput, out registerOutput) porcupine.Operation {
		in.key, in.kind = key, kind
		return porcupine.Operation{Input: in, Call: at, Output: out, Return: at + 1}
	}
	all := []porcupine.Operation{
		op("write", 1, registerInput{value: "a"}, registerOutput{version: 1}),
		op("read", 3, registerInput{}, registerOutput{value: "a", version: 1}),
		op("cas", 5, registerInput{value: "b", at: 1}, registerOutput{version: 2}),
	}
	for n, violations := range []int{2, 2, 1, 0} {
		p := part.New(t.Context(), "porcupine", part.Session{}, io.Discard)
		explain(p, all[:n])
		require.Equal(t, violations, p.Violations, "the first %d", n)
	}
}

func TestTheClockDecidesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		on := live(seed, func(i int, _ *rand.Rand) time.Duration { return time.Duration(i) * time.Second })
		back := live(seed, func(i int, _ *rand.Rand) time.Duration { return -time.Duration(i) * time.Hour })
		require.Equal(t, on, back)
	}
}
