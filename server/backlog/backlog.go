// Package backlog shows as metrics how far durable consumers are behind, and how large their streams and the buckets are.
package backlog

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/streams"
)

// Backlog tells how far each durable consumer is behind, and how large the streams are. It asks by itself, one request for all consumers of a stream,
// and a scrape shows what was found last, so that no number of scrapes costs JetStream anything.
type Backlog struct {
	js     jetstream.JetStream
	names  streams.Names
	every  time.Duration
	within time.Duration // that one look may take

	mu    sync.Mutex
	found map[string]uint64     // by durable name
	sizes map[string]streamSize // by plain name of the stream

	buckets map[string]float64 // their bytes by name
}

// streamSize is how large a stream is.
type streamSize struct {
	bytes, limit float64   // 0 has no limit
	oldest       time.Time // message
}

var (
	bytesDesc  = prometheus.NewDesc("instar_stream_bytes", "Size of a stream. Read every 15 s.", []string{"stream"}, nil)
	boundDesc  = prometheus.NewDesc("instar_stream_limit_bytes", "Size beyond which a stream drops its oldest messages.", []string{"stream"}, nil)
	oldestDesc = prometheus.NewDesc("instar_stream_oldest_seconds", "Age of the oldest message of a stream.", []string{"stream"}, nil)
)

var bucketDesc = prometheus.NewDesc("instar_bucket_bytes", "Size of a key-value bucket. Read every 15 s.", []string{"bucket"}, nil)

var pendingDesc = prometheus.NewDesc("instar_consumer_pending", "Messages that a durable consumer has not acknowledged, delivered or not. Read every 15 s.", []string{"consumer"}, nil)

// New looks at the streams of one installation every 15 s.
func New(js jetstream.JetStream, names streams.Names) *Backlog {
	return &Backlog{js: js, names: names, every: 15 * time.Second, within: 10 * time.Second}
}

// Run looks every few seconds until ctx ends.
func (b *Backlog) Run(ctx context.Context) error {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		b.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// once looks at all streams that durable consumers read. What cannot be found is not shown: an old number would be
// believed.
func (b *Backlog) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	found, sizes := map[string]uint64{}, map[string]streamSize{}
	for _, name := range []string{streams.CommandStream, streams.EffectStream, streams.EventStream, streams.DeadStream} {
		s, err := b.js.Stream(ctx, b.names.Stream(name))
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
	buckets := b.bucketSizes(ctx) // last: where it is slow, the streams are known
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found, b.sizes, b.buckets = found, sizes, buckets
}

// bucketSizes are the bytes of each bucket of the installation. They come with one request for every 256 of them.
func (b *Backlog) bucketSizes(ctx context.Context) map[string]float64 {
	sizes, own := map[string]float64{}, b.names.Bucket("")
	for bucket := range b.js.KeyValueStores(ctx).Status() {
		if strings.HasPrefix(bucket.Bucket(), own) {
			sizes[bucket.Bucket()] = float64(bucket.Bytes())
		}
	}
	return sizes
}

// Describe and Collect make it a collector.
func (b *Backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pendingDesc, bytesDesc, boundDesc, oldestDesc, bucketDesc} {
		ch <- desc
	}
}

// Collect shows what was found last.
func (b *Backlog) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for consumer, n := range b.found {
		ch <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), consumer)
	}
	for name, size := range b.buckets {
		ch <- prometheus.MustNewConstMetric(bucketDesc, prometheus.GaugeValue, size, name)
	}
	for name, s := range b.sizes {
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
