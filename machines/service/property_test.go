package service_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// lawful is the table again, written by hand from the specification and not from the code: where each input may lead
// from each state. What the engine itself does (a retry) keeps the state and is not in it.
var lawful = map[string]map[string][]string{
	"": {"create": {"CREATING"}},
	"CREATING": {
		"update": {"UPDATING"}, "delete": {"DELETING"}, "refresh": {"CREATING"}, "label": {"CREATING"}, "purge": {"DELETED"},
		"applied": {"CREATING"}, "apply-failed": {"FAILED"}, "progress-deadline": {"FAILED"},
		"observed": {"CREATING", "READY", "FAILED"}, "observe-failed": {"CREATING"},
	},
	"UPDATING": {
		"update": {"UPDATING"}, "rollback": {"UPDATING"}, "delete": {"DELETING"}, "refresh": {"UPDATING"}, "label": {"UPDATING"}, "purge": {"DELETED"},
		"applied": {"UPDATING"}, "apply-failed": {"FAILED"}, "progress-deadline": {"FAILED"},
		"observed": {"UPDATING", "READY", "FAILED"}, "observe-failed": {"UPDATING"},
	},
	"READY": {
		"update": {"UPDATING", "READY"}, "rollback": {"UPDATING"}, "delete": {"DELETING"}, "refresh": {"READY"}, "label": {"READY"}, "purge": {"DELETED"},
		"observed": {"READY", "FAILED", "UPDATING"}, "observe-failed": {"READY"},
	},
	"FAILED": {
		"update": {"UPDATING"}, "rollback": {"UPDATING"}, "delete": {"DELETING"}, "refresh": {"FAILED"}, "label": {"FAILED"}, "purge": {"DELETED"},
		"observed": {"FAILED", "READY"}, "observe-failed": {"FAILED"},
	},
	"DELETING": {
		"refresh": {"DELETING"}, "label": {"DELETING"}, "purge": {"DELETED"}, "observed": {"DELETING", "DELETED"}, "observe-failed": {"DELETING"},
		"delete-accepted": {"DELETING"}, "delete-failed": {"DELETING"}, "delete-deadline": {"DELETING"}, "deleted-observed": {"DELETED"},
	},
	"DELETED": {"create": {"CREATING"}},
}

// deadlines are the states that must have one.
var deadlines = []string{"CREATING", "UPDATING", "DELETING"}

// noops are accepted without a transition.
var noops = []string{"update", "observe-failed", "deleted-observed", machines.CommandElapsed}

func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	table := map[string]map[string][]string{}
	for _, e := range service.Machine.Edges {
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

// world is one run: a service, the time, and what was seen of them.
type world struct {
	t    *rapid.T
	e    machines.Entity
	now  time.Time
	seq  uint64
	high uint64 // the highest generation
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, e: service.Machine.New("default", "", "web"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "pause")))
			w.step(w.input())
		}
	})
}

func (w *world) step(in machines.Input) {
	t, before := w.t, encode(w.t, w.e)
	given := slices.Clone(in.Body)
	w.seq++
	in.Seq, in.ID, in.Time, in.Actor = w.seq, fmt.Sprint("c", w.seq), w.now, "somebody"
	next, out, err := service.Machine.Step(w.e, in)
	require.Equal(t, before, encode(t, w.e), "the given entity was changed")
	require.Equal(t, given, in.Body, "the given body was changed")

	again, _, _ := service.Machine.Step(w.e, machines.Input{Command: in.Command, Body: in.Body, Seq: w.seq, ID: fmt.Sprint("c", w.seq), Time: w.now, Actor: "somebody"})
	require.Equal(t, encode(t, next), encode(t, again), "the same input gives the same entity")

	if err != nil || out.Result != machines.Applied {
		w.unchanged(before, next, in, out, err)
		return
	}
	w.lawfully(in, next, out)
	w.told(out)
	w.whole(next)
	w.proven(in, next, out)
	w.e = decode(t, next)
}

func (w *world) unchanged(before string, next machines.Entity, in machines.Input, out machines.Output, err error) {
	require.Equal(w.t, before, encode(w.t, next), "an input that was not applied changed the entity")
	require.Empty(w.t, out.Messages)
	var refusal *machines.Refusal
	switch {
	case errors.As(err, &refusal):
		require.NotEmpty(w.t, refusal.Code)
		require.NotEmpty(w.t, refusal.Message)
	case err == nil:
		require.Contains(w.t, noops, in.Command)
	}
}

// lawfully: one version more, along an edge of the specification, and never out of DELETED but into a higher life.
func (w *world) lawfully(in machines.Input, next machines.Entity, out machines.Output) {
	t := w.t
	require.Equal(t, w.e.Version+1, next.Version)
	require.Equal(t, w.e.State, out.From)
	require.Equal(t, next.State, out.To)
	if out.Edge == nil {
		require.Contains(t, []string{machines.CommandElapsed, machines.CommandFailed}, in.Command)
		require.Equal(t, out.From, out.To, "a retry keeps the state")
	} else {
		require.Contains(t, lawful[out.From][out.Edge.On], out.To, "%s on %s", out.From, out.Edge.On)
	}
	if out.From == service.Deleted {
		require.Equal(t, "create", in.Command)
		require.Greater(t, next.Generation, w.high)
	}
	require.GreaterOrEqual(t, next.Generation, w.high)
	w.high = next.Generation
}

