package service_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/service"
)

func many(n int, format string) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf(format, i)] = ""
	}
	return m
}

// The list of types that gateways go by is the one that the schema of a body has.
func TestTheTypesOfProbesAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	field, found := reflect.TypeFor[service.Probe]().FieldByName("Type")
	require.True(t, found)
	require.Equal(t, strings.Join(service.ProbeTypes, ","), field.Tag.Get("enum"))
	require.Equal(t, service.ProbeHTTP, new(service.Probe).Kind())
}

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		body  service.CreateBody
		field string
	}{
		"NoImage":               {service.CreateBody{}, "spec.image"},
		"ALongImage":            {service.CreateBody{Spec: service.Spec{Image: strings.Repeat("a", 513)}}, "spec.image"},
		"NULInTheImage":         {service.CreateBody{Spec: service.Spec{Image: "a\x00"}}, "spec.image"},
		"ASpaceInTheImage":      {service.CreateBody{Spec: service.Spec{Image: "a b"}}, "spec.image"},
		"ANegativePort":         {service.CreateBody{Spec: service.Spec{Image: "a", Port: -1}}, "spec.port"},
		"APortThatIsTooHigh":    {service.CreateBody{Spec: service.Spec{Image: "a", Port: 65536}}, "spec.port"},
		"MinGreaterThanMax":     {service.CreateBody{Spec: service.Spec{Image: "a", Scale: service.Scale{Min: 2, Max: 1}}}, "spec.scale"},
		"MinWithoutMax":         {service.CreateBody{Spec: service.Spec{Image: "a", Scale: service.Scale{Min: 1}}}, "spec.scale"},
		"TooManyCopies":         {service.CreateBody{Spec: service.Spec{Image: "a", Scale: service.Scale{Max: 101}}}, "spec.scale.max"},
		"AProbeOfAnotherType":   {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{Type: "grpc"}}}, "spec.probe.type"},
		"ARelativeProbePath":    {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{Path: "health"}}}, "spec.probe.path"},
		"NULInTheProbePath":     {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{Path: "/\x00"}}}, "spec.probe.path"},
		"ALineBreakInThePath":   {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{Path: "/\r\nX: y"}}}, "spec.probe.path"},
		"ANegativePeriod":       {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{PeriodMillis: -1}}}, "spec.probe.periodMillis"},
		"ALongTimeout":          {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{TimeoutMillis: 600_001}}}, "spec.probe.timeoutMillis"},
		"TooManyFailures":       {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{Failures: 1001}}}, "spec.probe.failures"},
		"ALongStartup":          {service.CreateBody{Spec: service.Spec{Image: "a", Probe: service.Probe{StartupSeconds: 3601}}}, "spec.probe.startupSeconds"},
		"AnEnvNameWithADash":    {service.CreateBody{Spec: service.Spec{Image: "a", Env: map[string]string{"A-B": ""}}}, "spec.env"},
		"AnEmptyEnvName":        {service.CreateBody{Spec: service.Spec{Image: "a", Env: map[string]string{"": ""}}}, "spec.env"},
		"AnEnvNameWithALine":    {service.CreateBody{Spec: service.Spec{Image: "a", Env: map[string]string{"A\n": ""}}}, "spec.env"},
		"NULInAnEnvValue":       {service.CreateBody{Spec: service.Spec{Image: "a", Env: map[string]string{"A": "\x00"}}}, "spec.env.A"},
		"TooManyEnvNames":       {service.CreateBody{Spec: service.Spec{Image: "a", Env: many(257, "A%d")}}, "spec.env"},
		"ASpecThatIsTooLarge":   {service.CreateBody{Spec: service.Spec{Image: "a", Env: map[string]string{"A": strings.Repeat("x", 65<<10)}}}, "spec"},
		"APolicyBelowZero":      {service.CreateBody{Spec: service.Spec{Image: "a"}, Policy: &service.Policy{DegradeThreshold: -1}}, "policy.degradeThreshold"},
		"APolicyOfDays":         {service.CreateBody{Spec: service.Spec{Image: "a"}, Policy: &service.Policy{ProgressDeadlineSeconds: 86401}}, "policy.progressDeadlineSeconds"},
		"ADeletionOfDays":       {service.CreateBody{Spec: service.Spec{Image: "a"}, Policy: &service.Policy{DeleteDeadlineSeconds: 86401}}, "policy.deleteDeadlineSeconds"},
		"AnotherDriftPolicy":    {service.CreateBody{Spec: service.Spec{Image: "a"}, Policy: &service.Policy{Drift: "ignore"}}, "policy.drift"},
		"TooManyLabels":         {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: many(65, "l%d")}, "labels"},
		"AnEmptyLabelKey":       {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{"": ""}}, "labels"},
		"ALongLabelKey":         {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{strings.Repeat("a", 64): ""}}, "labels"},
		"ALabelPrefixInCapital": {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{"Example.org/a": ""}}, "labels"},
		"AnEmptyLabelPrefix":    {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{"/a": ""}}, "labels"},
		"ALabelValueWithASpace": {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{"a": "b c"}}, "labels.a"},
		"NULInALabelValue":      {service.CreateBody{Spec: service.Spec{Image: "a"}, Labels: map[string]string{"a": "\x00"}}, "labels.a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, refusal := service.Machine.DecodeBody("create", machinetest.JSON(t, c.body))
			require.NotNil(t, refusal)
			require.Equal(t, machines.CodeValidation, refusal.Code)
			require.Len(t, refusal.Fields, 1, "%s", refusal.Message)
			require.Equal(t, c.field, refusal.Fields[0].Field)
			_, refusal = service.Machine.DecodeBody("update", machinetest.JSON(t, service.UpdateBody{Spec: c.body.Spec, Policy: c.body.Policy, Labels: c.body.Labels}))
			require.Equal(t, c.field, refusal.Fields[0].Field, "update checks what create checks")
		})
	}
}

