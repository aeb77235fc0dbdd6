package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server/memory"
)

// startTelemetry registers the metrics, and sends traces where OTEL_EXPORTER_OTLP_ENDPOINT says.
func (a *app) startTelemetry(ctx context.Context) error {
	a.registry = prometheus.NewRegistry()
	m := newMeter()
	a.machines.OnAdd(m.begin)
	for _, c := range append(m.all(), panicCounts{}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := a.registry.Register(c); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	a.deps.Meter = m
	a.goes(ctx, "the memory", func(ctx context.Context) error { return memory.GiveBack(ctx, a.log) })
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("cannot export traces: %w", err)
	}
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithAttributes(attribute.String("service.name", "instar"), attribute.String("service.version", a.opts.Build.Filled().Version)))
	if err != nil {
		return fmt.Errorf("cannot describe this process to the traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	otel.SetTracerProvider(provider)
	a.onStop("the export of traces", provider.Shutdown)
	a.deps.Trace = span
	return nil
}

func tracer() trace.Tracer { return otel.Tracer("github.com/bcc94042/instar") }

// span starts one below a traceparent; it is what the consumers trace with.
func span(name, parent string, attributes ...string) (string, func(error)) {
	carrier := propagation.MapCarrier{"traceparent": parent}
	w3c := propagation.TraceContext{}
	ctx := w3c.Extract(context.Background(), carrier)
	attrs := make([]attribute.KeyValue, 0, len(attributes)/2)
	for i := 0; i+1 < len(attributes); i += 2 {
		attrs = append(attrs, attribute.String(attributes[i], attributes[i+1]))
	}
	ctx, s := tracer().Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...))
	out := propagation.MapCarrier{}
	w3c.Inject(ctx, out)
	return out["traceparent"], func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, err.Error())
		}
		s.End()
	}
}

// meter is what the consumers measure, for Prometheus. No label holds an id.
type meter struct {
	transitions *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	stays       *prometheus.HistogramVec
	conflicts   *prometheus.CounterVec
	attempts    *prometheus.CounterVec
	letters     *prometheus.CounterVec
	restarts    *prometheus.CounterVec
	reconciled  *prometheus.CounterVec
	skipped     *prometheus.CounterVec
	dropFailed  *prometheus.CounterVec
}

var _ consumers.Meter = (*meter)(nil)

func newMeter() *meter {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &meter{
		transitions: counter("instar_transitions_total", "Transitions applied.", "machine", "from", "to", "event"),
		refusals:    counter("instar_transition_rejections_total", "Commands refused, by the code of the refusal.", "machine", "reason"),
		stays: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "instar_state_duration_seconds", Help: "How long entities were in the state that they left.", Buckets: []float64{.1, 1, 10, 60, 600, 3600, 86400, 604800},
		}, []string{"machine", "state"}),
		conflicts:  counter("instar_cas_conflicts_total", "Writes refused because somebody else wrote first.", "machine"),
		attempts:   counter("instar_action_attempts_total", "Tries of effects, by outcome.", "provider", "outcome"),
		letters:    counter("instar_deadletters_total", "Messages given up, by who gave them up.", "consumer"),
		restarts:   counter("instar_consumer_restarts_total", "How often a consumer stopped and started again.", "consumer"),
		reconciled: counter("instar_reconciled_total", "Entities whose value and events did not belong together, by what was lost.", "machine", "problem"),
		skipped:    counter("instar_view_events_skipped_total", "Events that a view could not take.", "view"),
		dropFailed: counter("instar_drops_failed_total", "Values of ended entities, or of their views, that could not be dropped yet.", "machine"),
	}
}

// begin puts every counter of a machine at 0 whose labels are known: a rate does not see the first increase of one that was not there.
func (m *meter) begin(machine *machines.Machine) {
	s := consumers.SeriesOf(machine)
	for _, e := range machine.Edges {
		if !e.Noop {
			m.transitions.WithLabelValues(machine.Name, e.From, e.To, e.On)
		}
	}
	for _, code := range machines.RefusalCodes {
		m.refusals.WithLabelValues(machine.Name, code)
	}
	for _, problem := range s.Problems {
		m.reconciled.WithLabelValues(machine.Name, problem)
	}
	m.conflicts.WithLabelValues(machine.Name)
	m.dropFailed.WithLabelValues(machine.Name)
	for _, name := range s.Consumers {
		m.restarts.WithLabelValues(name)
		m.letters.WithLabelValues(name)
	}
	for _, view := range s.Views {
		m.skipped.WithLabelValues(view)
	}
	for _, effect := range s.Effects {
		for _, outcome := range s.Outcomes {
			m.attempts.WithLabelValues(effect, outcome)
		}
	}
}

func (m *meter) all() []prometheus.Collector {
	return []prometheus.Collector{m.transitions, m.refusals, m.stays, m.conflicts, m.attempts, m.letters, m.restarts, m.reconciled, m.skipped, m.dropFailed}
}

func (m *meter) Transition(machine, from, to, input string, stayed time.Duration) {
	m.transitions.WithLabelValues(machine, from, to, input).Inc()
	if from != to && from != "" {
		m.stays.WithLabelValues(machine, from).Observe(stayed.Seconds())
	}
}
func (m *meter) Refused(machine, code string)   { m.refusals.WithLabelValues(machine, code).Inc() }
func (m *meter) Conflict(machine string)        { m.conflicts.WithLabelValues(machine).Inc() }
func (m *meter) Attempt(effect, outcome string) { m.attempts.WithLabelValues(effect, outcome).Inc() }
func (m *meter) DeadLetter(consumer string)     { m.letters.WithLabelValues(consumer).Inc() }
func (m *meter) Restarted(consumer string)      { m.restarts.WithLabelValues(consumer).Inc() }
func (m *meter) Reconciled(machine, problem string) {
	m.reconciled.WithLabelValues(machine, problem).Inc()
}
func (m *meter) Skipped(view string)       { m.skipped.WithLabelValues(view).Inc() }
func (m *meter) DropFailed(machine string) { m.dropFailed.WithLabelValues(machine).Inc() }

// panicCounts are the panics that were recovered in this process.
type panicCounts struct{}

var panicsTotal = prometheus.NewDesc("instar_panics_total", "Recovered panics; each one is a bug.", []string{"where"}, nil)

func (panicCounts) Describe(ch chan<- *prometheus.Desc) { ch <- panicsTotal }

func (panicCounts) Collect(ch chan<- prometheus.Metric) {
	for where, n := range panics.Counts() {
		ch <- prometheus.MustNewConstMetric(panicsTotal, prometheus.CounterValue, float64(n), where)
	}
}
