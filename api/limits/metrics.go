package limits

import "github.com/prometheus/client_golang/prometheus"

// Counts are the metrics of pools, queues, rates and quotas. Rates and quotas that are nil are left out.
type Counts struct {
	Pools  []*Pool
	Queues []*Queue
	Rates  []*Rate
	Quotas []*Quota
}

var (
	heldDesc    = prometheus.NewDesc("instar_limit_held", "Current use of the limit; for entities, of the fullest namespace.", []string{"limit"}, nil)
	boundDesc   = prometheus.NewDesc("instar_limit_bound", "The limit; absent where there is none.", []string{"limit"}, nil)
	refusedDesc = prometheus.NewDesc("instar_limit_refused_total", "Requests refused by the limit: that of all clients, of one client, of an owner, or because the turn came too late.", []string{"limit", "of"}, nil)
)

// Describe implements [prometheus.Collector].
func (c Counts) Describe(ch chan<- *prometheus.Desc) {
	ch <- heldDesc
	ch <- boundDesc
	ch <- refusedDesc
}

// Collect implements [prometheus.Collector].
func (c Counts) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.Pools {
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(p.Held()), p.name)
		if p.bound.All > 0 {
			ch <- prometheus.MustNewConstMetric(boundDesc, prometheus.GaugeValue, float64(p.bound.All), p.name)
		}
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(p.refusedAll.Load()), p.name, "all")
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(p.refusedEach.Load()), p.name, "client")
	}
	for _, q := range c.Queues {
		name := q.pool.name + "-at-once"
		ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(q.UnderWay()), name)
		if q.turns.All > 0 {
			ch <- prometheus.MustNewConstMetric(boundDesc, prometheus.GaugeValue, float64(q.turns.All), name)
		}
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(q.late.Load()), name, "late")
	}
	for _, r := range c.Rates {
		if r != nil {
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(r.refused.Load()), r.name, "client")
		}
	}
	for _, q := range c.Quotas {
		if q != nil {
			ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(q.most()), q.name)
			ch <- prometheus.MustNewConstMetric(boundDesc, prometheus.GaugeValue, float64(q.bound), q.name)
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(q.refused.Load()), q.name, "owner")
		}
	}
}
