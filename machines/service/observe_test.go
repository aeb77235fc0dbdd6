package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/service"
)

var noon = time.Date(2026, 1, 26, 12, 0, 0, 0, time.UTC)

// whole is what a gateway tells of a service that runs.
func whole() service.Snapshot {
	return service.Snapshot{
		Exists: true, UID: "k1", Generation: 1, ObservedGeneration: 1, SpecHash: service.Spec{Image: "hello:1"}.Hash(), Ready: machines.True,
		URL: "http://web", LatestCreated: "web-1", LatestReady: "web-1", Serving: "web-1", Traffic: []service.Traffic{{Revision: "web-1", Percent: 100}},
	}
}

// after plays a create and what follows it, a minute apart, and returns the service.
func after(t *testing.T, inputs ...machines.Input) *machines.Entity {
	t.Helper()
	e := service.Machine.New("default", "", "web")
	inputs = append([]machines.Input{{Command: "create", Body: json.RawMessage(`{"spec":{"image":"hello:1"}}`)}}, inputs...)
	for i, in := range inputs {
		in.Seq, in.Time = uint64(i+1), noon.Add(time.Duration(i)*time.Minute)
		next, _, err := service.Machine.Step(e, in)
		require.NoError(t, err)
		e = next
	}
	return &e
}

func applied(t *testing.T) machines.Input {
	return machinetest.Report(t, "applied", "apply-1-1", service.Applied{UID: "k1", Generation: 1})
}

func observed(t *testing.T, change func(*service.Snapshot)) machines.Input {
	s := whole()
	change(&s)
	return machinetest.Report(t, "observed", "", service.Observation{Snapshot: s})
}

func asIs(*service.Snapshot)   {}
func down(s *service.Snapshot) { s.Ready, s.Reason = machines.False, "PodsGone" }
func pending(s *service.Snapshot) {
	s.Ready, s.Reason = machines.Unknown, "Deploying"
}

func TestMeaningful(t *testing.T) {
	t.Parallel()
	ready := []machines.Input{applied(t), observed(t, asIs)}
	cases := map[string]struct {
		before []machines.Input
		see    func(*service.Snapshot)
		want   bool
	}{
		"TheFirstSightIs":                     {nil, asIs, true},
		"TheSameUnknownIsNot":                 {[]machines.Input{applied(t), observed(t, pending)}, pending, false},
		"AnotherReasonIs":                     {[]machines.Input{applied(t), observed(t, pending)}, func(s *service.Snapshot) { pending(s); s.Reason = "Pulling" }, true},
		"ARepeatedFalseCountsWhileConverging": {[]machines.Input{applied(t), observed(t, down)}, down, true},
		"TheSameReadyIsNot":                   {ready, asIs, false},
		"TheFirstFalseIs":                     {ready, down, true},
		"ARepeatedFalseCountsWhileDegraded":   {append(ready, observed(t, down)), down, true},
		"RecoveryIs":                          {append(ready, observed(t, down)), asIs, true},
		"DriftIs":                             {ready, func(s *service.Snapshot) { s.SpecHash = "other" }, true},
		"TheSameDriftIsNot":                   {append(ready, observed(t, func(s *service.Snapshot) { s.SpecHash = "other" })), func(s *service.Snapshot) { s.SpecHash = "other" }, false},
		"MissingIs":                           {ready, func(s *service.Snapshot) { *s = service.Snapshot{} }, true},
		"TheOrderOfListsIsNot": {
			append(ready[:1:1], observed(t, func(s *service.Snapshot) { s.Revisions = []service.ObservedRevision{{Name: "a"}, {Name: "b"}} })),
			func(s *service.Snapshot) { s.Revisions = []service.ObservedRevision{{Name: "b"}, {Name: "a"}} }, false,
		},
		"SightAfterBlindnessIs":      {append(ready, machinetest.Report(t, "observe-failed", "", machines.Failure{Code: "unavailable"})), asIs, true},
		"NothingOfADeletedOneIs":     {append(ready, machines.Input{Command: "delete"}, machinetest.Report(t, "deleted-observed", "", nil)), asIs, false},
		"TheSameWhileDeletingIsNot":  {append(ready, machines.Input{Command: "delete"}), asIs, false},
		"GoneWhileDeletingIs":        {append(ready, machines.Input{Command: "delete"}), func(s *service.Snapshot) { *s = service.Snapshot{} }, true},
		"AFailureThatLastsIsNot":     {[]machines.Input{applied(t), observed(t, failed)}, failed, false},
		"HealingIs":                  {[]machines.Input{applied(t), observed(t, failed)}, asIs, true},
		"OursThatCameBackIs":         {append(ready, observed(t, foreign)), asIs, true},
		"TheSameForeignObjectIsNot":  {append(ready, observed(t, foreign)), foreign, false},
		"ConvergedBeforeTheAnswerIs": {[]machines.Input{observed(t, pending)}, asIs, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := whole()
			c.see(&s)
			require.Equal(t, c.want, service.Meaningful(after(t, c.before...), &service.Observation{Snapshot: s, ResourceVersion: "moves always", At: noon}))
		})
	}
}

