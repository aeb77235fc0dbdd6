package service_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/service"
)

// lawful is the table again, written by hand from the specification and not from the code: where each input may lead
// from each state. What the engine itself does (a retry) keeps the state and is not in it.
var lawful = machinetest.Law{
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
	lawful.Table(t, service.Machine)
}

// world is one run: a service, the time, and what was seen of them.
type world struct {
	*machinetest.Run
	high uint64 // the highest generation
}

func begin(t *rapid.T) *world {
	return &world{Run: &machinetest.Run{T: t, Machine: service.Machine, Law: lawful, Noops: noops, E: service.Machine.New("default", "", "web"), Now: machinetest.Begun}}
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := begin(t)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			w.Pause(20 * time.Minute)
			w.step(w.input())
		}
	})
}

func (w *world) step(in machines.Input) {
	w.Step(in, func(in machines.Input, next machines.Entity, out machines.Output) {
		if out.From == service.Deleted { // only into a higher life
			require.Equal(w.T, "create", in.Command)
			require.Greater(w.T, next.Generation, w.high)
		}
		require.GreaterOrEqual(w.T, next.Generation, w.high)
		w.high = next.Generation
		w.whole(next)
		w.proven(in, next, out)
	})
}

// whole: what holds of every service, whatever happened to it.
func (w *world) whole(e machines.Entity) {
	t, d := w.T, e.Data.(*service.Data)
	_, armed := e.Timers["deadline"]
	require.Equal(t, slices.Contains(deadlines, e.State), armed, "deadline in %s", e.State)
	require.NotNil(t, d.Spec)
	require.Equal(t, d.Spec.Hash(), d.SpecHash)
	require.NotEmpty(t, d.UID)
	require.False(t, d.ObservedAt.After(w.Now))
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
	require.NoError(w.T, json.Unmarshal(in.Body, &r))
	if len(r.Data) > 0 { // none is an observation of nothing
		require.NoError(w.T, json.Unmarshal(r.Data, &o))
	}
	switch out.To {
	case service.Ready:
		require.True(w.T, o.Exists && o.Ready == machines.True && o.Route != machines.False)
		require.Equal(w.T, next.Data.(*service.Data).SpecHash, o.SpecHash)
		require.Equal(w.T, o.Generation, o.ObservedGeneration)
	case service.Failed:
		require.True(w.T, o.Ready == machines.False || out.From == service.Ready && (!o.Exists || o.Route == machines.False))
		if out.From != service.Ready {
			require.Equal(w.T, next.Data.(*service.Data).SpecHash, o.SpecHash)
			require.Equal(w.T, o.Generation, o.ObservedGeneration)
		}
	case service.Deleted:
		require.True(w.T, !o.Exists || o.UID != w.E.Data.(*service.Data).Applied.UID)
	}
}

// What is not meaningful may be left out: a step with it would write the time of the observation and nothing else.
func TestWhatIsNotMeaningfulChangesNothing(t *testing.T) {
	t.Parallel()
	left := 0
	rapid.Check(t, func(t *rapid.T) {
		w := begin(t)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.Pause(20 * time.Minute)
			if !w.E.Exists() || rapid.IntRange(0, 2).Draw(t, "other") == 0 {
				w.step(w.input())
				continue
			}
			o := w.observation()
			if d := w.E.Data.(*service.Data); d.Snapshot != nil && rapid.Bool().Draw(t, "as before") {
				o.Snapshot = *d.Snapshot
			}
			in := machinetest.Report(t, "observed", "", o)
			if w.E.State == service.Deleted || service.Meaningful(&w.E, &o) {
				w.step(in)
				continue
			}
			left++
			in.Time = w.Now
			next, out, err := service.Machine.Step(w.E, in)
			require.NoError(t, err)
			require.Equal(t, w.E.State, next.State)
			require.Equal(t, "observed", out.Edge.On)
			require.Empty(t, out.Edge.If, "a guarded edge was taken")
			next.Version, next.UpdatedAt = w.E.Version, w.E.UpdatedAt
			next.Data.(*service.Data).ObservedAt = w.E.Data.(*service.Data).ObservedAt
			require.Equal(t, machinetest.JSON(t, undated(w.E)), machinetest.JSON(t, undated(next)))
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
