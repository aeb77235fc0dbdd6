package instance_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/machinetest"
)

// The table again, written by hand from the specification and not from the code: where each input may lead from each
// state. What keeps the state and leaves no version is not in it.
const (
	pending   = "registering.pending_persistence"
	unknown   = "active.unknown"
	warming   = "active.warming"
	healthy   = "active.healthy"
	suspect   = "active.suspect"
	unhealthy = "active.unhealthy"
	flapping  = "active.flapping"
	draining  = "draining"
	gone      = "deregistered"
)

var lawful = machinetest.Law{
	"": {"register": {pending}},
	pending: {
		"persistence-success": {unknown, warming, healthy},
		"registration-failed": {gone}, "registration-deadline": {pending, gone}, "graceful-shutdown": {draining},
	},
	unknown: {
		"health-check-passed": {warming, healthy}, "health-check-failed": {unhealthy, gone}, "heartbeat-missed": {unhealthy},
		"flap-detected": {flapping}, "graceful-shutdown": {draining},
	},
	warming: {
		"health-check-passed": {warming}, "warmup-complete": {healthy}, "health-check-failed": {suspect, unhealthy, gone},
		"heartbeat-missed": {suspect}, "flap-detected": {flapping}, "graceful-shutdown": {draining},
	},
	healthy: {
		"health-check-passed": {healthy}, "health-check-failed": {suspect, unhealthy, gone},
		"heartbeat-missed": {suspect}, "flap-detected": {flapping}, "graceful-shutdown": {draining},
	},
	suspect: {
		"health-check-passed": {warming, healthy}, "health-check-failed": {suspect, unhealthy}, "suspicion-confirmed": {suspect, unhealthy},
		"suspect-timeout": {unhealthy}, "flap-detected": {flapping}, "graceful-shutdown": {draining},
	},
	unhealthy: {
		"health-check-passed": {unhealthy, warming, healthy}, "health-check-failed": {unhealthy, gone},
		"deregister-critical-after": {unhealthy}, "critical-confirmed": {gone}, "flap-detected": {flapping}, "graceful-shutdown": {draining},
	},
	flapping: {"flap-cleared": {unknown, flapping}, "flap-detected": {flapping}, "flap-calmed": {unknown, flapping}, "graceful-shutdown": {draining}},
	draining: {
		"graceful-shutdown": {draining}, "drain-complete": {gone}, "drain-timeout": {gone},
		"cancel-drain": {pending, unknown, warming, healthy},
	},
	gone: {"register": {pending}},
}

func init() {
	for state, inputs := range lawful {
		if state == "" || state == gone {
			continue
		}
		inputs["register"], inputs["force-deregister"] = []string{pending}, []string{gone}
		for _, flag := range []string{"protect", "unprotect", "maintenance", "maintenance-expired", "pin", "label"} {
			inputs[flag] = []string{state}
		}
	}
}

func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	lawful.Table(t, instance.Machine)
}

// world is one run: an instance, the time, and what was seen of them.
type world struct {
	*machinetest.Run
	passed bool // in this generation
}

func begin(t *rapid.T) *world {
	return &world{Run: &machinetest.Run{T: t, Machine: instance.Machine, Law: lawful, E: instance.Machine.New("default", "web", "a"), Now: machinetest.Begun}}
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := begin(t)
		w.step(w.register())
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.Pause(time.Minute)
			w.step(w.input())
		}
	})
}

func (w *world) step(in machines.Input) {
	w.Step(in, func(in machines.Input, next machines.Entity, out machines.Output) {
		w.lawfully(in, next, out)
		w.fenced(in, out)
		w.whole(next)
		w.spared(next, out)
	})
}

// lawfully: only a registration leads out of the end, and only a registration raises the generation, by one.
func (w *world) lawfully(in machines.Input, next machines.Entity, out machines.Output) {
	t := w.T
	require.NotNil(t, out.Edge)
	want := w.E.Generation
	if in.Command == "register" {
		want++
		w.passed = false
	}
	require.Equal(t, want, next.Generation)
	if out.From == gone {
		require.Equal(t, "register", in.Command)
	}
	if w.E.State == unhealthy && next.State == gone {
		require.Contains(t, []string{"critical-confirmed", "health-check-failed", "force-deregister"}, in.Command, "a timer deregisters nothing")
	}
	if w.E.State == flapping && next.State == unknown && w.E.Data.(*instance.Data).Check.Kind() != "none" {
		score := w.E.Data.(*instance.Data).Flap.Score
		var report struct {
			Data instance.FlapReport `json:"data"`
		}
		if in.Command == instance.ReportCalm && json.Unmarshal(in.Body, &report) == nil { // it brings the score of now
			score = report.Data.Score
		}
		if report.Data.Last { // whatever it is
			score = -1
		}
		require.Less(t, score, w.E.Data.(*instance.Data).FlapLow())
	}
	if (in.Command == "health-check-passed" || w.heard(in)) && (out.To == healthy || out.To == warming) {
		w.passed = true
	}
}

