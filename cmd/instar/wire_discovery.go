package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/nameserver"
	"github.com/bcc94042/instar/api/xds"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// live are the buckets whose values are told on core NATS as they are stored: who follows a service there costs nothing.
var live = []string{instance.Machine.Plural}

// unpanicked takes a value whose reading panics for one that cannot be read: it is only the one.
func unpanicked(read func(string, []byte) (kv.Meta, error)) func(string, []byte) (kv.Meta, error) {
	return func(key string, value []byte) (meta kv.Meta, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = panics.Error("index", p)
			}
		}()
		return read(key, value)
	}
}

// startDiscovery follows the instances, so that they are found.
func (a *app) startDiscovery(ctx context.Context) error {
	_, js, err := a.connect("discovery")
	if err != nil {
		return err
	}
	a.catalog = discovery.New(discovery.Options{
		Instances: a.indexes[instance.Machine.Name], Preservations: a.indexes[preservation.Machine.Name],
		History: discovery.History{JS: js, Names: a.deps.Names}, Hears: func() bool { return a.member.Status().Member }, Log: a.log,
	})
	if err := a.registry.Register(discoveryCounts{a.catalog}); err != nil {
		return fmt.Errorf("cannot register metrics: %w", err)
	}
	a.goes(ctx, "discovery", a.catalog.Run)
	return nil
}

// startChecker sets up what probes, before anything is registered: the doors ask it, too.
func (a *app) startChecker(context.Context) error {
	checker := &a.checker
	checker.Scripts, checker.AnyRequest, checker.Match = a.cfg.Discovery.Scripts, a.cfg.Discovery.Probe.AnyRequest, a.cfg.Discovery.Probe.Match
	checker.Own, checker.Log = a.listeners(), a.log
	var err error
	if checker.Allow, err = config.Prefixes(a.cfg.Discovery.Probe.Allow); err != nil {
		return fmt.Errorf("discovery.probe.allow: %w", err)
	}
	if checker.Deny, err = config.Prefixes(a.cfg.Discovery.Probe.Deny); err != nil {
		return fmt.Errorf("discovery.probe.deny: %w", err)
	}
	return nil
}

// admit refuses a registration whose check this node would never carry out. Its owner may be another node, and has the last
// word: names are resolved by each probe.
func (a *app) admit(cmd streams.Command) error {
	if cmd.Machine != instance.Machine.Name || cmd.Name != instance.CommandRegister || !bytes.Contains(cmd.Body, []byte(`"check"`)) {
		return nil
	}
	var b instance.RegisterBody
	if json.Unmarshal(cmd.Body, &b) != nil {
		return nil // which the engine refuses
	}
	if err := a.checker.Admit(b.Check, b.NodeAddress); err != nil {
		return fmt.Errorf("the check can never be carried out: %w", err)
	}
	return nil
}

// startProbes looks after the instances of the partitions that this node owns.
func (a *app) startProbes(ctx context.Context) error {
	meter := newProbeMeter()
	meter.begin()
	for _, c := range meter.all() {
		if err := a.registry.Register(c); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	p := &prober.Prober{
		Deps: a.deps, Shares: a.shares, Instances: a.indexes[instance.Machine.Name], Preservations: a.indexes[preservation.Machine.Name],
		Checker: &a.checker, Peers: peers{a.member}, Node: a.node, Metrics: meter,
	}
	a.goes(ctx, "the prober", p.Run)
	return nil
}

// listeners are the ports that this process listens on, as configured and as they came about: a probe must not speak to
// them, whatever address of this host it does that by.
func (a *app) listeners() []netip.AddrPort {
	c := a.cfg
	addrs := []string{c.HTTP.Listen, c.Cluster.Listen, c.Discovery.DNS, c.Discovery.XDS}
	if !c.NATS.Attached() {
		addrs = append(addrs, c.NATS.Listen)
	}
	if a.server != nil {
		if u, err := url.Parse(a.server.ClientURL()); err == nil {
			addrs = append(addrs, u.Host)
		}
	}
	var own []netip.AddrPort
	for _, addr := range addrs {
		if at, ok := listening(addr); ok {
			own = append(own, at)
		}
	}
	return own
}

// listening is where an address of a listener leads to; its host may be a name, or missing. Port 0 is none yet.
func listening(addr string) (netip.AddrPort, bool) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, false
	}
	port, err := net.LookupPort("tcp", service)
	if err != nil || port == 0 {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ip = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(ip, uint16(port)), true //nolint:gosec // it was looked up
}

// avoid keeps probes from a listener that came about later.
func (a *app) avoid(addr string) {
	if at, ok := listening(addr); ok {
		a.checker.Avoid(at)
	}
}

// peers are the nodes that may observe.
type peers struct{ *cluster.Node }

