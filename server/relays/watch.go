package relays

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bcc94042/instar/streams/outbox"
)

// relayWatch looks at a relay that runs alone, and shows it to Prometheus and to whoever starts it again.
type relayWatch struct {
	source string
	engine *relayEngine
	count  *sentRows
	last   atomic.Pointer[outbox.Status]
}

// How often the relay is looked at, and how old the last look may be.
const (
	relayLook  = 5 * time.Second
	relayStale = 20 * time.Second
)

// serve answers on the address until ctx ends: /metrics, /livez while the process works, /readyz while the relay can work.
func (w *relayWatch) serve(ctx context.Context, address string) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(w); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if why := w.trouble(); why != "" {
			http.Error(rw, why, http.StatusServiceUnavailable)
		}
	})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go w.look(ctx)
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.engine.current().Log.Error("metrics and health are no longer served", "error", err)
		}
	}()
	return nil
}

func (w *relayWatch) look(ctx context.Context) {
	tick := time.NewTicker(relayLook)
	defer tick.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, relayLook)
		if s, err := w.engine.Status(once); err == nil {
			s.At = time.Now() // by this clock
			w.last.Store(&s)
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// trouble is why the relay cannot work now; empty when it can.
func (w *relayWatch) trouble() string {
	s := w.last.Load()
	switch {
	case s == nil || time.Since(s.At) > relayStale:
		return "the database does not answer"
	case s.Problem != "":
		return "the relay has a problem; its log says which" // which may name databases
	}
	return ""
}

// Describe is that of a prometheus.Collector.
func (w *relayWatch) Describe(ch chan<- *prometheus.Desc) { describeOutbox(ch) }

// Collect shows what was seen last: scraping asks no database.
func (w *relayWatch) Collect(ch chan<- prometheus.Metric) {
	collectOutbox(ch, w.source, w.count, w.last.Load())
}
