package relays

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
)

// sentRows counts what the relay of a source does here.
type sentRows struct {
	control.NoMeter
	rows, restarts atomic.Int64
	tries          atomic.Int64 // of all of them
	after          [len(triesUpTo)]atomic.Int64
}

// triesUpTo are the buckets of tries.
var triesUpTo = [...]int{1, 2, 3, 5, 10}

var _ control.Meter = (*sentRows)(nil)

func (s *sentRows) Sent(rows int, _ time.Duration) { s.rows.Add(int64(rows)) }
func (s *sentRows) Tried(tries, rows int) {
	s.tries.Add(int64(tries) * int64(rows))
	for i, most := range triesUpTo {
		if tries <= most {
			s.after[i].Add(int64(rows))
		}
	}
}

// attempts shows how many tries rows took.
func (s *sentRows) attempts(source string) prometheus.Metric {
	buckets := map[float64]uint64{}
	for i, most := range triesUpTo {
		buckets[float64(most)] = uint64(s.after[i].Load()) // rises from 0
	}
	return prometheus.MustNewConstHistogram(outboxAttempts, uint64(s.rows.Load()), float64(s.tries.Load()), buckets, source) // likewise
}

func (s *sentRows) Restarted(string) { s.restarts.Add(1) }

var (
	outboxRows      = prometheus.NewDesc("instar_outbox_rows", "Rows of an outbox by state, as of the last status.", []string{"source", "state"}, nil)
	outboxOldest    = prometheus.NewDesc("instar_outbox_oldest_seconds", "Age of the oldest row that is not sent.", []string{"source"}, nil)
	outboxLag       = prometheus.NewDesc("instar_outbox_lag", "Rows that are not published yet.", []string{"source"}, nil)
	outboxFence     = prometheus.NewDesc("instar_outbox_fence_wait_seconds", "How long the oldest open transaction has held the relay back.", []string{"source"}, nil)
	outboxParked    = prometheus.NewDesc("instar_outbox_parked", "Aggregates blocked by a row that cannot be published; counted up to 100.", []string{"source"}, nil)
	outboxPublished = prometheus.NewDesc("instar_outbox_published_total", "Rows that this node has published.", []string{"source"}, nil)
	outboxAttempts  = prometheus.NewDesc("instar_outbox_attempts", "Attempts that rows needed until this node had published them.", []string{"source"}, nil)
	outboxRestarts  = prometheus.NewDesc("instar_outbox_restarts_total", "How often the relay opened its shards again after a fault.", []string{"source"}, nil)
)

// Describe is that of a prometheus.Collector.
func (o *outboxes) Describe(ch chan<- *prometheus.Desc) { describeOutbox(ch) }

// Collect shows what was seen last: scraping asks no database.
func (o *outboxes) Collect(ch chan<- prometheus.Metric) {
	for _, name := range o.provider.Sources() {
		s, at := o.provider.Last(name)
		if at.IsZero() {
			collectOutbox(ch, name, o.sent[name], nil)
			continue
		}
		collectOutbox(ch, name, o.sent[name], &s)
	}
}

func describeOutbox(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{outboxRows, outboxOldest, outboxLag, outboxFence, outboxParked, outboxPublished, outboxAttempts, outboxRestarts} {
		ch <- d
	}
}

// collectOutbox shows one source; s is nil before the first look.
func collectOutbox(ch chan<- prometheus.Metric, name string, count *sentRows, s *outbox.Status) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(outboxPublished, prometheus.CounterValue, float64(count.rows.Load()), name)
	ch <- count.attempts(name)
	ch <- prometheus.MustNewConstMetric(outboxRestarts, prometheus.CounterValue, float64(count.restarts.Load()), name)
	if s == nil {
		return
	}
	for state, n := range s.Rows {
		gauge(outboxRows, float64(n), name, state)
	}
	gauge(outboxOldest, s.Oldest, name)
	gauge(outboxLag, float64(s.Lag), name)
	gauge(outboxFence, s.FenceWait, name)
	gauge(outboxParked, float64(len(s.Parked)), name)
}
