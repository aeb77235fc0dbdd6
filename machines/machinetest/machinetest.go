// Package machinetest has what a test of any machine needs: the table against its specification ([Law]), and what holds of every machine after
// any sequence of inputs ([Run]), which a test of one adds its own promises to.
package machinetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
)

// Law is a table as its specification has it: by state and input, where that may lead. What the engine itself does (a retry) is not in it.
type Law map[string]map[string][]string

// Table checks that the edges of a machine, but for those that do nothing, lead where the law says and nowhere else.
func (l Law) Table(t *testing.T, m *machines.Machine) {
	t.Helper()
	table := map[string]map[string][]string{}
	for _, e := range m.Edges {
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
	for from, inputs := range l {
		for on, to := range inputs {
			require.ElementsMatch(t, to, table[from][on], "%s on %s", from, on)
		}
		require.ElementsMatch(t, slices.Collect(maps.Keys(inputs)), slices.Collect(maps.Keys(table[from])), "inputs while %q", from)
	}
	require.Len(t, table, len(l))
}

// Run is an entity that takes one input after the other.
type Run struct {
	T       *rapid.T
	Machine *machines.Machine
	Law     Law
	Noops   []string // inputs that may be accepted without a transition; nil is any
	E       machines.Entity
	Now     time.Time

	seq uint64
}

// Begun is the time at which runs begin, unless they say otherwise.
var Begun = time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)

// Pause lets up to so much time pass.
func (r *Run) Pause(most time.Duration) {
	r.Now = r.Now.Add(time.Duration(rapid.Int64Range(0, int64(most)).Draw(r.T, "pause")))
}

// Step gives the entity an input, and checks what holds of every machine: what is given stays as it is, the same input gives the same, what is
// not applied changes nothing, and what is follows the law, raises the version by one and emits an event that is registered. Applied checks
// what holds of this machine, before next becomes the entity, as it is read from the store again.
func (r *Run) Step(in machines.Input, applied func(in machines.Input, next machines.Entity, out machines.Output)) {
	t, before := r.T, string(JSON(r.T, r.E))
	r.seq++
	in.Seq, in.ID, in.Time, in.Actor = r.seq, fmt.Sprint("c", r.seq), r.Now, "somebody"
	given := slices.Clone(in.Body)
	next, out, err := r.Machine.Step(r.E, in)
	require.Equal(t, before, string(JSON(t, r.E)), "the given entity was changed")
	require.Equal(t, given, in.Body, "the given body was changed")
	again, _, _ := r.Machine.Step(r.E, in)
	after := string(JSON(t, next))
	require.Equal(t, after, string(JSON(t, again)), "the same input gives the same entity")

	var refusal *machines.Refusal
	switch {
	case errors.As(err, &refusal):
		require.NotEmpty(t, refusal.Code)
		require.NotEmpty(t, refusal.Message)
	case err == nil && out.Result != machines.Applied && r.Noops != nil:
		require.Contains(t, r.Noops, in.Command)
	}
	if err != nil || out.Result != machines.Applied {
		require.Equal(t, before, after, "an input that was not applied changed the entity")
		require.Empty(t, out.Messages)
		return
	}
	r.lawful(in, next, out)
	applied(in, next, out)
	r.E, err = r.Machine.Decode([]byte(after))
	require.NoError(t, err)
	require.Equal(t, after, string(JSON(t, r.E)), "what is read is what was written")
}

func (r *Run) lawful(in machines.Input, next machines.Entity, out machines.Output) {
	t := r.T
	require.Equal(t, r.E.Version+1, next.Version)
	require.Equal(t, r.E.State, out.From)
	require.Equal(t, next.State, out.To)
	if out.Edge == nil {
		require.Contains(t, []string{machines.CommandElapsed, machines.CommandFailed}, in.Command)
		require.Equal(t, out.From, out.To, "a retry keeps the state")
	} else {
		require.Contains(t, r.Law[out.From][out.Edge.On], out.To, "%s on %s", out.From, out.Edge.On)
	}
	events := 0
	for i, m := range out.Messages {
		require.Equal(t, i, m.N)
		require.Equal(t, next.Version, m.Version)
		require.True(t, json.Valid(m.Body))
		if m.Kind == machines.KindEvent {
			events++
			_, ok := r.Machine.Event(m.Name)
			require.True(t, ok, "event %s is not registered", m.Name)
		}
	}
	require.Positive(t, events, "a transition without an event")
	for name, timer := range next.Timers {
		require.LessOrEqual(t, timer.Armed, next.Version, name)
	}
}

// Elapsed is the input of one of these timers, whose time has come by then; now and then it is an outdated one.
func (r *Run) Elapsed(names ...string) machines.Input {
	name := rapid.SampledFrom(names).Draw(r.T, "timer")
	timer := r.E.Timers[name]
	if timer.At.After(r.Now) {
		r.Now = timer.At
	}
	armed := timer.Armed
	if rapid.IntRange(0, 5).Draw(r.T, "outdated") == 0 {
		armed++
	}
	return machines.Input{Command: machines.CommandElapsed, Body: JSON(r.T, machines.Elapsed{Timer: name, Armed: armed})}
}

// Report is the input by which a worker or an observer reports data; nil is none.
func Report(t require.TestingT, name, attempt string, data any) machines.Input {
	r := machines.Report{Attempt: attempt}
	if data != nil {
		r.Data = JSON(t, data)
	}
	return machines.Input{Command: name, Body: JSON(t, r)}
}

// JSON is a value as the store has it.
func JSON(t require.TestingT, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}
