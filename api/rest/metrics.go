package rest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what this package measures. No label holds an id.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	watches  prometheus.Gauge
	timeouts *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "instar_http_requests_total", Help: "HTTP requests by operation and status."}, []string{"route", "method", "status"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "instar_http_request_seconds", Help: "Duration of HTTP requests; of a watch, how long it was open.", Buckets: Latencies}, []string{"route", "method"}),
		watches:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "instar_sse_clients", Help: "Open watches."}),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "instar_http_timeouts_total", Help: "Requests cut off because the body was not sent, or the response not read, in time."}, []string{"of"}),
	}
	for _, of := range []string{"body", "write"} {
		m.timeouts.WithLabelValues(of)
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.watches, m.timeouts} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("api: cannot register metrics: %w", err)
		}
	}
	return m, nil
}

// Latencies are the buckets of histograms of answers, in seconds.
var Latencies = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	if method != http.MethodGet && method != http.MethodPost && method != http.MethodPut && method != http.MethodHead {
		method = "other" // whatever a client makes up
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}

// begin puts the answers of every operation that can be counted on at 0, success and failure of the server, and a few of
// what comes to no operation: a rate does not see the first increase of a counter that was not there.
func (m *metrics) begin(routes []*Route) {
	for _, rt := range routes {
		for status := range rt.Op.Responses {
			if status[0] != '4' && !rt.Op.Hidden {
				m.requests.WithLabelValues(rt.Op.Path, rt.Op.Method, status)
			}
		}
	}
	for _, status := range []string{"404", "500"} {
		m.requests.WithLabelValues(routeOther, http.MethodGet, status)
	}
}

// routeOther is what metrics call requests that came to no operation.
const routeOther = "other"
