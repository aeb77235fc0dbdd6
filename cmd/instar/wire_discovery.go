package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
)

// live are the buckets whose values are told on core NATS as they are stored: who follows a service there costs nothing.
var live = []string{instance.Machine.Plural}

// describer is how the index of a machine reads its values: those of instances are kept decoded, because discovery and
// probes need all of them all the time.
func describer(m *machines.Machine) func(key string, value []byte) (kv.Meta, error) {
	if m.Name != instance.Machine.Name {
		return describe
	}
	return func(key string, value []byte) (kv.Meta, error) {
		meta, err := describe(key, value)
		if err != nil {
			return meta, err
		}
		r, err := instance.Decode(value)
		if err != nil {
			return meta, err
		}
		meta.Value = r
		return meta, nil
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
		History: discovery.History{JS: js, Names: a.deps.Names}, Log: a.log,
	})
	if err := a.registry.Register(discoveryCounts{a.catalog}); err != nil {
		return fmt.Errorf("cannot register metrics: %w", err)
	}
	a.goes(ctx, "discovery", a.catalog.Run)
	return nil
}

// discoveryChecks are what readiness is made of here.
func (a *app) discoveryChecks() []api.Check {
	c := api.Check{Name: "discovery", Detail: "the instances are still being read"}
	select {
	case <-a.catalog.Ready():
		c.OK, c.Detail = true, fmt.Sprintf("at revision %d of the instances", a.catalog.Index())
	default:
	}
	return []api.Check{c}
}

// discoveryCounts reads the catalog when it is asked. No label holds the name of a service.
type discoveryCounts struct{ c *discovery.Catalog }

var (
	discoveryServices  = prometheus.NewDesc("instar_discovery_services", "Services that have or had instances.", nil, nil)
	discoveryInstances = prometheus.NewDesc("instar_discovery_instances", "Instances that have not ended: found, draining, or neither.", []string{"as"}, nil)
	discoveryProtected = prometheus.NewDesc("instar_discovery_protected_services", "Services that preserve themselves: what is found of them may be gone.", nil, nil)
	discoveryQuestions = prometheus.NewDesc("instar_discovery_questions_total", "Questions answered from memory, over HTTP, NATS, DNS and xDS together.", nil, nil)
	discoveryRereads   = prometheus.NewDesc("instar_discovery_rereads_total", "Times that changes were missed and everything was read again.", nil, nil)
)

func (d discoveryCounts) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{discoveryServices, discoveryInstances, discoveryProtected, discoveryQuestions, discoveryRereads} {
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
	ch <- prometheus.MustNewConstMetric(discoveryQuestions, prometheus.CounterValue, float64(s.Finds))
	ch <- prometheus.MustNewConstMetric(discoveryRereads, prometheus.CounterValue, float64(s.Lost))
}
