package tasks

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
)

// meter shows how the tasks stand, on the node that schedules: on the others all gauges are 0. No label holds the name of a queue.
type meter struct {
	started prometheus.Counter
	due     prometheus.Histogram

	mu    sync.Mutex
	stand *schedule.Stand // nil on a node that does not schedule
	limit int
}

var (
	tasksWaiting = prometheus.NewDesc("instar_tasks_waiting", "Queued tasks, by what is against their start.", []string{"reason"}, nil)
	tasksRunning = prometheus.NewDesc("instar_tasks_slots", "Slots that running tasks have.", nil, nil)
	tasksLimit   = prometheus.NewDesc("instar_tasks_slots_limit", "Slots that there are for all tasks together.", nil, nil)
	tasksOldest  = prometheus.NewDesc("instar_tasks_oldest_seconds", "How long the task has been due that has waited longest for a slot.", nil, nil)
)

func newMeter() *meter {
	return &meter{
		started: prometheus.NewCounter(prometheus.CounterOpts{Name: "instar_tasks_started_total", Help: "Attempts of tasks that this node has started."}),
		due: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "instar_tasks_wait_seconds", Help: "How long tasks had been due when they were started.", Buckets: []float64{.005, .02, .1, .5, 2, 10, 60, 600, 3600},
		}),
	}
}

// Granted counts starts.
func (m *meter) Granted(queued []time.Duration) {
	m.started.Add(float64(len(queued)))
	for _, d := range queued {
		m.due.Observe(max(0, d.Seconds()))
	}
}

// Stands keeps what there is.
func (m *meter) Stands(s *schedule.Stand, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stand, m.limit = s, limit
}

// Describe is that of a prometheus.Collector.
func (m *meter) Describe(ch chan<- *prometheus.Desc) {
	m.started.Describe(ch)
	m.due.Describe(ch)
	for _, d := range []*prometheus.Desc{tasksWaiting, tasksRunning, tasksLimit, tasksOldest} {
		ch <- d
	}
}

// Collect shows what was told last: scraping looks at no task.
func (m *meter) Collect(ch chan<- prometheus.Metric) {
	m.started.Collect(ch)
	m.due.Collect(ch)
	m.mu.Lock()
	s, limit := m.stand, m.limit
	m.mu.Unlock()
	if s == nil {
		s = &schedule.Stand{}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, reason := range schedule.Reasons {
		gauge(tasksWaiting, float64(s.Waiting[reason]), reason)
	}
	gauge(tasksRunning, float64(s.Held))
	gauge(tasksLimit, float64(limit))
	gauge(tasksOldest, s.Oldest.Seconds())
}
