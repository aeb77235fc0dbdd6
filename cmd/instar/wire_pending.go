package main

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/streams"
)

// pending tells how far each durable consumer is behind. It asks by itself, one request for all consumers of a stream,
// and a scrape shows what was found last, so that no number of scrapes costs JetStream anything.
type pending struct {
	js     jetstream.JetStream
	names  streams.Names
	every  time.Duration
	within time.Duration // that one look may take

	mu    sync.Mutex
	found map[string]uint64 // by durable name
}

var pendingDesc = prometheus.NewDesc("instar_consumer_pending", "Messages that a durable consumer has not done: not delivered, or not acknowledged. As of the last look (15 s).", []string{"consumer"}, nil)

func (a *app) startPending(ctx context.Context, js jetstream.JetStream) error {
	p := &pending{js: js, names: a.deps.Names, every: 15 * time.Second, within: 10 * time.Second}
	a.goes(ctx, "the look at consumers", p.Run)
	return a.registry.Register(p)
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
	found := map[string]uint64{}
	for _, name := range []string{streams.CommandStream, streams.EffectStream, streams.EventStream} {
		s, err := p.js.Stream(ctx, p.names.Stream(name))
		if err != nil {
			continue
		}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if c.Config.Durable != "" {
				found[c.Config.Durable] += c.NumPending + uint64(max(c.NumAckPending, 0))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = found
}

func (p *pending) Describe(ch chan<- *prometheus.Desc) { ch <- pendingDesc }

func (p *pending) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for consumer, n := range p.found {
		ch <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), consumer)
	}
}