// heard: it passed often enough before it was admitted, in this generation.
func (w *world) heard(in machines.Input) bool {
	var body struct{ Data instance.Admission }
	if in.Command != "persistence-success" || json.Unmarshal(in.Body, &body) != nil || body.Data.Passed == nil {
		return false
	}
	v := body.Data.Passed
	return (v.Generation == 0 || v.Generation == w.E.Generation) && max(v.Consecutive, 1) >= w.E.Data.(*instance.Data).Rise()
}

// fenced: nothing that speaks of another generation changes anything.
func (w *world) fenced(in machines.Input, out machines.Output) {
	var body struct {
		Generation uint64 `json:"generation"`
		Data       struct {
			Generation uint64 `json:"generation"`
		} `json:"data"`
	}
	_ = json.Unmarshal(in.Body, &body) // no body, no generation
	g := max(body.Generation, body.Data.Generation)
	require.True(w.T, g == 0 || g == w.E.Generation, "%s of generation %d at %d: %s", in.Command, g, w.E.Generation, out.To)
}

// whole: what holds of every instance, whatever happened to it.
func (w *world) whole(e machines.Entity) {
	t, d := w.T, e.Data.(*instance.Data)
	deadline, armed := e.Timers["deadline"]
	switch e.State {
	case pending, warming, draining:
		require.True(t, armed, "no deadline while %s", e.State)
	case suspect:
		require.Equal(t, !d.Protected, armed, "the end of the protection ends it")
	case flapping:
		require.True(t, armed || !w.Now.Before(d.Flap.Until), "its time is over: its results end it")
	case unhealthy:
		require.Equal(t, d.CriticalAfter() > 0 && !d.Protected && d.Overdue.IsZero(), armed)
	default:
		require.False(t, armed, "a deadline while %s", e.State)
	}
	if m := d.Maintenance; e.State != gone && m != nil && !m.Until.IsZero() {
		require.Equal(t, m.Until, e.Timers["maintenance"].At, "a maintenance whose end nobody waits for")
	} else {
		require.NotContains(t, e.Timers, "maintenance")
	}
	require.True(t, d.Overdue.IsZero() || e.State == unhealthy, "overdue while %s", e.State)
	require.Equal(t, e.State == suspect, d.Suspicion != nil)
	require.Equal(t, e.State == pending, !d.AdmitUntil.IsZero())
	require.Equal(t, e.State == draining, d.Drain != nil && e.State != gone)
	if e.State == suspect && !d.Protected {
		require.Equal(t, d.Suspicion.Until, deadline.At)
	}
	if e.State == warming {
		require.Equal(t, d.WarmSince.Add(d.Warmup()), deadline.At)
	}
	if d.Check.ObserversOf() == 1 {
		require.Empty(t, d.Failing)
		require.Empty(t, d.Passing)
	}
	if e.State == unhealthy {
		require.NotNil(t, e.LastError, "%s without a reason", e.State)
	}
	w.found(e, d)
}

// found: never before it passed, unless it is not checked; and its weight follows.
func (w *world) found(e machines.Entity, d *instance.Data) {
	known := d.Known()
	routable := instance.Routable(e.State, &known, w.Now)
	if routable {
		require.True(w.T, w.passed || d.Check.Kind() == instance.CheckNone, "found while %s, and never passed", e.State)
		require.Contains(w.T, []string{warming, healthy, suspect}, e.State)
	}
	weight := instance.Weight(&known, e.State, e.Since, w.Now)
	whole := d.Weight
	if d.Reported != nil {
		whole = *d.Reported
	}
	if d.Pinned != nil {
		whole = *d.Pinned
	}
	require.LessOrEqual(w.T, weight, whole)
	require.Equal(w.T, routable && whole > 0, weight > 0)
	if routable && e.State == healthy {
		require.Equal(w.T, whole, weight)
	}
}

// spared: while it is protected, nothing but people and registrations takes it out.
func (w *world) spared(next machines.Entity, out machines.Output) {
	d := w.E.Data.(*instance.Data)
	if !d.Protected || out.From == draining || out.From == pending {
		return
	}
	if slices.Contains([]string{unhealthy, gone, flapping}, out.To) && out.From != out.To {
		require.Contains(w.T, []string{"force-deregister", "graceful-shutdown"}, out.Edge.On, "%s -> %s", out.From, out.To)
	}
}