func failed(s *service.Snapshot)  { s.Ready, s.Reason = machines.False, service.ReasonRevisionFailed }
func foreign(s *service.Snapshot) { s.UID = "foreign" }

func TestAnOldReadyIsMeaningfulAgain(t *testing.T) {
	t.Parallel()
	e := after(t, applied(t), observed(t, asIs)) // observed at noon + 2 minutes
	o := service.Observation{Snapshot: whole(), At: noon.Add(2*time.Minute + service.ReadyStale - 1)}
	require.False(t, service.Meaningful(e, &o))
	o.At = o.At.Add(1)
	require.True(t, service.Meaningful(e, &o))
}

func TestSkip(t *testing.T) {
	t.Parallel()
	ready := []machines.Input{applied(t), observed(t, asIs)}
	cases := map[string]struct {
		before []machines.Input
		age    time.Duration
		want   bool
	}{
		"AFreshReadyIs":           {ready, time.Minute, true},
		"AStaleReadyIsNot":        {ready, 15 * time.Minute, false},
		"OneThatConvergesIsNot":   {ready[:1], 0, false},
		"ADegradedOneIsNot":       {append(ready, observed(t, down)), 0, false},
		"OneThatWasDegradedIs":    {append(ready, observed(t, down), observed(t, asIs)), 0, true},
		"ADriftedOneIsNot":        {append(ready, observed(t, func(s *service.Snapshot) { s.SpecHash = "other" })), 0, false},
		"AReplacedOneIsNot":       {append(ready, observed(t, foreign)), 0, false},
		"AnUnseenOneIsNot":        {append(ready, machinetest.Report(t, "observe-failed", "", machines.Failure{Code: "unavailable"})), 0, false},
		"OneWithAMissingURLIsNot": {append(ready[:1:1], observed(t, func(s *service.Snapshot) { s.URL = "" })), 0, false},
		"AFailedOneIsNot":         {[]machines.Input{applied(t), observed(t, failed)}, 0, false},
		"ADeletingOneIsNot":       {append(ready, machines.Input{Command: "delete"}), 0, false},
		"ADeletedOneIs":           {append(ready, machines.Input{Command: "delete"}, machinetest.Report(t, "deleted-observed", "", nil)), time.Hour, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := after(t, c.before...)
			seen := e.Data.(*service.Data).ObservedAt
			if seen.IsZero() {
				seen = noon
			}
			require.Equal(t, c.want, service.Skip(e, seen.Add(c.age), service.ReadyStale))
		})
	}
	none := service.Machine.New("default", "", "web")
	require.True(t, service.Skip(&none, noon, service.ReadyStale), "what does not exist is not looked at")
	require.False(t, service.Meaningful(&none, &service.Observation{}))
}

func TestHasMissing(t *testing.T) {
	t.Parallel()
	s := whole()
	require.False(t, service.HasMissing(&s))
	require.True(t, service.HasMissing(nil))
	for name, lose := range map[string]func(*service.Snapshot){
		"URL":           func(s *service.Snapshot) { s.URL = "" },
		"LatestCreated": func(s *service.Snapshot) { s.LatestCreated = "" },
		"LatestReady":   func(s *service.Snapshot) { s.LatestReady = "" },
		"Traffic":       func(s *service.Snapshot) { s.Traffic = nil },
		"Ready":         func(s *service.Snapshot) { s.Ready = "" },
	} {
		s := whole()
		lose(&s)
		require.True(t, service.HasMissing(&s), name)
	}
}

func TestLongWordsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 5000)
	e := after(t, applied(t), observed(t, func(s *service.Snapshot) {
		pending(s)
		s.Message, s.Conditions = long, []service.ObservedCondition{{Type: "RoutesReady", Status: machines.True, Message: "x" + long}}
	}))
	kept := e.Data.(*service.Data).Snapshot
	require.Equal(t, strings.Repeat("ä", 512), kept.Message)
	require.Equal(t, "x"+strings.Repeat("ä", 511), kept.Conditions[0].Message)
}

func TestHashLeavesForceReplaceOut(t *testing.T) {
	t.Parallel()
	s := service.Spec{Image: "a", Env: map[string]string{"B": "1", "A": "2"}}
	forced := s
	forced.ForceReplace = true
	require.Equal(t, s.Hash(), forced.Hash())
	require.Equal(t, s.Hash(), service.Spec{Image: "a", Env: map[string]string{"A": "2", "B": "1"}}.Hash())
	require.NotEqual(t, s.Hash(), service.Spec{Image: "a"}.Hash())
}

func TestRevisionsAreToldOnceEach(t *testing.T) {
	t.Parallel()
	e := after(t, applied(t))
	in := observed(t, func(s *service.Snapshot) {
		s.Revisions = []service.ObservedRevision{{Name: "web-2", Ready: machines.False}, {Name: "web-1", Ready: machines.True}}
		s.LatestCreated = "web-2"
	})
	in.Time = noon.Add(time.Hour)
	next, out, err := service.Machine.Step(*e, in)
	require.NoError(t, err)
	require.Equal(t, []string{`{"name":"web-1","ready":"True"}`, `{"name":"web-2","ready":"False"}`}, data(t, out, service.EventRevisionCreated))
	_, out, err = service.Machine.Step(next, in)
	require.NoError(t, err)
	require.Empty(t, data(t, out, service.EventRevisionCreated))
}

// data is what the events of a type carry, in order.
func data(t *testing.T, out machines.Output, event string) []string {
	var all []string
	for _, m := range out.Messages {
		if m.Name == event {
			var body struct{ Data json.RawMessage }
			require.NoError(t, json.Unmarshal(m.Body, &body))
			all = append(all, string(body.Data))
		}
	}
	return all
}

func TestSecretsOfTheEnvironmentAreNotTold(t *testing.T) {
	t.Parallel()
	e := after(t, applied(t), observed(t, asIs))
	_, out, err := service.Machine.Step(*e, machines.Input{Command: "update", Time: noon.Add(time.Hour), Body: json.RawMessage(`{"spec":{"image":"hello:2","env":{"TOKEN":"hunter2"},"scale":{"max":2}}}`)})
	require.NoError(t, err)
	var accepted struct{ Changes json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(data(t, out, service.EventSpecAccepted)[0]), &accepted))
	require.JSONEq(t, `{"image":{"from":"hello:1","to":"hello:2"},"env.TOKEN":{"to":"(set)"},"scale.max":{"to":"2"}}`, string(accepted.Changes))
	for _, m := range out.Messages {
		if m.Kind == machines.KindEvent {
			require.NotContains(t, string(m.Body), "hunter2")
		}
	}
}

func ExampleMeaningful() {
	e := service.Machine.New("default", "", "web")
	e, _, _ = service.Machine.Step(e, machines.Input{Command: "create", Seq: 1, Time: noon, Body: json.RawMessage(`{"spec":{"image":"hello:1"}}`)})
	seen := service.Observation{Snapshot: service.Snapshot{Exists: true, Generation: 1, Ready: machines.Unknown}}
	fmt.Println(service.Meaningful(&e, &seen))

	body, _ := json.Marshal(machines.Report{Data: json.RawMessage(`{"exists":true,"generation":1,"ready":"Unknown"}`)})
	e, _, _ = service.Machine.Step(e, machines.Input{Command: "observed", Seq: 2, Time: noon, Body: body})
	fmt.Println(service.Meaningful(&e, &seen))
	// Output:
	// true
	// false
}