// told: every transition tells of itself, in messages that are numbered without gaps.
func (w *world) told(out machines.Output) {
	events := 0
	for i, m := range out.Messages {
		require.Equal(w.t, i, m.N)
		require.Equal(w.t, w.e.Version+1, m.Version)
		if m.Kind == machines.KindEvent {
			events++
			_, ok := service.Machine.Event(m.Name)
			require.True(w.t, ok, "event %s is not registered", m.Name)
		}
		require.True(w.t, json.Valid(m.Body))
	}
	require.Positive(w.t, events, "a transition without an event")
}

// whole: what holds of every service, whatever happened to it.
func (w *world) whole(e machines.Entity) {
	t, d := w.t, e.Data.(*service.Data)
	_, armed := e.Timers["deadline"]
	require.Equal(t, slices.Contains(deadlines, e.State), armed, "deadline in %s", e.State)
	for name, timer := range e.Timers {
		require.LessOrEqual(t, timer.Armed, e.Version, name)
	}
	require.NotNil(t, d.Spec)
	require.Equal(t, d.Spec.Hash(), d.SpecHash)
	require.NotEmpty(t, d.UID)
	require.False(t, d.ObservedAt.After(w.now))
	switch e.State {
	case service.Failed:
		require.NotNil(t, e.LastError, "FAILED without a reason")
	case service.Ready:
		require.Nil(t, e.LastError)
		require.Equal(t, d.SpecHash, d.Converged.Hash)
	case service.Deleted:
		require.Empty(t, e.Effects)
		require.Empty(t, e.Timers)
	}
	c, ok := e.Condition(service.Available)
	require.True(t, ok)
	require.Equal(t, e.State == service.Ready, c.Status == machines.True)
}

// proven: READY is entered on evidence only, and FAILED by evidence on Ready=False or what counts as it.
func (w *world) proven(in machines.Input, next machines.Entity, out machines.Output) {
	if in.Command != "observed" || out.From == out.To {
		return
	}
	var o service.Observation
	var r machines.Report
	require.NoError(w.t, json.Unmarshal(in.Body, &r))
	if len(r.Data) > 0 { // none is an observation of nothing
		require.NoError(w.t, json.Unmarshal(r.Data, &o))
	}
	switch out.To {
	case service.Ready:
		require.True(w.t, o.Exists && o.Ready == machines.True && o.Route != machines.False)
		require.Equal(w.t, next.Data.(*service.Data).SpecHash, o.SpecHash)
		require.Equal(w.t, o.Generation, o.ObservedGeneration)
	case service.Failed:
		require.True(w.t, o.Ready == machines.False || out.From == service.Ready && (!o.Exists || o.Route == machines.False))
		if out.From != service.Ready {
			require.Equal(w.t, next.Data.(*service.Data).SpecHash, o.SpecHash)
			require.Equal(w.t, o.Generation, o.ObservedGeneration)
		}
	case service.Deleted:
		require.True(w.t, !o.Exists || o.UID != w.e.Data.(*service.Data).Applied.UID)
	}
}

// What is not meaningful may be left out: a step with it would write the time of the observation and nothing else.
func TestWhatIsNotMeaningfulChangesNothing(t *testing.T) {
	t.Parallel()
	left := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, e: service.Machine.New("default", "", "web"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "pause")))
			if !w.e.Exists() || rapid.IntRange(0, 2).Draw(t, "other") == 0 {
				w.step(w.input())
				continue
			}
			o := w.observation()
			if d := w.e.Data.(*service.Data); d.Snapshot != nil && rapid.Bool().Draw(t, "as before") {
				o.Snapshot = *d.Snapshot
			}
			in := report(t, "observed", "", o)
			if w.e.State == service.Deleted || service.Meaningful(&w.e, &o) {
				w.step(in)
				continue
			}
			left++
			in.Time = w.now
			next, out, err := service.Machine.Step(w.e, in)
			require.NoError(t, err)
			require.Equal(t, w.e.State, next.State)
			require.Equal(t, "observed", out.Edge.On)
			require.Empty(t, out.Edge.If, "a guarded edge was taken")
			next.Version, next.UpdatedAt = w.e.Version, w.e.UpdatedAt
			next.Data.(*service.Data).ObservedAt = w.e.Data.(*service.Data).ObservedAt
			require.Equal(t, encode(t, undated(w.e)), encode(t, undated(next)))
		}
	})
	require.Positive(t, left, "no observation was left out: the test proves nothing")
}

// undated leaves out at which generation a condition was last confirmed: that it still holds is no news.
func undated(e machines.Entity) machines.Entity {
	e.Conditions = slices.Clone(e.Conditions)
	for i := range e.Conditions {
		e.Conditions[i].ObservedGeneration = 0
	}
	return e
}

func encode(t require.TestingT, v any) string {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// decode stores the entity and reads it again, as the engine does between two steps on different nodes.
func decode(t require.TestingT, e machines.Entity) machines.Entity {
	stored := encode(t, e)
	read, err := service.Machine.Decode([]byte(stored))
	require.NoError(t, err)
	require.Equal(t, stored, encode(t, read))
	return read
}
