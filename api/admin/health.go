// Package admin is what operators see and do beside the commands of machines: health and metrics, dead letters, outboxes, nodes,
// backups. What is not given to it is not offered.
package admin

// The service with its options, and the routes for load balancers and monitoring: /livez, /readyz, /metrics. Readiness
// asks the server (Options.Ready, Options.Checks) and, for every machine, whether its index is complete and hears from its
// bucket; one check that fails makes the answer 503. The details are for tokens that may read all namespaces.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
)

// Options are what operators see and do beside the commands of machines. What is nil is not offered.
type Options struct {
	DeadLetters DeadLetters
	Nodes       Nodes
	NodeLeads   func() *NodeLeads // what the embedded NATS server leads; nil, or a nil result, if that is not known
	Outbox      Outbox

	JS jetstream.JetStream // has the streams whose messages can be read

	// Backup copies everything that is stored to a writer.
	Backup func(context.Context, io.Writer) error

	Ready  func() bool                       // nil is always ready; false makes /readyz 503, whatever the checks say
	Checks func(ctx context.Context) []Check // nil has none

	Buffers []Buffer // what /readyz?verbose tells of them

	Version Version
	Profile string // durability, as /readyz?verbose shows it
	Metrics *prometheus.Registry
}

// Service serves what is in its options.
type Service struct {
	o       Options
	page    http.Handler // of metrics
	backing sync.Mutex   // held while a backup is made
	workers presence

	rest   *rest.Server
	store  *entities.Store
	sender *commands.Sender
}

// New fails where a metric of its names is registered already.
func New(d *rest.Server, st *entities.Store, sender *commands.Sender, o Options) (*Service, error) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "instar_build_info", Help: "Always 1; the labels tell the version.",
		ConstLabels: prometheus.Labels{"version": o.Version.Version, "commit": o.Version.Commit, "go": runtime.Version()},
	})
	build.Set(1)
	if err := o.Metrics.Register(build); err != nil {
		return nil, fmt.Errorf("api: cannot register metrics: %w", err)
	}
	s := &Service{o: o, rest: d, store: st, sender: sender, page: promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}), workers: presence{names: st.Names, heard: map[[2]string]Worker{}}}
	if _, err := d.Nc.Subscribe(st.Names.Under("worker"), s.workers.hear); err != nil { // until the connection is closed, which the server does
		return nil, fmt.Errorf("api: cannot hear workers: %w", err)
	}
	return s, nil
}

// Health is what /livez and /readyz say.
type Health struct {
	Status  string        `json:"status" enum:"ok,failing"`
	Checks  []Check       `json:"checks,omitempty" doc:"With ?verbose, or when something fails"`
	Version *Version      `json:"version,omitempty"`
	Profile string        `json:"profile,omitempty" doc:"Durability profile: what an acknowledged write survives"`
	Indexes []IndexHealth `json:"indexes,omitempty"`
	Buffers []Buffer      `json:"buffers,omitempty" doc:"What may wait between a client and the disk"`
}

// Buffer is one place where something may wait, and how much.
type Buffer struct {
	Name  string `json:"name"`
	Bound string `json:"bound"`
}

// IndexHealth is how far an index is behind its bucket.
type IndexHealth struct {
	Machine  string  `json:"machine"`
	Items    int     `json:"items"`
	Revision uint64  `json:"revision"`
	Behind   uint64  `json:"behind" doc:"Known revisions that the index lacks"`
	Quiet    float64 `json:"quiet" doc:"Seconds since the server's last sign of life; it gives one every second"`
}

// Routes are all that are offered.
func (s *Service) Routes(r *rest.Router) []*rest.Route {
	return slices.Concat(s.letterRoutes(r), s.nodeRoutes(r), s.backupRoutes(), s.outboxRoutes(r), s.messageRoutes(r), s.workerRoutes(r), s.healthRoutes(r))
}