func TestBodiesAtTheirBoundsAreTaken(t *testing.T) {
	t.Parallel()
	labels := many(62, "l%d")
	maps.Copy(labels, map[string]string{"app.kubernetes.io/Name_1.x": "A-b_c.9", strings.Repeat("a", 63): strings.Repeat("b", 63)})
	for _, body := range []service.CreateBody{
		{Spec: service.Spec{Image: "a"}},
		{Spec: service.Spec{
			Image: strings.Repeat("a", 512), Port: 65535, Env: many(256, "_%d"), Scale: service.Scale{Min: 100, Max: 100},
			Probe: service.Probe{Type: "tcp", Path: "/", PeriodMillis: 3_600_000, TimeoutMillis: 600_000, Failures: 1000, StartupSeconds: 3600},
		}, Policy: &service.Policy{FailureThreshold: 1000, DegradeThreshold: 1000, ProgressDeadlineSeconds: 86400, DeleteDeadlineSeconds: 86400, Drift: "reapply"}, Labels: labels},
		{Spec: service.Spec{Image: "registry.example.org:5000/a@sha256:0123", Env: map[string]string{"A": "two\nlines\tand = signs"}}},
	} {
		got, refusal := service.Machine.DecodeBody("create", machinetest.JSON(t, body))
		require.Nil(t, refusal)
		require.Equal(t, &body, got)
	}
}

func TestLabelBodiesAreChecked(t *testing.T) {
	t.Parallel()
	_, refusal := service.Machine.DecodeBody("label", []byte(`{"labels":{"a":"b c"}}`))
	require.Equal(t, []machines.FieldError{{Field: "labels.a", Message: "is not a Kubernetes label value"}}, refusal.Fields)
}

func TestObservationsWithAFourthStatusAreRefused(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"ready":"true"}`, `{"route":"Yes"}`, `{"conditions":[{"type":"A","status":"No"}]}`, `{"revisions":[{"name":"a","ready":"-"}]}`} {
		_, refusal := service.Machine.DecodeBody("observed", []byte(body))
		require.NotNil(t, refusal, body)
	}
}

// The events of the first design are all here, whatever else is.
func TestEveryRegisteredEventOfTheFirstDesignIsThere(t *testing.T) {
	t.Parallel()
	subjects := map[string]string{"RevisionCreated": "service.revision.created", "RouteAligned": "service.route.aligned", "NamespaceValidated": "service.namespace.validated"}
	for _, name := range []string{
		"service.creation.requested", "service.spec.accepted", "service.spec.apply.started", "service.update.requested", "service.updated",
		"service.deletion.requested", "service.deletion.marked", "service.snapshot.updated", "service.convergence.confirmed", "service.convergence.failed",
		"service.ready", "service.failed", "service.deleted", "service.spec.applied", "RevisionCreated", "RouteAligned", "service.external.purged",
		"service.persisted", "service.creation.failed", "service.audit.recorded", "NamespaceValidated",
	} {
		e, ok := service.Machine.Event(name)
		require.True(t, ok, name)
		require.NotEmpty(t, e.Doc, name)
		subject, special := subjects[name]
		if !special {
			subject = name
		}
		require.Equal(t, subject, e.Subject)
	}
}

func BenchmarkStep(b *testing.B) {
	e := service.Machine.New("default", "", "web")
	steps := []machines.Input{
		{Command: "create", Body: json.RawMessage(`{"spec":{"image":"hello:1"}}`)},
		machinetest.Report(b, "applied", "apply-1-1", service.Applied{UID: "k1", Generation: 1}),
		machinetest.Report(b, "observed", "", service.Observation{Snapshot: whole()}),
	}
	for i := range steps {
		steps[i].Seq, steps[i].Time = uint64(i+1), noon
	}
	b.ReportAllocs()
	for b.Loop() {
		at := e
		for _, in := range steps {
			next, _, err := service.Machine.Step(at, in)
			if err != nil {
				b.Fatal(err)
			}
			at = next
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(steps)), "ns/step")
}
