package proxy

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// classes are the values of the label code: by the first digit of a status, and what had none.
var classes = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// counts are requests by class.
type counts [len(classes)]atomic.Uint64

func (c *counts) add(status int) {
	class := status / 100
	if status == gone || class >= len(classes) {
		class = 0
	}
	c[class].Add(1)
}

var (
	requests = prometheus.NewDesc("instar_proxy_requests_total", "Requests that the proxy has answered, by host and class of the status; none: the client went away before.", []string{"host", "code"}, nil)
	backends = prometheus.NewDesc("instar_proxy_backends", "Backends of a host by what they stand at.", []string{"host", "state"}, nil)
	upgraded = prometheus.NewDesc("instar_proxy_upgraded", "Connections of a host that were upgraded (WebSocket) and are open.", []string{"host"}, nil)
)

// otherHost is the label for all hosts that are not in the table, of which clients can make up any number.
const otherHost = "(other)"

// Describe is that of a prometheus.Collector.
func (p *Proxy) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requests, backends, upgraded} {
		ch <- d
	}
}

// Collect is that of a prometheus.Collector: series of hosts that have left the table are gone.
func (p *Proxy) Collect(ch chan<- prometheus.Metric) {
	count := func(host string, c *counts) {
		for i, class := range classes {
			ch <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(c[i].Load()), host, class)
		}
	}
	count(otherHost, &p.unknown)
	type standing struct {
		open int
		in   map[string]int
	}
	hosts := make(map[string]*standing)
	for host, s := range *p.table.Load() {
		count(host, s.counts)
		hosts[host] = &standing{in: map[string]int{"healthy": 0, "unhealthy": 0, "drained": 0}}
	}
	for _, s := range p.Status() {
		host := hosts[s.Host]
		if host == nil { // it has just come, or gone
			continue
		}
		host.open += s.Upgraded
		switch {
		case s.Weight == 0:
			host.in["drained"]++
		case s.Healthy:
			host.in["healthy"]++
		default:
			host.in["unhealthy"]++
		}
	}
	for name, host := range hosts {
		ch <- prometheus.MustNewConstMetric(upgraded, prometheus.GaugeValue, float64(host.open), name)
		for state, n := range host.in {
			ch <- prometheus.MustNewConstMetric(backends, prometheus.GaugeValue, float64(n), name, state)
		}
	}
}