func (p peers) Nodes() []string {
	var names []string
	for _, n := range p.Node.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// startNames serves what is found over DNS and xDS, where the configuration says so. What knows nothing yet would deny
// that services exist, so both wait until the catalog is complete.
func (a *app) startNames(ctx context.Context) error {
	said := func(what string) func(string) {
		return func(addr string) {
			a.avoid(addr)
			a.log.Info(what+" listens", "address", addr)
		}
	}
	var finder discovery.Finder = a.catalog
	if shown := a.cfg.Discovery.Shown(); shown != nil {
		finder = discovery.Only(finder, shown)
	}
	if addr := a.cfg.Discovery.DNS; addr != "" {
		s := &nameserver.Server{
			Address: addr, Domain: a.cfg.Discovery.DNSDomain, TTL: a.cfg.Discovery.DNSTTL, Finder: finder, Stale: a.catalog.Stale, Started: said("the name server"), Log: a.log, Pool: a.dnsConns,
		}
		for _, text := range a.cfg.Discovery.DNSAddresses {
			s.Addresses = append(s.Addresses, netip.MustParseAddr(text)) // it was checked
		}
		a.goes(ctx, "the name server", a.complete(s.Run))
	}
	if addr := a.cfg.Discovery.XDS; addr != "" {
		secured, err := serverTLS(a.cfg.Discovery.XDSTLS, a.log)
		if err != nil {
			return fmt.Errorf("discovery.xdsTLS: %w", err)
		}
		s := &xds.Server{Address: addr, TLS: secured, Finder: finder, Acked: a.acked, Stale: a.catalog.Stale, Log: a.log, Pool: a.xdsConns, Started: said("the endpoint discovery service")}
		if err := a.registry.Register(xdsCounts{s}); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
		a.goes(ctx, "the endpoint discovery service", a.complete(s.Run))
	}
	return nil
}

// complete begins when the catalog is complete.
func (a *app) complete(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-a.catalog.Ready():
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// acked passes on what a proxy has acted on, as any watcher would say it.
func (a *app) acked(namespace, service, watcher string, index uint64) {
	body, err := json.Marshal(discovery.Acknowledgement{Watcher: watcher, Index: index})
	if err == nil {
		err = a.deps.NC.Publish(a.deps.Names.Acknowledge(namespace, service), body)
	}
	if err != nil {
		a.log.Debug("cannot pass on an acknowledgement; it comes again", "service", service, "error", err)
	}
}

// discoveryChecks are what readiness is made of here.
func (a *app) discoveryChecks() []admin.Check {
	c := admin.Check{Name: "discovery", Detail: "the instances are still being read"}
	select {
	case <-a.catalog.Ready():
		c.OK, c.Detail = true, fmt.Sprintf("at revision %d of the instances", a.catalog.Index())
		if stale := a.catalog.Stale(); stale > 0 {
			c.OK, c.Detail = false, fmt.Sprintf("this node cannot hear the others: what is found is what it knew %s ago", stale.Round(time.Second))
		}
	default:
	}
	return []admin.Check{c}
}

// discoveryCounts reads the catalog when it is asked. No label holds the name of a service.
type discoveryCounts struct{ c *discovery.Catalog }

var (
	discoveryServices  = prometheus.NewDesc("instar_discovery_services", "Services that have or had instances.", nil, nil)
	discoveryInstances = prometheus.NewDesc("instar_discovery_instances", "Instances that have not ended: found, draining, or neither.", []string{"as"}, nil)
	discoveryProtected = prometheus.NewDesc("instar_discovery_protected_services", "Services that preserve themselves: what is found of them may be gone.", nil, nil)
	discoveryQuestions = prometheus.NewDesc("instar_discovery_questions_total", "Questions answered from memory, over HTTP, NATS, DNS and xDS together.", nil, nil)
	discoveryStale     = prometheus.NewDesc("instar_discovery_stale_seconds", "For how long what is found may be behind, because this node cannot hear the others; 0 while it can.", nil, nil)
	discoveryRereads   = prometheus.NewDesc("instar_discovery_rereads_total", "Times that changes were missed and everything was read again.", nil, nil)
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
	xdsStreams  = prometheus.NewDesc("instar_xds_streams", "Streams of proxies.", nil, nil)
	xdsLeftOut  = prometheus.NewDesc("instar_xds_left_out", "Instances that proxies ask for and do not learn of, because their address is a host name.", nil, nil)
	xdsRejected = prometheus.NewDesc("instar_xds_rejected_total", "Responses that a proxy did not take (NACK): it goes on with what it had.", nil, nil)
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
	probes  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	beats   *prometheus.CounterVec
	reports *prometheus.CounterVec
	tracked prometheus.Gauge
	doubt   prometheus.Gauge
	lag     prometheus.Gauge
	asking  prometheus.Gauge
	watches prometheus.Gauge
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
			Name: "instar_probe_seconds", Help: "Time of a probe, by kind.", Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 2, 5, 10},
		}, []string{"kind"}),
		beats:   counter("instar_heartbeats_total", "Heartbeats heard, by what became of them.", "outcome"),
		reports: counter("instar_probe_reports_total", "Reports sent to instances, and what became of them.", "input", "outcome"),
		tracked: gauge("instar_probe_tracked", "Instances that this node looks after."),
		doubt:   gauge("instar_probe_doubt", "How much this node doubts itself, where it does most: 0 is well, above 2 it judges nobody there."),
		lag:     gauge("instar_probe_lag_seconds", "The most that this node was late with its own timers in the last second."),
		asking:  gauge("instar_probe_reports_pending", "Reports on their way, or waiting to be sent."),
		watches: gauge("instar_discovery_watchers", "Watchers that confirm what they are told; all proxies of an xDS server are one."),
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
	return []prometheus.Collector{m.probes, m.seconds, m.beats, m.reports, m.tracked, m.doubt, m.lag, m.asking, m.watches}
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
	m.doubt.Set(float64(s.Doubt))
	m.lag.Set(s.Lag.Seconds())
	m.asking.Set(float64(s.Asking))
	m.watches.Set(float64(s.Watchers))
}
