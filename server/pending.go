package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/streams"
)

// pending tells how far each durable consumer is behind, and how large the streams are. It asks by itself, one request for all consumers of a stream,
// and a scrape shows what was found last, so that no number of scrapes costs JetStream anything.
type pending struct {
	js     jetstream.JetStream
	names  streams.Names
	every  time.Duration
	within time.Duration // that one look may take

	mu    sync.Mutex
	found map[string]uint64     // by durable name
	sizes map[string]streamSize // by plain name of the stream
}

// streamSize is how large a stream is.
type streamSize struct {
	bytes, limit float64   // 0 has no limit
	oldest       time.Time // message
}

var (
	bytesDesc  = prometheus.NewDesc("instar_stream_bytes", "Size of a stream. As of the last look (15 s).", []string{"stream"}, nil)
	boundDesc  = prometheus.NewDesc("instar_stream_limit_bytes", "Size beyond which its oldest messages go.", []string{"stream"}, nil)
	oldestDesc = prometheus.NewDesc("instar_stream_oldest_seconds", "Age of its oldest message.", []string{"stream"}, nil)
)

var pendingDesc = prometheus.NewDesc("instar_consumer_pending", "Messages that a durable consumer has not done: not delivered, or not acknowledged. As of the last look (15 s).", []string{"consumer"}, nil)

func (a *app) startPending(ctx context.Context, js jetstream.JetStream) error {
	p := &pending{js: js, names: a.deps.Names, every: 15 * time.Second, within: 10 * time.Second}
	a.goes(ctx, "the look at consumers", p.Run)
	return errors.Join(a.registry.Register(p), a.registry.Register(a.disk))
}

// Run looks every few seconds until ctx ends.
func (p *pending) Run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		p.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// once looks at all streams that durable consumers read. What cannot be found is not shown: an old number would be
// believed.
func (p *pending) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	found, sizes := map[string]uint64{}, map[string]streamSize{}
	for _, name := range []string{streams.CommandStream, streams.EffectStream, streams.EventStream, streams.DeadStream} {
		s, err := p.js.Stream(ctx, p.names.Stream(name))
		if err != nil {
			continue
		}
		info := s.CachedInfo()
		sizes[name] = streamSize{float64(info.State.Bytes), max(float64(info.Config.MaxBytes), 0), info.State.FirstTime}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if c.Config.Durable != "" {
				found[c.Config.Durable] += c.NumPending + uint64(max(c.NumAckPending, 0))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found, p.sizes = found, sizes
}

func (p *pending) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pendingDesc, bytesDesc, boundDesc, oldestDesc} {
		ch <- desc
	}
}

func (p *pending) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for consumer, n := range p.found {
		ch <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), consumer)
	}
	for name, s := range p.sizes {
		ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, s.bytes, name)
		if s.limit > 0 {
			ch <- prometheus.MustNewConstMetric(boundDesc, prometheus.GaugeValue, s.limit, name)
		}
		age := 0.0
		if !s.oldest.IsZero() && s.bytes > 0 {
			age = max(time.Since(s.oldest).Seconds(), 0)
		}
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age, name)
	}
}
