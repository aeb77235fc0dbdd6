package api

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what this package measures. No label holds an id.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	commands *prometheus.HistogramVec
	watches  prometheus.Gauge
	timeouts *prometheus.CounterVec
	page     http.Handler
}

func newMetrics(s *Server) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "instar_http_requests_total", Help: "HTTP requests by operation and answer."}, []string{"route", "method", "status"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "instar_http_request_seconds", Help: "Time to answer HTTP requests; of a watch, its life.", Buckets: latencies}, []string{"route", "method"}),
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "instar_command_latency_seconds", Help: "Time from the door to the answer of the engine, by outcome.", Buckets: latencies}, []string{"machine", "command", "outcome"}),
		watches:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "instar_sse_clients", Help: "Watches that are open now."}),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "instar_http_timeouts_total", Help: "Requests whose body did not come, or whose answer was not taken, in time."}, []string{"of"}),
	}
	for _, of := range []string{"body", "write"} {
		m.timeouts.WithLabelValues(of)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "instar_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": s.o.Version.Version, "commit": s.o.Version.Commit, "go": runtime.Version()},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.commands, m.watches, m.timeouts, s.limits.counts(s.o.Pools), build, entityCounts{s}} {
		if err := s.o.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("api: cannot register metrics: %w", err)
		}
	}
	m.page = promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	return m, nil
}

var latencies = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	if method != http.MethodGet && method != http.MethodPost && method != http.MethodPut && method != http.MethodHead {
		method = "other" // whatever a client makes up
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}

// begin puts the answers of every operation that can be counted on at 0, success and failure of the server, and a few of
// what comes to no operation: a rate does not see the first increase of a counter that was not there.
func (m *metrics) begin(routes []*route) {
	for _, rt := range routes {
		for status := range rt.op.Responses {
			if status[0] != '4' && !rt.op.Hidden {
				m.requests.WithLabelValues(rt.op.Path, rt.op.Method, status)
			}
		}
	}
	for _, status := range []string{"404", "500"} {
		m.requests.WithLabelValues(routeOther, http.MethodGet, status)
	}
}

// routeOther is what metrics call requests that came to no operation.
const routeOther = "other"

// entityCounts reads the indexes when it is asked.
type entityCounts struct{ s *Server }

var (
	entitiesDesc = prometheus.NewDesc("instar_entities", "Entities by state.", []string{"machine", "state"}, nil)
	lagDesc      = prometheus.NewDesc("instar_index_lag", "Revisions that the index is behind its bucket, as far as it knows.", []string{"machine"}, nil)
)

func (c entityCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- entitiesDesc
	ch <- lagDesc
}

func (c entityCounts) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.s.o.Machines {
		ix := c.s.o.Indexes[m.Name]
		counts := ix.Counts("")
		for _, state := range m.States {
			ch <- prometheus.MustNewConstMetric(entitiesDesc, prometheus.GaugeValue, float64(counts[state.Name]), m.Name, state.Name)
		}
		lag := ix.Lag()
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(lag.Known-min(lag.Applied, lag.Known)), m.Name)
	}
}
