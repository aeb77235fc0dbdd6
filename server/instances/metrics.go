package instances

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/xds"
	"github.com/bcc94042/instar/consumers/prober"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
)

// discoveryCounts reads the catalog when it is asked. No label holds the name of a service.
type discoveryCounts struct{ c *discovery.Catalog }

var (
	discoveryServices  = prometheus.NewDesc("instar_discovery_services", "Services that have or had instances.", nil, nil)
	discoveryInstances = prometheus.NewDesc("instar_discovery_instances", "Instances that have not ended, by whether they are served, draining or neither.", []string{"as"}, nil)
	discoveryProtected = prometheus.NewDesc("instar_discovery_protected_services", "Services in self-preservation: their instances may be gone.", nil, nil)
	discoveryQuestions = prometheus.NewDesc("instar_discovery_questions_total", "Queries answered from memory, over HTTP, NATS, DNS and xDS together.", nil, nil)
	discoveryStale     = prometheus.NewDesc("instar_discovery_stale_seconds", "How old the answers may be because this node cannot reach the others; 0 while it can.", nil, nil)
	discoveryRereads   = prometheus.NewDesc("instar_discovery_rereads_total", "How often the bucket was read again because changes were missed.", nil, nil)
)

func (d discoveryCounts) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{discoveryServices, discoveryInstances, discoveryProtected, discoveryQuestions, discoveryStale, discoveryRereads} {
		ch <- desc
	}
}

func (d discoveryCounts) Collect(ch chan<- prometheus.Metric) {
	s := d.c.Stats()
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(discoveryServices, s.Services)
	gauge(discoveryInstances, s.Found, "found")
	gauge(discoveryInstances, s.Draining, "draining")
	gauge(discoveryInstances, s.Instances-s.Found-s.Draining, "other")
	gauge(discoveryProtected, s.Protected)
	ch <- prometheus.MustNewConstMetric(discoveryStale, prometheus.GaugeValue, d.c.Stale().Seconds())
	ch <- prometheus.MustNewConstMetric(discoveryQuestions, prometheus.CounterValue, float64(s.Finds))
	ch <- prometheus.MustNewConstMetric(discoveryRereads, prometheus.CounterValue, float64(s.Lost))
}

// xdsCounts reads the endpoint discovery service when it is asked.
type xdsCounts struct{ s *xds.Server }

var (
	xdsStreams  = prometheus.NewDesc("instar_xds_streams", "Open xDS streams.", nil, nil)
	xdsLeftOut  = prometheus.NewDesc("instar_xds_left_out", "Instances left out of xDS because their address is not an IP address.", nil, nil)
	xdsRejected = prometheus.NewDesc("instar_xds_rejected_total", "Responses that proxies rejected (NACK).", nil, nil)
)

func (x xdsCounts) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(x, ch) }

func (x xdsCounts) Collect(ch chan<- prometheus.Metric) {
	s := x.s.Stats()
	ch <- prometheus.MustNewConstMetric(xdsStreams, prometheus.GaugeValue, float64(s.Streams))
	ch <- prometheus.MustNewConstMetric(xdsLeftOut, prometheus.GaugeValue, float64(s.LeftOut))
	ch <- prometheus.MustNewConstMetric(xdsRejected, prometheus.CounterValue, float64(s.Rejected))
}

// probeMeter is what the prober measures, for Prometheus.
type probeMeter struct {
	probes      *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	beats       *prometheus.CounterVec
	reports     *prometheus.CounterVec
	tracked     prometheus.Gauge
	healthScore prometheus.Gauge
	lag         prometheus.Gauge
	asking      prometheus.Gauge
	watches     prometheus.Gauge
}

var _ prober.Meter = (*probeMeter)(nil)

func newProbeMeter() *probeMeter {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &probeMeter{
		probes: counter("instar_probes_total", "Probes by kind and outcome.", "kind", "outcome"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "instar_probe_seconds", Help: "Duration of probes by kind.", Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 2, 5, 10},
		}, []string{"kind"}),
		beats:       counter("instar_heartbeats_total", "Heartbeats heard, by what became of them.", "outcome"),
		reports:     counter("instar_probe_reports_total", "Reports sent to instances, and what became of them.", "input", "outcome"),
		tracked:     gauge("instar_probe_tracked", "Instances that this node looks after."),
		healthScore: gauge("instar_probe_health_score", "Local health score of this node (Lifeguard), where it is worst: 0 is healthy, above 2 it reports no failures there."),
		lag:         gauge("instar_probe_lag_seconds", "The most that this node was late with its own timers in the last second."),
		asking:      gauge("instar_probe_reports_pending", "Reports on their way, or waiting to be sent."),
		watches:     gauge("instar_discovery_watchers", "Watchers that confirm what they are told; all proxies of an xDS server are one."),
	}
}

// begin puts every counter at 0 whose labels are known; see [meter.begin].
func (m *probeMeter) begin() {
	for _, kind := range instance.Kinds {
		if kind == instance.CheckNone || kind == instance.CheckTTL {
			continue // nobody probes those
		}
		for _, outcome := range append([]string{"passed"}, instance.FailureClasses...) {
			m.probes.WithLabelValues(kind, outcome)
		}
	}
	for _, c := range instance.Machine.Inputs {
		if c.Report {
			for _, outcome := range []string{machines.Applied, machines.Refused, "unanswered"} {
				m.reports.WithLabelValues(c.Name, outcome)
			}
		}
	}
}

func (m *probeMeter) all() []prometheus.Collector {
	return []prometheus.Collector{m.probes, m.seconds, m.beats, m.reports, m.tracked, m.healthScore, m.lag, m.asking, m.watches}
}

func (m *probeMeter) Probed(kind, outcome string, latency time.Duration) {
	m.probes.WithLabelValues(kind, outcome).Inc()
	m.seconds.WithLabelValues(kind).Observe(latency.Seconds())
}

func (m *probeMeter) Beats(outcome string, n int) { m.beats.WithLabelValues(outcome).Add(float64(n)) }

func (m *probeMeter) Reported(input, outcome string) {
	m.reports.WithLabelValues(input, outcome).Inc()
}

func (m *probeMeter) Status(s prober.Status) {
	m.tracked.Set(float64(s.Tracked))
	m.healthScore.Set(float64(s.HealthScore))
	m.lag.Set(s.Lag.Seconds())
	m.asking.Set(float64(s.Asking))
	m.watches.Set(float64(s.Watchers))
}