func (s *Service) healthRoutes(r *rest.Router) []*rest.Route {
	tags := []string{"server"}
	verbose := func() []*huma.Param {
		return []*huma.Param{rest.QueryParam("verbose", "Show every check", rest.Boolean())}
	}
	health := r.BodyOf(reflect.TypeFor[Health]())
	metrics := &rest.Route{Role: auth.Read, Open: s.rest.Open, Serve: s.scrape, Op: huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: tags, Summary: "Read the metrics in the format of Prometheus", Responses: map[string]*huma.Response{
			"200": {Description: "The metrics", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}},
		},
	}}
	return []*rest.Route{
		{Open: true, Serve: s.live, Op: huma.Operation{
			OperationID: "livez", Method: http.MethodGet, Path: "/livez", Tags: tags, Summary: "Check that the process is alive", Parameters: verbose(),
			Responses: map[string]*huma.Response{"200": {Description: "The process is alive", Content: health}},
		}},
		{Open: true, Serve: s.readiness, Op: huma.Operation{
			OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: tags, Summary: "Check that the process can serve requests", Parameters: verbose(),
			Responses: map[string]*huma.Response{"200": {Description: "The process is ready", Content: health}, "503": {Description: "The process is not ready, or is stopping", Content: health}},
		}},
		metrics,
	}
}

func (s *Service) live(q *rest.Request) error { return q.JSON(http.StatusOK, Health{Status: "ok"}) }

// readiness runs the checks. Details concern all namespaces, so they are shown only to callers that may read all of them.
func (s *Service) readiness(q *rest.Request) error {
	h := Health{Status: "ok"}
	ready := s.rest.Closing().Err() == nil && (s.o.Ready == nil || s.o.Ready())
	h.Checks = append(h.Checks, Check{Name: "serving", OK: ready})
	for _, m := range s.store.Machines.All() {
		select {
		case <-s.store.Index(m.Name).Ready():
			c := Check{Name: "index of " + m.Plural, OK: true}
			if stale := s.store.Index(m.Name).Stale(); stale > 0 { // it answers with what it knows, but another node may know more
				c.OK, c.Detail = false, fmt.Sprintf("has heard nothing of its bucket for %s: lists, counts and watches may be as old as that", stale.Round(time.Second))
			}
			h.Checks = append(h.Checks, c)
		default:
			h.Checks = append(h.Checks, Check{Name: "index of " + m.Plural, Detail: "is not complete yet"})
		}
	}
	if s.o.Checks != nil {
		h.Checks = append(h.Checks, s.o.Checks(q.Context())...)
	}
	status := http.StatusOK
	for _, c := range h.Checks {
		if !c.OK {
			h.Status, status = "failing", http.StatusServiceUnavailable
			q.W.Header().Set("Retry-After", "1")
		}
	}
	who, p := s.rest.Keys.Identify(q.R)
	switch {
	case p != nil || who.May(auth.Read) != nil || who.OfAll("") != nil: // names and verdicts only
		for i := range h.Checks {
			h.Checks[i].Detail, h.Checks[i].Used, h.Checks[i].Limit = "", 0, 0
		}
	case q.Flag("verbose"):
		h.Version, h.Profile, h.Indexes, h.Buffers = &s.o.Version, s.o.Profile, s.indexes(q), s.o.Buffers
	}
	if !q.Flag("verbose") && h.Status == "ok" {
		h.Checks = nil
	}
	q.W.Header().Set("Cache-Control", "no-store")
	return q.JSON(status, h)
}

func (s *Service) indexes(q *rest.Request) []IndexHealth {
	var all []IndexHealth
	for _, m := range s.store.Machines.All() {
		lag := s.store.Index(m.Name).Lag()
		all = append(all, IndexHealth{
			Machine: m.Name, Items: s.store.Index(m.Name).Len(), Revision: lag.Applied, Behind: lag.Known - min(lag.Applied, lag.Known),
			Quiet: lag.Quiet.Round(time.Millisecond).Seconds(),
		})
	}
	return all
}

func (s *Service) scrape(q *rest.Request) error {
	if p := q.Who.OfAll("the metrics"); p != nil && !q.Rt.Open {
		return p
	}
	s.page.ServeHTTP(q.W, q.R)
	return nil
}

// Version is what /readyz?verbose, the documents and instar_build_info say about the build.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Built   string `json:"built,omitempty"`
}

// Check is one thing that must hold for the process to be ready.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Warn   bool   `json:"warn,omitempty"` // it is ready, but an operator should look
	Detail string `json:"detail,omitempty"`
	Used   int64  `json:"usedBytes,omitempty" doc:"Of a store: what it has"`
	Limit  int64  `json:"limitBytes,omitempty" doc:"Of a store: what it may have"`
}
